"""The actor through which the driver of a pack and its group of workers communicate.

Ray Train reports only the results of rank 0 to its driver, through a folder that all nodes must reach. Through this
Ray actor beside the driver the results of every worker arrive, and no folder is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memsweep.sweep.store.record import Failure

if TYPE_CHECKING:
    from memsweep.sweep.worker.execute import PackJob
    from memsweep.trial import ReplicaMeasurement


@dataclass(frozen=True)
class Assignment:
    """Trials of one program that a group computes together.

    Attributes:
        job: their pack.
        names: their identities.
        configs: canonical configs; those of chained trials hold the value of the trial before.
        padded: whether they run at the fixed shapes of all packs, see ``memsweep.trial.RunOptions``.
    """

    job: PackJob
    names: tuple[str, ...]
    configs: tuple[dict[str, Any], ...]
    padded: bool


@dataclass(frozen=True)
class WorkerResult:
    """Result of one worker for one assignment.

    Attributes:
        measurements: of the worker's own models.
        origin: the provenance of its process, ``phases`` included.
        failure: why there are none; else None.
        can_resume: whether its checkpoint may help another attempt.
        node: identity of its node.
    """

    measurements: list[ReplicaMeasurement] = field(default_factory=list)
    origin: dict[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    can_resume: bool = False
    node: str = ""


@dataclass(frozen=True)
class GroupState:
    """State of the current assignment.

    Attributes:
        fraction: that is done, in the mean over the workers.
        peak_memory: the most bytes that one of the workers has held for it; 0 before the first report.
        results: rank -> its result.
    """

    fraction: float
    peak_memory: int
    results: dict[int, WorkerResult]


class Coordinator:
    """The actor. Its methods run in one event loop; one that waits blocks no other.

    Args:
        workers: size of the group.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._assignments: list[Assignment | None] = []
        self._fractions: dict[int, float] = {}
        self._peaks: dict[int, int] = {}
        self._results: dict[int, WorkerResult] = {}
        self._changed = asyncio.Condition()
        self._aborted = asyncio.Event()

    async def assign(self, assignment: Assignment | None) -> None:
        """Start the next assignment; None ends the workers."""
        async with self._changed:
            self._assignments.append(assignment)
            self._fractions.clear()
            self._peaks.clear()
            self._results.clear()
            self._changed.notify_all()

    async def assignment(self, number: int) -> Assignment | None:
        """The assignment of this number, as soon as there is one."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._assignments) > number)
            return self._assignments[number]

    async def report_progress(self, rank: int, fraction: float, peak_memory: int) -> None:
        """Note the progress of a worker."""
        self._fractions[rank], self._peaks[rank] = fraction, peak_memory

    async def report_result(self, rank: int, result: WorkerResult) -> None:
        """Note a worker's result for the current assignment."""
        async with self._changed:
            self._results[rank] = result
            self._fractions[rank] = 1.0
            self._changed.notify_all()

    async def state(self, timeout: float) -> GroupState:
        """The state, as soon as the assignment is done or has failed, and at the latest after ``timeout`` seconds."""
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait_for(self._ended), timeout)
            fraction = sum(self._fractions.values()) / self._workers
            return GroupState(fraction, max(self._peaks.values(), default=0), dict(self._results))

    async def abort(self) -> None:
        """Break the current assignment off."""
        self._aborted.set()

    async def wait_for_abort(self) -> None:
        """Return when the assignment is broken off."""
        await self._aborted.wait()

    def _ended(self) -> bool:
        failed = any(result.failure is not None for result in self._results.values())
        return failed or len(self._results) == self._workers
