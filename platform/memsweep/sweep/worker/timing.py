"""Wall-clock seconds of a worker by what it was doing: one name for each phase of a pack."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

STARTING, STORING = "starting", "storing"
"""The phases that the job adds: everything before a pack's own work (imports, plugins, configs), and the store."""

WORK = ("data", "training", "perturbation", "tables", STORING)
"""The phases that are work; the first four are ``memsweep.trial.run_pack``'s."""


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


@dataclass(frozen=True)
class Profile:
    """Where the time of a run went.

    Attributes:
        seconds: phase -> wall-clock seconds, all workers together.
        slots: packs that could run at once.
        makespan: wall-clock seconds of the run, the start and the end of Ray included.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    slots: int = 1
    makespan: float = 0.0

    @property
    def work(self) -> float:
        """Seconds that were work."""
        return sum(self.seconds.get(name, 0.0) for name in WORK)

    def share(self, *phases: str) -> float:
        """The part of the slots' time that these phases took, in [0, 1]."""
        return sum(self.seconds.get(name, 0.0) for name in phases) / self._whole

    @property
    def scheduling(self) -> float:
        """The part that was no work: Ray, starting processes, slots that waited."""
        return max(0.0, 1.0 - self.work / self._whole)

    @property
    def _whole(self) -> float:
        return max(self.slots * self.makespan, self.work, 1e-9)
