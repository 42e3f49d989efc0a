"""Runs a plan: all packs, then the members of packs that failed, each alone, so that only the culprit fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.outcome import Outcome
from memsweep.sweep.backend import Backend, ClusterLost, Work
from memsweep.sweep.card import fitted
from memsweep.sweep.course import Course
from memsweep.sweep.delivery import OnResult, delivery
from memsweep.sweep.inline import InlineBackend
from memsweep.sweep.job import Failure, execute_pack
from memsweep.sweep.journal import Journal, read_rows, settled
from memsweep.sweep.phases import Profile
from memsweep.sweep.progress import Snapshot
from memsweep.sweep.resources import slots, this_machine
from memsweep.sweep.signals import terminate_like_ctrl_c
from memsweep.sweep.storage import Place
from memsweep.sweep.store import Store, folder_name

if TYPE_CHECKING:
    from memsweep.sweep.plan import Plan


@dataclass(frozen=True)
class Launch:
    """Where packs run.

    Attributes:
        inline: in this process, one after another, without Ray.
        address: a running Ray cluster (``auto`` or ``host:port``); None starts Ray on this machine.
        dashboard: start Ray's dashboard with the Ray that starts here.
    """

    inline: bool = False
    address: str | None = None
    dashboard: bool = False


@dataclass(frozen=True)
class RunSummary:
    """What a run did.

    Attributes:
        finished: identity -> outcome of each trial that has a result now and had none before.
        failed: identity -> failure of each trial that has none.
        interrupted: whether it was stopped before its end; what is finished is kept.
        lost: why the place where it ran is gone; empty where it is not.
        profile: where the time went.
    """

    finished: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, Failure] = field(default_factory=dict)
    interrupted: bool = False
    lost: str = ""
    profile: Profile = field(default_factory=Profile)

    @property
    def done(self) -> int:
        """Trials with a result, diverged ones left out."""
        return len(self.finished) - self.diverged

    @property
    def diverged(self) -> int:
        """Trials whose loss became infinite: results, too."""
        return sum(outcome == Outcome.DIVERGED for outcome in self.finished.values())


def run(
    plan: Plan,
    *,
    workspace: Path,
    results: Place | Path,
    launch: Launch | None = None,
    on_progress: Callable[[Snapshot], None] = lambda snapshot: None,
    on_result: OnResult = lambda record, tables: None,
    work: Work = execute_pack,
) -> RunSummary:
    """Run everything in a plan that has no result yet.

    Args:
        plan: what to run.
        workspace: folder whose ``tasks/`` the workers import.
        results: folder of all studies.
        launch: where packs run (None: Ray on this machine).
        on_progress: called in this thread, about once a second per running pack.
        on_result: called once per new result with its record and its tables, in one background thread, in order;
            what it raises is raised here at the end, after all packs have run.
        work: what a worker does with a job; must be picklable for Ray.

    Raises:
        ConfigError: the resources of a pack are not there and never will be; nothing has been started.
        MemsweepError: Ray cannot start or be joined.
        StoreError: a result cannot be read back, or a failure cannot be written.
    """
    workspace = Path(workspace).resolve()
    store = Store(Place.at(results) / folder_name(plan.study))
    if not plan.packs:
        if plan.trials:
            _journal(plan, store)
        return RunSummary()
    course: Course | None = None
    interrupted, lost, slots_there = False, "", 1
    with delivery(store, on_result) as deliver:
        began = time.monotonic()
        try:
            # Twice: Ray's native code takes SIGTERM for itself while it starts.
            with (
                terminate_like_ctrl_c(),
                _backend(plan, workspace, work, launch or Launch()) as backend,
                terminate_like_ctrl_c(),
            ):
                slots_there = backend.slots
                course = Course(plan, workspace, store, _journal(plan, store), on_progress, deliver)
                course.run(backend)
        except KeyboardInterrupt as interruption:
            interrupted = True
            lost = str(interruption) if isinstance(interruption, ClusterLost) else ""
        if course is None:
            return RunSummary(interrupted=True)
        course.ended(interrupted=interrupted)
        profile = Profile(course.phases.seconds, slots_there, time.monotonic() - began)
    return RunSummary(course.results, course.failures, interrupted, lost, profile)


def _journal(plan: Plan, store: Store) -> Journal:
    """The journal, with every row of the plan, before any of them runs."""
    rows = read_rows(store.place)
    unknown = [name for name in plan.done if name not in rows or not rows[name].state.has_result]
    stored = {name: rows[name].state.value for name in plan.done.difference(unknown)}
    stored |= store.outcomes(unknown)
    return Journal(store.place, settled(rows, (trial.identity for trial in plan.trials), stored, store.failures()))


@contextmanager
def _backend(plan: Plan, workspace: Path, work: Work, launch: Launch) -> Iterator[Backend]:
    if launch.inline:
        yield InlineBackend(work)
        return
    if launch.address is None:
        # What this machine can never hold is refused before any process starts.
        slots(plan.resources, [this_machine(plan.resources)])
    from memsweep.sweep.ray_backend import ray_backend

    fit = partial(fitted, packs=plan.packs, workspace=workspace)
    with ray_backend(work, plan.resources, fit, launch.address, dashboard=launch.dashboard) as backend:
        yield backend
