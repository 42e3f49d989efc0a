"""What the runner asks of a place where packs can run; Ray and the inline backend both answer it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from memsweep.sweep.worker.execute import Failure, PackJob, PackReport, Progress

Work = Callable[[PackJob, Progress], PackReport]


class ClusterLost(KeyboardInterrupt):
    """Where the jobs ran is gone, all of it; the run has ended as if somebody had stopped it. Says what is gone."""


class Events(Protocol):
    """What happens to jobs; called in the driver's main thread, one call at a time."""

    def started(self, job: PackJob) -> None:
        """The job has been given to a worker."""

    def advanced(self, job: PackJob, fraction: float) -> None:
        """The job has done this fraction of its work."""

    def finished(self, job: PackJob, report: PackReport) -> None:
        """The job came back, with results, failures or both."""

    def died(self, job: PackJob, failure: Failure) -> None:
        """The job's worker process is gone; nothing came back."""


class Backend(Protocol):
    """A place where jobs run.

    Attributes:
        slots: jobs that it can run at once.
    """

    slots: int

    def run(self, jobs: Sequence[PackJob], at_once: int, events: Events) -> None:
        """Run all jobs in this order, at most ``at_once`` at a time, and tell what happens.

        Raises:
            KeyboardInterrupt: the person (or the system) asked to stop; workers are gone, some jobs have not ended.
            ClusterLost: the same, because the place itself is gone.
        """
