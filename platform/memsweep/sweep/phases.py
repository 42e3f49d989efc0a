"""Wall-clock seconds of a worker by what it was doing: one name for each phase of a pack."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

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

    def add(self, other: Phases) -> None:
        """Count another stopwatch's seconds, too."""
        for name, seconds in other.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def work(seconds: Mapping[str, float]) -> float:
    """The seconds that were work."""
    return sum(seconds.get(name, 0.0) for name in WORK)
