"""The job of a study: its command, its metadata, its runtime environment, and no secret."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from memsweep.errors import MemsweepError
from memsweep.redaction import is_secret_name, without_secrets


class SubmissionError(MemsweepError):
    """A job cannot be submitted: the server, the token, or the content of the job is wrong."""


@dataclass(frozen=True)
class Job:
    """A job as Ray's client takes it. Everybody who reaches the server can read all of it but the files.

    Raises:
        SubmissionError: it holds a URL with credentials, the value of a secret variable of this environment, or a
            variable with the name of a secret. The message shows the text without the secret.
    """

    name: str
    command: str
    runtime_env: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        secrets = [f"{name}=***" for name in self.runtime_env.get("env_vars") or {} if is_secret_name(name)]
        secrets += [shown for text in _texts(asdict(self)) if (shown := without_secrets(text)) != text]
        if secrets:
            raise SubmissionError(
                f"{secrets[0]!r} holds a secret (***: a password in a URL, or the value of a secret variable), which "
                "everybody who reaches the job server could read. Leave it out, and give the cluster's nodes the "
                "variable that holds it (AWS_SECRET_ACCESS_KEY, MLFLOW_TRACKING_PASSWORD): jobs inherit it."
            )


def runtime_env(workspace: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Ray's runtime environment as the file of --runtime-env gives it; the folders come with the upload.

    Args:
        workspace: its pins tell an environment of packages from another one.
        given: the content of the file.

    Raises:
        SubmissionError: it names a working folder of its own.
    """
    if "working_dir" in given:
        raise SubmissionError(
            "the runtime environment names a working_dir; memsweep submit uploads files of the workspace "
            "(--workspace). Take working_dir out of the file."
        )
    env = dict(given)
    if (pip := given.get("pip")) and isinstance(pip, list | Mapping):  # a text is the path of a requirements file
        # Ray reuses an environment with the same text of packages; the hash makes a new one when the pins change.
        options: dict[str, Any] = dict(pip) if isinstance(pip, Mapping) else {"packages": pip}
        pins = [workspace / name for name in ("constraints.txt", "pyproject.toml")]
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in pins if path.is_file())).hexdigest()
        env["pip"] = options | {"packages": [*options.get("packages", []), f"# pins {digest[:16]}"]}
    return env


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value that JSON can hold."""
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    elif value is not None:
        yield str(value)
