"""What an error of tracking means; MLflow and requests are imported when there is one."""

from __future__ import annotations

import re
import sqlite3

from memsweep.redaction import redacted, without_secrets

_PERMANENT = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "PERMISSION_DENIED"}
_PERMANENT |= {"UNAUTHENTICATED", "ENDPOINT_NOT_FOUND", "INVALID_STATE"}
_BUSY = {408, 429}  # the two of HTTP's 4xx that may succeed later


def is_transient(error: Exception) -> bool:
    """Whether the same call may succeed later: the server is away, the database is busy, the disk is full.

    Raises:
        ImportError: MLflow is not installed.
    """
    import requests
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        return error.error_code not in _PERMANENT
    if isinstance(error, requests.exceptions.HTTPError) and error.response is not None:
        return error.response.status_code >= 500 or error.response.status_code in _BUSY
    # requests' and the lock's errors are OSErrors too; a path that is missing or forbidden stays so.
    away = isinstance(error, OSError) and not isinstance(error, FileNotFoundError | PermissionError)
    return away or isinstance(error, sqlite3.DatabaseError)


def reason(error: Exception, uri: str) -> str:
    """The cause of an error, as a short text without secrets.

    Raises:
        ImportError: MLflow is not installed.
    """
    import requests

    link: BaseException | None = error
    while link is not None:
        if isinstance(link, requests.exceptions.RetryError) and (code := re.search(r"too many (\d+) error", str(link))):
            return f"{redacted(uri)} answered with HTTP status {code[1]}"
        if isinstance(link, requests.exceptions.ConnectionError | requests.exceptions.Timeout):
            return f"no answer from {redacted(uri)}"
        link = link.__cause__ or link.__context__
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {without_secrets(first.replace(uri, redacted(uri)))[:200]}"
