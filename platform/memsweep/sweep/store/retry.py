"""A storage service that does not answer for a while is waited for, by those who have work to lose.

Drivers and workers wait; whoever only looks, and wants to know, is told after the client's own few tries.
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

PATIENCE = 300.0
"""Seconds after which a service that does not answer is given up."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds between two tries
_QUIET = 60.0  # seconds between two warnings

_AWS_ERROR = re.compile(r"AWS Error (\[code \d+\]|[A-Z_]+(?: \(HTTP status \d+\))?)")
_PASSING = {
    "INTERNAL_FAILURE",
    "NETWORK_CONNECTION",
    "REQUEST_TIMEOUT",
    "SERVICE_UNAVAILABLE",
    "SLOW_DOWN",
    "THROTTLING",
}

T = TypeVar("T")
_log = logging.getLogger(__name__)


class _Waiting:
    """How long this process waits, and when it last said so."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holders: list[float] = []
        self.warned = -_QUIET

    @property
    def seconds(self) -> float:
        return max(self.holders, default=0.0)


_waiting = _Waiting()


@contextmanager
def patient(seconds: float = PATIENCE) -> Iterator[None]:
    """While it lasts, this process, in all its threads, waits so long for a service that does not answer."""
    with _waiting.lock:
        _waiting.holders.append(seconds)
    try:
        yield
    finally:
        with _waiting.lock:
            _waiting.holders.remove(seconds)


def patiently(request: Callable[[], T]) -> T:
    """What a request gives, which may be asked any number of times.

    Raises:
        OSError: what was wrong with it, where waiting does not help, has lasted too long, or nobody is patient.
    """
    began, pause = time.monotonic(), _FIRST_PAUSE
    while True:
        try:
            return request()
        except OSError as error:
            waited = time.monotonic() - began
            if not is_passing(error) or waited >= _waiting.seconds:
                raise
            _tell(error)
        time.sleep(pause * random.uniform(0.5, 1.0))  # not all workers of a cluster at the same moment
        pause = min(2.0 * pause, _LONGEST_PAUSE)


def is_passing(error: BaseException | None) -> bool:
    """Whether it is the storage service that is away or ill, and not the request that is wrong."""
    code = code_of(str(error))
    return "(HTTP status 5" in code or code.partition(" ")[0] in _PASSING


def code_of(message: str) -> str:
    """Which AWS error a message of pyarrow's tells of; empty where it tells of none."""
    found = _AWS_ERROR.search(message)
    return found.group(1) if found else ""


def _tell(error: OSError) -> None:
    with _waiting.lock:
        now = time.monotonic()
        if now - _waiting.warned < _QUIET:
            return
        _waiting.warned = now
    _log.warning(
        "the storage does not answer (%s): it is asked again for up to %.0f s, and nothing is lost meanwhile",
        " ".join(str(error).split())[:200],
        _waiting.seconds,
    )
