"""The progress of a run: finished, failed and running work, and the estimated end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

SURE = 1.15
"""A time left that is known within this factor is one number."""
LONG = 10.0
"""Seconds after which it is said what a pack does."""


@dataclass(frozen=True)
class Snapshot:
    """The state of a run at one moment.

    Attributes:
        total: trials of the plan, reused ones included; of a search, all that it may suggest and confirm.
        finished: trials that this run finished, diverged ones included.
        reused: trials whose result was there before the run.
        failed: trials that failed for good.
        running: packs that run now.
        fraction: part of this run's work that is done, in [0, 1], weighted by estimated cost.
        eta: seconds until the end, or None while nothing is known yet.
        note: what is retried now, or an empty string.
        doing: what the longest running pack does, such as ``step 1,200 of 5,000``; empty in its first seconds.
    """

    total: int
    finished: int
    reused: int
    failed: int
    running: int
    fraction: float
    eta: float | None
    note: str = ""
    doing: str = ""

    @property
    def left(self) -> tuple[float, float] | None:
        """Seconds until the end, at least and at most.

        It is a guess that narrows as trials end, and no interval of known coverage. Both are equal when enough trials
        have ended; None while nothing is known yet, and at the end.
        """
        if not self.eta:
            return None
        factor = 1.0 + 1.0 / math.sqrt(1.0 + self.finished + self.failed)
        return (self.eta / factor, self.eta * factor) if factor > SURE else (self.eta, self.eta)


class WorkCounter:
    """Counts the work of a run; costs are in any one unit, only their ratios matter.

    Args:
        total: trials of the plan.
        reused: trials that need no work.
        work: cost of everything that is left to do.
        expected: trials that a plan which grows may have in the end; their costs are taken as those of the trials so
            far. 0: the plan does not grow.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        total: int,
        reused: int,
        work: float,
        expected: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._reused, self._known, self._expected = total, reused, max(work, 1e-12), expected
        self._shown = 0.0  # the largest fraction so far: trials may turn out more, and a bar must not run back
        self._clock = clock
        self._began: float | None = None
        self._running: dict[str, _Running] = {}
        self._finished = self._failed = 0
        self._settled = 0.0
        self.note = ""

    def grow(self, total: int, reused: int, work: float) -> None:
        """The plan has grown: its trials and reused trials now, and the cost of the added ones."""
        self._total, self._reused, self._known = total, reused, self._known + work

    @property
    def _work(self) -> float:
        """All work of the run, that of trials to come included."""
        fresh = max(1, self._total - self._reused)
        return self._known * max(1.0, (self._expected - self._reused) / fresh)

    def started(self, job: str, cost: float) -> None:
        """A job has been given to a worker."""
        now = self._clock()
        self._began = now if self._began is None else self._began
        self._running[job] = _Running(cost, now)

    def advanced(self, job: str, fraction: float, doing: str = "") -> None:
        """A running job has done this fraction of its work, which never goes back; what it does now, in words."""
        running = self._running.get(job)
        if running is not None:
            running.fraction, running.doing = max(running.fraction, min(fraction, 1.0)), doing

    def ended(self, job: str) -> None:
        """A job is over; ``settled`` counts its trials."""
        self._running.pop(job, None)

    def settled(self, cost: float, *, failed: bool = False) -> None:
        """One trial has its final outcome, and its part of the work is done."""
        self._settled += cost
        if failed:
            self._failed += 1
        else:
            self._finished += 1

    def snapshot(self) -> Snapshot:
        """The state now."""
        done = self._settled + sum(running.fraction * running.cost for running in self._running.values())
        self._shown = max(self._shown, min(done / self._work, 1.0))
        return Snapshot(
            total=max(self._total, self._expected),
            finished=self._finished,
            reused=self._reused,
            failed=self._failed,
            running=len(self._running),
            fraction=self._shown,
            eta=self._eta(done),
            note=self.note,
            doing=self._doing(),
        )

    def _doing(self) -> str:
        longest = min(self._running.values(), key=lambda running: running.began, default=None)
        return longest.doing if longest is not None and self._clock() - longest.began >= LONG else ""

    def _eta(self, done: float) -> float | None:
        if self._work - done <= 1e-9 * self._work:
            return 0.0
        if self._began is None or done <= 0:
            return None
        now = self._clock()
        by_rate = (self._work - done) * (now - self._began) / done
        # The last packs run on few workers: the end cannot come before the slowest of them.
        return max([by_rate, *(running.left(now) for running in self._running.values())])


@dataclass
class _Running:
    cost: float
    began: float
    fraction: float = 0.0
    doing: str = ""

    def left(self, now: float) -> float:
        return (now - self.began) * (1.0 - self.fraction) / self.fraction if self.fraction > 0 else 0.0
