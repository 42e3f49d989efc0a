"""How MLflow is called: a call that may be repeated is, at once and a few times; a creation only after looking."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from typing import TypeVar

import requests
from mlflow.exceptions import MlflowException

from memsweep.redaction import redacted, without_secrets

T = TypeVar("T")

_PERMANENT = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "PERMISSION_DENIED"}
_PERMANENT |= {"UNAUTHENTICATED", "ENDPOINT_NOT_FOUND", "INVALID_STATE"}
_GONE = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"}  # what MLflow says to the second deletion of a run
_BUSY = {408, 429}  # the two refusals of HTTP's 4xx that time may lift

_PAUSES = (0.1, 0.3)  # seconds before a call is repeated here; longer outages are for the caller to wait out
_SLOW = 5.0  # seconds; what took so long to fail is not tried again at once


class Calls:
    """Calls to one server or database.

    Attributes:
        answered: how many calls have succeeded: whether a slow server gets anywhere.
    """

    def __init__(self) -> None:
        self.answered = 0

    def repeatable(self, call: Callable[[], T]) -> T:
        """Make a call that does no harm twice; repeated when it fails quickly and another try may help."""
        for pause in (*_PAUSES, None):
            began = time.monotonic()
            try:
                value = call()
            except Exception as error:
                if pause is None or not _worth_another(error, began):
                    raise
                time.sleep(pause)
            else:
                self.answered += 1
                return value
        raise AssertionError  # the last round returns or raises

    def creation(self, make: Callable[[], T], look: Callable[[], T | None]) -> T:
        """Create what must not be there twice: whether a call that failed has succeeded is looked up first.

        The caller looks once more when it comes back after an error: a slow server may create it later still.
        """
        for pause in (*_PAUSES, None):
            began = time.monotonic()
            try:
                value = make()
            except Exception as error:
                if pause is None or not _worth_another(error, began):
                    raise
                time.sleep(pause)
                found = self.repeatable(look)
                if found is None:  # one more look, later; its own failure says nothing
                    with contextlib.suppress(MlflowException, OSError):
                        found = look()
                if found is not None:
                    return found
            else:
                self.answered += 1
                return value
        raise AssertionError  # the last round returns or raises

    def deletion(self, call: Callable[[], None]) -> None:
        """Delete what may be deleted already."""
        try:
            self.repeatable(call)
        except MlflowException as error:
            if error.error_code not in _GONE:
                raise


def is_transient(error: Exception) -> bool:
    """Whether the same call may succeed later: the server is away, the database is busy, the disk is full."""
    if isinstance(error, MlflowException):
        return error.error_code not in _PERMANENT
    if isinstance(error, requests.exceptions.HTTPError) and error.response is not None:
        return error.response.status_code >= 500 or error.response.status_code in _BUSY
    # requests' and the lock's errors are OSErrors too; a path that is missing or forbidden stays so.
    return isinstance(error, OSError) and not isinstance(error, FileNotFoundError | PermissionError)


def reason(error: Exception, uri: str) -> str:
    """The cause in a few words."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, requests.exceptions.RetryError) and (code := re.search(r"too many (\d+) error", str(link))):
            return f"{redacted(uri)} answered with HTTP status {code[1]}"
        if isinstance(link, requests.exceptions.ConnectionError | requests.exceptions.Timeout):
            return f"no answer from {redacted(uri)}"
        link = link.__cause__ or link.__context__
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {without_secrets(first.replace(uri, redacted(uri)))[:200]}"


def _worth_another(error: Exception, began: float) -> bool:
    return is_transient(error) and time.monotonic() - began < _SLOW
