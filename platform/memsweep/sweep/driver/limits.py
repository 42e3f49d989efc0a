"""Limits of one run: after so many hours, results or failures it stops as Ctrl-C would stop it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LIMIT_REACHED = 3
"""Exit code of a run that a limit ended before its work was done."""


@dataclass(frozen=True)
class Limits:
    """How much one run may do; None for no limit. They are the run's, never the study's.

    Attributes:
        hours: wall-clock hours, the start of Ray included.
        trials: rows that get a result.
        failures: rows that fail for good.
    """

    hours: float | None = None
    trials: int | None = None
    failures: int | None = None


class Bound:
    """The limits of a run that has begun.

    Args:
        limits: what it may do.
        clock: monotonic seconds.

    Attributes:
        reached: the limit that ended the run, in words; empty while none has.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.reached = ""
        self._limits, self._clock = limits, clock
        self._end = None if limits.hours is None else clock() + 3600.0 * limits.hours

    def room(self, results: int) -> int | None:
        """How many more rows may get a result; None for any number."""
        return None if self._limits.trials is None else max(0, self._limits.trials - results)

    def over(self, results: int, failures: int) -> bool:
        """Whether no more may be started after so many results and failures; ``reached`` then says why."""
        limits = self._limits
        if self._end is not None and self._clock() >= self._end:
            self.reached = self.reached or _hours(limits.hours or 0.0)
        elif limits.trials is not None and results >= limits.trials:
            self.reached = self.reached or f"--max-trials {limits.trials}: so many rows have got a result in this run"
        elif limits.failures is not None and failures >= limits.failures:
            self.reached = self.reached or f"--max-failures {limits.failures}: {failures} failed for good in this run"
        return bool(self.reached)

    def stop(self) -> None:
        """End what runs, as Ctrl-C would; to be called inside ``watch``.

        Raises:
            KeyboardInterrupt: in a thread that hears no signals, at once; else where the main thread hears of it.
        """
        if threading.current_thread() is not threading.main_thread():
            raise KeyboardInterrupt
        _signal()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """While it lasts, the end of the hours stops the main thread, where it runs, as Ctrl-C would.

        Where another thread runs, only ``over`` tells. SIGTERM must be handled (``terminate_like_ctrl_c``).
        """
        if self._end is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        timer = threading.Timer(min(max(0.0, self._end - self._clock()), threading.TIMEOUT_MAX), self._out_of_time)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # a signal that it sent comes while somebody still hears it

    def _out_of_time(self) -> None:
        self.reached = self.reached or _hours(self._limits.hours or 0.0)
        _signal()


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """What SIGINT did before the body, it does after it.

    Tune leaves its own handler behind, which does nothing once its experiment is over: Ctrl-C, and the end of the
    hours, would be lost between two experiments.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGINT, before)


def _signal() -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # not SIGINT, which a shell's background job ignores


def _hours(hours: float) -> str:
    return f"--max-hours {hours:g}: the time of this run is over"
