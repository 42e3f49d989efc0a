"""What must not travel with a job: whoever reaches a job server reads its jobs' commands and environments."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from memsweep.redaction import REMOVED, is_secret_name, secrets_in, without_secrets
from memsweep.sweep.submit.client import SubmissionError


def refuse_secrets(what: str, value: Any) -> None:
    """See that nothing secret is in a text, or in the texts of a list or mapping.

    Args:
        what: what it is, for the message: ``the command line``.
        value: what would travel.

    Raises:
        SubmissionError: a URL with credentials, the value of a secret variable of this environment, or a variable
            whose name says that it is secret. The message does not repeat it.
    """
    for path, text in _texts(value):
        where = f"{what} ({path})" if path else what
        if "env_vars." in path and is_secret_name(path.rpartition(".")[2]):
            raise SubmissionError(
                f"{where} would put a secret into the job, where everybody who reaches the job server can read it. "
                "Give the cluster's nodes this variable instead, from a secret of theirs; jobs inherit it."
            )
        shown = without_secrets(text)
        if f"://{REMOVED}@" in shown:
            raise SubmissionError(
                f"{where} holds an address with credentials ({shown}), which everybody who reaches the job server "
                "could read. Leave them out, and give the cluster's nodes the variables that hold them "
                "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, MLFLOW_TRACKING_USERNAME and _PASSWORD)."
            )
        if shown != text:
            named = [name for name, secret in secrets_in(os.environ).items() if secret in text]
            raise SubmissionError(
                f"{where} holds the value of {' and '.join(named) or 'a secret variable'}, which everybody who reaches "
                "the job server could read. Leave it out, and give the cluster's nodes that variable."
            )


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield path, str(key)
            yield from _texts(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, path)
    elif value is not None:
        yield path, str(value)
