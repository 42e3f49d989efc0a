"""Wall-clock seconds of a worker by phase, and progress reports at a limited rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import ParamSpec

STARTING, STORING = "starting", "storing"
"""Phases that the job adds: imports, plugins and configs before the work, and the store."""

_Words = ParamSpec("_Words")

MEASUREMENT = "perturbation"
WORK = ("data", "training", MEASUREMENT, "tables", STORING)
"""Phases that are work; the first four are ``memsweep.trial.run_pack``'s."""


REPORT_INTERVAL = 1.0  # seconds
_REPORTS = 200
"""Most reports a second of all packs together: a driver can handle some hundred more."""


class Phases:
    """A stopwatch. Phases follow one another and never nest, so that their seconds add up.

    Attributes:
        seconds: phase -> wall-clock seconds so far.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the seconds of the body, also where it raises."""
        began = self._clock()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._clock() - began

    def add(self, others: Mapping[str, float]) -> None:
        """Count another stopwatch's seconds, too."""
        for name, seconds in others.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def telling(
    phase: Callable[[str], AbstractContextManager[None]], progress: Callable[[float], None]
) -> Callable[[str], AbstractContextManager[None]]:
    """The phases, and a report of progress when the measurement begins.

    A training that ends before all its steps has told of its last validation alone, and a measurement tells nothing
    until it ends.

    Args:
        phase: of ``memsweep.trial.RunOptions``.
        progress: takes the fraction done.
    """
    from memsweep.trial import TRAINING_SHARE

    def told(name: str) -> AbstractContextManager[None]:
        if name == MEASUREMENT:
            progress(TRAINING_SHARE)
        return phase(name)

    return told


@dataclass(frozen=True)
class Profile:
    """The time of a run by phase.

    Attributes:
        seconds: phase -> wall-clock seconds, all workers together.
        slots: the most packs that could run at once.
        makespan: wall-clock seconds of the run, the start and the end of Ray included.
        absent: slots times seconds in which some of the slots were not there.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    slots: int = 1
    makespan: float = 0.0
    absent: float = 0.0

    def __add__(self, later: Profile) -> Profile:
        """Of two runs, one after the other."""
        names = dict.fromkeys([*self.seconds, *later.seconds])
        seconds = {name: self.seconds.get(name, 0.0) + later.seconds.get(name, 0.0) for name in names}
        slots, makespan = max(self.slots, later.slots), self.makespan + later.makespan
        return Profile(seconds, slots, makespan, self.absent + later.absent)

    @property
    def work(self) -> float:
        """Seconds of work."""
        return sum(self.seconds.get(name, 0.0) for name in WORK)

    def share(self, *phases: str) -> float:
        """The part of the slots' time that these phases took, in [0, 1]."""
        return sum(self.seconds.get(name, 0.0) for name in phases) / self._whole

    @property
    def scheduling(self) -> float:
        """The part without work: Ray, starting processes, waiting slots."""
        return max(0.0, 1.0 - self.work / self._whole)

    @property
    def _whole(self) -> float:
        return max(self.slots * self.makespan - self.absent, self.work, 1e-9)


def report_interval(packs: int) -> float:
    """Seconds between two reports of one pack, if so many packs run at once."""
    return max(REPORT_INTERVAL, packs / _REPORTS)


def throttled(
    report: Callable[_Words, None],
    interval: float = REPORT_INTERVAL,
    clock: Callable[[], float] = time.monotonic,
) -> Callable[_Words, None]:
    """The same callback without the calls that come sooner than ``interval`` seconds after the last one.

    What begins with another word than the last report is never dropped: after ``measuring`` nothing may come for long.
    """
    last, doing = clock(), ""

    def limited(*words: _Words.args, **named: _Words.kwargs) -> None:
        nonlocal last, doing
        now, before = clock(), doing
        doing = str(words[1]).partition(" ")[0] if len(words) > 1 else ""
        if now - last >= interval or doing != before:
            last = now
            report(*words, **named)

    return limited
