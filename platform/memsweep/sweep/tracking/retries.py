"""Calls of MLflow: they are repeated a few times at once; a creation only after a look for its result."""

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
_GONE = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"}  # MLflow's answers to the second deletion of a run
_BUSY = {408, 429}  # the two of HTTP's 4xx that may succeed later

_PAUSES = (0.1, 0.3)  # seconds before a call is repeated; the caller waits for the end of longer outages
_SLOW = 5.0  # seconds; a call that took longer to fail is not repeated at once


class Calls:
    """Calls to one server or database.

    Attributes:
        answered: how many calls have succeeded; it grows as long as a slow server makes progress.
    """

    def __init__(self) -> None:
        self.answered = 0

    def repeatable(self, call: Callable[[], T]) -> T:
        """Make a call that may be made twice; it is repeated if it fails quickly and another attempt may help."""
        for pause in (*_PAUSES, None):
            began = time.monotonic()
            try:
                value = call()
            except Exception as error:
                if pause is None or not _is_worth_another(error, began):
                    raise
                time.sleep(pause)
            else:
                self.answered += 1
                return value
        raise AssertionError  # the last round returns or raises

    def creation(self, make: Callable[[], T], look: Callable[[], T | None]) -> T:
        """Create an object only once: after a failed call, ``look`` finds one that was created all the same.

        The caller looks once more when it comes back after an error, because a slow server may create it later still.
        """
        for pause in (*_PAUSES, None):
            began = time.monotonic()
            try:
                value = make()
            except Exception as error:
                if pause is None or not _is_worth_another(error, began):
                    raise
                time.sleep(pause)
                existing = self.repeatable(look)
                if existing is None:  # one more look, later; an error of it says nothing
                    with contextlib.suppress(MlflowException, OSError):
                        existing = look()
                if existing is not None:
                    return existing
            else:
                self.answered += 1
                return value
        raise AssertionError  # the last round returns or raises

    def deletion(self, call: Callable[[], None]) -> None:
        """Make a call that deletes an object, which may be deleted already."""
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
    """The cause of an error, as a short text without secrets."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, requests.exceptions.RetryError) and (code := re.search(r"too many (\d+) error", str(link))):
            return f"{redacted(uri)} answered with HTTP status {code[1]}"
        if isinstance(link, requests.exceptions.ConnectionError | requests.exceptions.Timeout):
            return f"no answer from {redacted(uri)}"
        link = link.__cause__ or link.__context__
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {without_secrets(first.replace(uri, redacted(uri)))[:200]}"


def _is_worth_another(error: Exception, began: float) -> bool:
    return is_transient(error) and time.monotonic() - began < _SLOW
