"""Retries of a storage service that does not answer for a while.

Drivers and workers retry, because they have work to lose. Commands that only read report the error after the client's
own few attempts.
"""

from __future__ import annotations

import logging
import math
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from memsweep.errors import ConfigError, StorageError

VARIABLE = "MEMSWEEP_STORAGE_RETRY"
"""Variable of the environment that says for how many seconds a storage that fails is tried again."""
RETRY_SECONDS = 300.0
"""Its default."""

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


def retry_seconds() -> float:
    """Seconds for which a storage that fails is tried again.

    Raises:
        ConfigError: the variable of the environment holds no number of seconds.
    """
    return seconds_in(VARIABLE, RETRY_SECONDS)


def seconds_in(variable: str, default: float) -> float:
    """Seconds that a variable of the environment sets.

    Raises:
        ConfigError: it holds no number of seconds.
    """
    text = os.environ.get(variable) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        problem = f"{variable} must be a number of seconds from 0 ({default:g} where it is not set), got {text!r}."
        raise ConfigError([problem], "the environment")
    return seconds


@contextmanager
def storage_retries(seconds: float | None = None) -> Iterator[None]:
    """Lets all threads of this process retry storage requests for this long; nested uses take the longest.

    Args:
        seconds: None for ``retry_seconds``.
    """
    seconds = retry_seconds() if seconds is None else seconds
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
            warn(
                f"the storage does not answer ({' '.join(str(error).split())[:200]}): requests are retried for up to "
                f"{_state.seconds:.0f} s, and nothing is lost meanwhile"
            )
        time.sleep(pause * random.uniform(0.5, 1.0))  # jitter, so that the workers of a cluster do not retry together
        pause = min(2.0 * pause, _LONGEST_PAUSE)


def through_outages(action: Callable[[], T]) -> T:
    """Returns the result of an action that may be repeated; repeats it while the storage fails, for whatever cause.

    Raises:
        StorageError: the error of the last attempt, when the time of the retries is over.
    """
    began = time.monotonic()
    while True:
        try:
            return action()
        except StorageError as error:
            left = began + _state.seconds - time.monotonic()
            if left <= 0:
                raise
            warn(f"{error.cause}. This is tried again for {left:.0f} s.")
        time.sleep(min(_LONGEST_PAUSE, left))


def is_transient(error: BaseException | None) -> bool:
    """Whether the error is a temporary fault of the storage service, for which a retry makes sense."""
    code = aws_error_code(str(error))
    return "(HTTP status 5" in code or code.partition(" ")[0] in _TRANSIENT_ERRORS


def aws_error_code(message: str) -> str:
    """The AWS error code in a message of pyarrow's; empty where there is none."""
    match = _AWS_ERROR.search(message)
    return match.group(1) if match else ""


def warn(line: str) -> None:
    """Logs a line about a storage that fails, unless another one was logged within the last minute."""
    with _state.lock:
        now = time.monotonic()
        if now - _state.warned < _WARNING_INTERVAL:
            return
        _state.warned = now
    _log.warning("%s", line)
