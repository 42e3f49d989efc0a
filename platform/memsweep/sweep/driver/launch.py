"""Where packs run, and how much one run may do; imports nothing of what runs them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Launch:
    """Where packs run.

    Attributes:
        inline: in this process, one after another, without Ray; None: as ``placement`` says, once it is
            known what is left to run.
        address: a running Ray cluster (``auto`` or ``host:port``); None starts Ray on this machine.
    """

    inline: bool | None = None
    address: str | None = None


@dataclass(frozen=True)
class Limits:
    """How much one run may do; None for no limit. They belong to the run, never to the study.

    Attributes:
        hours: wall-clock hours, the start of Ray included.
        trials: trials that get a result.
        failures: trials that fail for good.
        core_hours, gpu_hours: of the packs, those that run now counted as far as they are: the clock's hours of each
            times the cores, or the share of GPUs, that it asks for.
    """

    hours: float | None = None
    trials: int | None = None
    failures: int | None = None
    core_hours: float | None = None
    gpu_hours: float | None = None


LIMITS = tuple(field.name for field in fields(Limits))
"""Their names: ``--max-hours``, ``--max-core-hours`` and so on."""


class ActiveLimits:
    """The limits of a run that has started.

    Args:
        limits: what it may do.
        clock: monotonic seconds.
        cores, gpus: that a pack asks for.

    Attributes:
        reached: the limit that ended the run, in words; empty while none has.
    """

    def __init__(
        self, limits: Limits, clock: Callable[[], float] = time.monotonic, cores: float = 1.0, gpus: float = 0.0
    ) -> None:
        self.reached = ""
        self._limits, self._clock, self._cores, self._gpus = limits, clock, cores, gpus
        self._began: dict[str, float] = {}
        self._worked = 0.0
        self._end = None if limits.hours is None else clock() + 3600.0 * limits.hours

    def room(self, results: int) -> int | None:
        """How many more trials may get a result; None for any number."""
        return None if self._limits.trials is None else max(0, self._limits.trials - results)

    def started(self, pack: str) -> None:
        """A pack has started."""
        self._began[pack] = self._clock()

    def ended(self, pack: str) -> None:
        """A pack has ended, in whatever way."""
        self._worked += self._clock() - self._began.pop(pack, self._clock())

    @property
    def hours(self) -> float:
        """The clock's hours of all packs so far, added up."""
        now = self._clock()
        return (self._worked + sum(now - began for began in self._began.values())) / 3600.0

    def worked_out(self) -> bool:
        """Whether the core hours or the GPU hours are used up; ``reached`` then says so."""
        each = (("core", self._limits.core_hours, self._cores), ("gpu", self._limits.gpu_hours, self._gpus))
        for name, limit, share in each:
            if limit is not None and self.hours * share >= limit:
                self.reached = self.reached or f"--max-{name}-hours {limit:g}: so much was used in this run"
        return bool(self.reached)

    def over(self, results: int, failures: int) -> bool:
        """Whether no more may be started after so many results and failures; ``reached`` then says why."""
        limits = self._limits
        self.worked_out()
        if self._end is not None and self._clock() >= self._end:
            self.reached = self.reached or _hours(limits.hours or 0.0)
        elif limits.trials is not None and results >= limits.trials:
            self.reached = self.reached or f"--max-trials {limits.trials}: so many trials got a result in this run"
        elif limits.failures is not None and failures >= limits.failures:
            self.reached = self.reached or f"--max-failures {limits.failures}: {failures} failed for good in this run"
        return bool(self.reached)

    def stop(self) -> None:
        """Stops the run, as Ctrl-C would; to be called inside ``watch``.

        Raises:
            KeyboardInterrupt: at once in a thread other than the main one; else in the main thread, by a signal.
        """
        if threading.current_thread() is not threading.main_thread():
            raise KeyboardInterrupt
        _signal()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Stops the body in the main thread when the hours are over, as Ctrl-C would.

        In another thread only ``over`` reports it. SIGTERM must be handled (``terminate_like_ctrl_c``).
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
            timer.join()  # so that its signal comes while the handler is installed

    def _out_of_time(self) -> None:
        self.reached = self.reached or _hours(self._limits.hours or 0.0)
        _signal()


def _signal() -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # not SIGINT, which a shell's background job ignores


def _hours(hours: float) -> str:
    return f"--max-hours {hours:g}: the time of this run is over"
