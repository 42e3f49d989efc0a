"""What a job takes along: the workspace and the engine, listed and weighed before anything is sent."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memsweep.sweep.submit.client import SubmissionError, quieten

MOST_BYTES = 100 * 2**20
"""What a job server takes in one piece."""

EXCLUDES = (
    *("__pycache__/", "*.pyc", ".env", ".env.*", "*.pem", ".ssh/", ".aws/", ".ray/"),
    *("/results/", "/mlruns/", "*.db", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".hypothesis/"),
)
"""Never uploaded, whatever .gitignore and .rayignore say: secrets, results, caches."""

ENGINE = Path(__file__).resolve().parents[2]
_PER_FILE, _AT_THE_END = 30 + 46, 22  # bytes that a zip archive adds, beside each name, twice
_NAMED = 5


@dataclass(frozen=True)
class Parcel:
    """The files of a workspace and of the engine that checks studies here, as Ray packs them.

    Attributes:
        workspace: the folder that becomes the job's working directory.
        files: (path in the workspace, bytes) of every file that goes along.
        engine: the same for this process's own memsweep, which the job runs.
    """

    workspace: Path
    files: tuple[tuple[str, int], ...]
    engine: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, workspace: Path) -> Parcel:
        """What would be uploaded from this workspace; reads no file."""
        return cls(workspace, _listed(workspace), _listed(ENGINE))

    @property
    def bytes(self) -> int:
        """Of both archives."""
        return _packed(self.files) + _packed(self.engine)

    def __str__(self) -> str:
        return (
            f"{mib(self.bytes)} ({len(self.files)} files of the workspace, {mib(_packed(self.files))}; "
            f"the engine, {mib(_packed(self.engine))})"
        )

    def refuse_too_large(self) -> None:
        """See that the job server takes it.

        Raises:
            SubmissionError: it would not; the message names what is large.
        """
        size = _packed(self.files)
        if size <= MOST_BYTES:
            return
        heaps: Counter[str] = Counter()
        for name, count in self.files:
            heaps[name.partition("/")[0] + ("/" if "/" in name else "")] += count
        large = ", ".join(f"{name} {mib(count)}" for name, count in heaps.most_common(_NAMED))
        raise SubmissionError(
            f"the workspace {self.workspace} would upload {mib(size)}, and a job server takes at most "
            f"{mib(MOST_BYTES)}. Largest: {large}. Name what the job does not need in {self.workspace}/.rayignore "
            "(as in .gitignore); keep data sets on the nodes (MEMSWEEP_DATA) or in a bucket."
        )

    def refuse_without(self, file: Path) -> str:
        """The path in the workspace of a file that the job needs.

        Raises:
            SubmissionError: it lies elsewhere, or is not uploaded.
        """
        try:
            name = file.resolve().relative_to(self.workspace).as_posix()
        except ValueError:
            raise SubmissionError(
                f"{file} lies outside of the workspace {self.workspace}, which is what a job takes along. Copy it "
                "into search_spaces/ there, or give another folder with --workspace."
            ) from None
        if name not in dict(self.files):
            raise SubmissionError(
                f"{name} would not be uploaded: .gitignore or .rayignore leaves it out. Take it out of there, or copy "
                "the study into search_spaces/."
            )
        return name

    def runtime_env(self, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ray's runtime environment of a job that takes this along.

        Args:
            given: what a file of --runtime-env says.

        Raises:
            SubmissionError: it names a working directory of its own.
        """
        env = dict(given or {})
        if "working_dir" in env:
            raise SubmissionError(
                "the runtime environment names a working_dir; memsweep submit uploads the workspace (--workspace). "
                "Take working_dir out of the file."
            )
        others = [module for module in env.get("py_modules") or [] if Path(str(module)).name != ENGINE.name]
        env |= {
            "working_dir": str(self.workspace),
            "py_modules": [str(ENGINE), *others],
            "excludes": [*EXCLUDES, *(env.get("excludes") or [])],
        }
        if env.get("pip"):
            env["pip"] = self._pinned(env["pip"])
        return env

    def _pinned(self, pip: Any) -> Any:
        """Ray keeps an environment by the text of its packages alone: with the pins' hash, new pins make a new one."""
        known = {"packages": pip} if isinstance(pip, list) else dict(pip) if isinstance(pip, Mapping) else None
        if known is None:  # the path of a requirements file, which Ray reads itself
            return pip
        told = hashlib.sha256()
        for name in ("constraints.txt", "pyproject.toml"):
            if name in dict(self.files):
                told.update((self.workspace / name).read_bytes())
        return known | {"packages": [*known.get("packages", []), f"# pins {told.hexdigest()[:16]}"]}


def mib(count: int) -> str:
    """Bytes as people say them: ``1.2 MiB``."""
    return f"{count / 2**20:.1f} MiB"


def _packed(files: tuple[tuple[str, int], ...]) -> int:
    return _AT_THE_END + sum(size + _PER_FILE + 2 * len(name.encode()) for name, size in files)


def _listed(folder: Path) -> tuple[tuple[str, int], ...]:
    """The files that Ray packs of a folder, by Ray's own reading of the ignore files."""
    from ray._private import ray_constants
    from ray._private.runtime_env import packaging

    quieten()
    found: list[tuple[str, int]] = []

    def note(path: Path) -> None:
        if path.is_file():
            found.append((path.relative_to(folder).as_posix(), path.stat().st_size))

    left_out = [*ray_constants.get_runtime_env_default_excludes(), *EXCLUDES]
    by_git = os.environ.get(ray_constants.RAY_RUNTIME_ENV_IGNORE_GITIGNORE, "0") != "1"
    packaging._dir_travel(folder, [packaging._get_excludes(folder, left_out)], note, include_gitignore=by_git)
    return tuple(sorted(found))
