"""The interface between the runner and a place where packs run: Ray, or the driver's own process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from memsweep.sweep.worker.execute import Failure, PackJob, PackReport, Progress

Work = Callable[[PackJob, Progress], PackReport]


class ClusterLost(KeyboardInterrupt):
    """All of the backend is gone; the run ends as after Ctrl-C. The message names the dead part."""


class Events(Protocol):
    """Events of jobs; called in the driver's main thread, one call at a time."""

    def may_start(self) -> bool:
        """Whether another job may be given to a worker now; the answer changes in the course of a run."""

    def first(self, packs: Collection[str]) -> str | None:
        """The first of these packs that this driver may run; None where other drivers have taken all of them."""

    def free(self, packs: Collection[str]) -> int:
        """How many of these packs no other driver holds: as many as this one may still get."""

    def started(self, job: PackJob) -> None:
        """The job has been given to a worker."""

    def advanced(self, job: PackJob, fraction: float, doing: str = "") -> None:
        """The job has done this fraction of its work; what it does now, in words."""

    def finished(self, job: PackJob, report: PackReport) -> None:
        """The job ended, with results, failures or both."""

    def died(self, job: PackJob, failure: Failure) -> None:
        """The job's worker process died without a report."""


class Backend(Protocol):
    """A place where jobs run.

    Attributes:
        slots: the most jobs that it could run at once so far.
        absent: slots times seconds in which some of them were not there; 0 where they never come and go.
        node_hours: hours of all nodes with cores since it began, idle ones included.
    """

    @property
    def slots(self) -> int: ...

    @property
    def absent(self) -> float: ...

    @property
    def node_hours(self) -> float: ...

    def run(self, jobs: Sequence[PackJob], events: Events, *, one_by_one: bool = False) -> None:
        """Run all jobs in this order, as many at once as there is room for, and report their events.

        Returns early when no job runs and none may be started.

        Raises:
            KeyboardInterrupt: the run was interrupted; the workers are gone, and some jobs have not ended.
            ClusterLost: the same, because the backend itself is gone.
        """
