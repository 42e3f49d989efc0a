"""Retries of a storage service that does not answer for a while.

Drivers and workers retry, because they have work to lose. Commands that only read report the error after the client's
own few attempts.
"""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

RETRY_SECONDS = 300.0
"""Seconds of retries after which the error is raised."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds between two attempts
_WARNING_INTERVAL = 60.0  # seconds

_AWS_ERROR = re.compile(r"AWS Error (\[code \d+\]|[A-Z_]+(?: \(HTTP status \d+\))?)")
_TRANSIENT_ERRORS = {
    "INTERNAL_FAILURE",
    "NETWORK_CONNECTION",
    "REQUEST_TIMEOUT",
    "SERVICE_UNAVAILABLE",
    "SLOW_DOWN",
    "THROTTLING",
}

T = TypeVar("T")
_log = logging.getLogger(__name__)


class _RetryState:
    """How long this process retries, and when it last logged a warning."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holders: list[float] = []
        self.warned = -_WARNING_INTERVAL

    @property
    def seconds(self) -> float:
        return max(self.holders, default=0.0)


_state = _RetryState()


@contextmanager
def storage_retries(seconds: float = RETRY_SECONDS) -> Iterator[None]:
    """Lets all threads of this process retry storage requests for this long; nested uses take the longest."""
    with _state.lock:
        _state.holders.append(seconds)
    try:
        yield
    finally:
        with _state.lock:
            _state.holders.remove(seconds)


def with_retries(request: Callable[[], T]) -> T:
    """Returns the result of an idempotent request; repeats it after transient errors, inside ``storage_retries``.

    Raises:
        OSError: the error of the last attempt, when it is not transient, or the time of the retries is over.
    """
    began, pause = time.monotonic(), _FIRST_PAUSE
    while True:
        try:
            return request()
        except OSError as error:
            waited = time.monotonic() - began
            if not is_transient(error) or waited >= _state.seconds:
                raise
            _warn(error)
        time.sleep(pause * random.uniform(0.5, 1.0))  # jitter, so that the workers of a cluster do not retry together
        pause = min(2.0 * pause, _LONGEST_PAUSE)


def is_transient(error: BaseException | None) -> bool:
    """Whether the error is a temporary fault of the storage service, for which a retry makes sense."""
    code = aws_error_code(str(error))
    return "(HTTP status 5" in code or code.partition(" ")[0] in _TRANSIENT_ERRORS


def aws_error_code(message: str) -> str:
    """The AWS error code in a message of pyarrow's; empty where there is none."""
    match = _AWS_ERROR.search(message)
    return match.group(1) if match else ""


def _warn(error: OSError) -> None:
    with _state.lock:
        now = time.monotonic()
        if now - _state.warned < _WARNING_INTERVAL:
            return
        _state.warned = now
    _log.warning(
        "the storage does not answer (%s): requests are retried for up to %.0f s, and nothing is lost meanwhile",
        " ".join(str(error).split())[:200],
        _state.seconds,
    )
