"""Runs a plan, and the plans that follow it, on Ray or in this process, until nothing is left or the run is stopped."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from memsweep.errors import StorageError
from memsweep.outcome import Outcome
from memsweep.sweep.backend import Backend, ClusterLost, Events, Work
from memsweep.sweep.driver.claims import Claims
from memsweep.sweep.driver.launch import ActiveLimits, ByClock, Launch, Limits
from memsweep.sweep.driver.progress import Snapshot
from memsweep.sweep.driver.scheduler import PackScheduler
from memsweep.sweep.driver.sharing import open_packs
from memsweep.sweep.planning.resources import slots, this_machine, threads
from memsweep.sweep.signals import sigint_restored, terminate_like_ctrl_c
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import Journal, read_statuses, recovered_statuses
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import Failure, PackJob, execute_pack
from memsweep.sweep.worker.gpu_memory import fitted
from memsweep.sweep.worker.timing import Profile, throttled

if TYPE_CHECKING:
    from memsweep.config.schema.study import ResourcesConfig
    from memsweep.sweep.planning.plan import Pack, Plan


class InlineBackend:
    """Runs each job by a plain call, so a debugger sees every line. Imports no Ray."""

    slots, absent = 1, 0.0

    def __init__(self, work: Work) -> None:
        self._work, self._began = work, time.monotonic()

    @property
    def node_hours(self) -> float:
        return (time.monotonic() - self._began) / 3600.0

    def run(self, jobs: Sequence[PackJob], events: Events, *, one_by_one: bool = False) -> None:
        waiting = OrderedDict((job.pack, job) for job in jobs)
        while waiting:
            if not events.may_start() or (pack := events.first(waiting)) is None:
                return
            job = waiting.pop(pack)
            events.started(job)
            report = self._work(replace(job, inline=True), throttled(partial(events.advanced, job)))
            events.finished(job, report)


class Asked:
    """The packs by what they ask for: those of a plan, and of plans that follow it.

    Args:
        plan: the first one.
        workspace: folder whose ``tasks/`` the workers import.
        launch: where packs run.
        results: folder of all studies.
    """

    def __init__(self, plan: Plan, workspace: Path, launch: Launch, results: Location) -> None:
        self._first, self._launch, self._results = plan, launch, results
        self._workspace, self._joins = workspace, launch.address is not None
        self.inline, self._here = bool(launch.inline), not launch.inline and not self._joins
        self.packs: dict[ResourcesConfig, list[Pack]] = {}
        self.add(plan)

    def cores(self, packs: int) -> int:
        """The most cores that so many packs fill."""
        return packs * max((threads(kind) * kind.workers for kind in self.packs), default=1)

    def add(self, plan: Plan) -> None:
        """Takes the packs of a plan.

        Raises:
            ConfigError: this machine, on which Ray is started for them, can never hold one of them.
        """
        for pack in plan.packs:
            self.packs.setdefault(plan.sweep.resources.of(pack.trials[0].config), []).append(pack)
        for kind in self.packs if self._here else ():
            slots(kind, [this_machine(kind)])

    def most_nodes(self, left: Callable[[Sequence[Pack]], Sequence[Pack]]) -> int | None:
        """The most nodes that packs may fill at once; says what is asked for where nodes are asked for by number."""
        from memsweep.sweep.driver.node_request import most_nodes

        return most_nodes(replace(self._first, packs=tuple(left(self._first.packs))), self._launch, self._workspace)

    def fit(self, kind: ResourcesConfig) -> tuple[ResourcesConfig, int]:
        """The resources of packs that ask for this, and the bytes of tensors that a process may hold on a GPU."""
        from memsweep.sweep.driver.node_memory import with_node_memory

        got, card_bytes = fitted(kind, self.packs[kind], self._workspace)
        if self._joins:
            got = with_node_memory(got, self.packs[kind], self._workspace, self._results)
        return got, card_bytes


OnResult = Callable[[str], None]


@contextmanager
def listen(on_result: OnResult) -> Iterator[Callable[[str], None]]:
    """Yields a function that takes an identity and returns at once; a thread calls ``on_result`` with it.

    Calls come in the order of the identities, in one thread. At the end all have been made; then the first error that
    a call raised is raised, unless the body raised its own; but a ``StorageError`` of a call is passed over.
    """
    waiting: SimpleQueue[str | None] = SimpleQueue()
    errors: list[Exception] = []

    def deliver() -> None:
        while (name := waiting.get()) is not None:
            try:
                on_result(name)
            except StorageError:  # the result is stored; whatever shows results is brought up to date from there
                continue
            except Exception as error:  # it is raised at the end; the other results come first
                errors.append(error)

    thread = Thread(target=deliver, name="results", daemon=True)
    thread.start()
    try:
        yield waiting.put
    finally:
        waiting.put(None)
        thread.join()
    if errors:
        raise errors[0]


@dataclass(frozen=True)
class RunSummary:
    """The summary of a run.

    Attributes:
        finished: identity -> outcome of each trial that has a result now and had none before.
        failed: identity -> failure of each trial that has none.
        interrupted: whether it was stopped before its end; what is finished is kept.
        limit: the limit that stopped it, in words; empty where none did.
        lost: why the place where it ran is gone; empty where it is not.
        outage: how long and why the storage took nothing, when that ended the run, in words; empty where it did not.
        profile: where the time went.
        elsewhere: identities of the finished ones that other drivers of the study have computed.
        by_clock: what a limit by the clock still allows.
    """

    finished: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, Failure] = field(default_factory=dict)
    interrupted: bool = False
    limit: str = ""
    lost: str = ""
    outage: str = ""
    profile: Profile = field(default_factory=Profile)
    elsewhere: frozenset[str] = frozenset()
    by_clock: ByClock = field(default_factory=ByClock)

    @property
    def done(self) -> int:
        """Trials with a result, diverged ones left out."""
        return len(self.finished) - self.diverged

    @property
    def diverged(self) -> int:
        """Trials whose loss became infinite: results, too."""
        return sum(outcome == Outcome.DIVERGED for outcome in self.finished.values())


NextPlan = Callable[[RunSummary], "Plan | None"]
"""Called when all packs of a plan have ended, with what the run has done so far; returns the next plan.

A plan that follows has the trials so far and more, or others in the place of some, of the same study; its packs are
what is still to run, its ``done`` what has a result. None: that was all.

Raises:
    KeyboardInterrupt: it begins no more, because the summary names a limit that is reached.
"""


def run(
    plan: Plan,
    *,
    workspace: Path,
    results: Location | Path,
    launch: Launch | None = None,
    on_progress: Callable[[Snapshot], None] = lambda snapshot: None,
    on_result: OnResult = lambda identity: None,
    work: Work = execute_pack,
    limits: Limits | None = None,
    next_plan: NextPlan = lambda summary: None,
    claims: Claims | None = None,
    leads: bool = True,
) -> RunSummary:
    """Runs every trial of a plan that has no result yet, and of the plans that follow it.

    Args:
        plan: what to run.
        workspace: folder whose ``tasks/`` the workers import.
        results: folder of all studies.
        launch: where packs run (None: Ray on this machine).
        on_progress: called in this thread, about once a second per running pack.
        on_result: called once per new result with its identity, in one background thread, in order; what it raises is
            raised here at the end, after all packs have run, apart from a storage that does not give a result back.
        work: what a worker does with a job; must be picklable for Ray.
        limits: how much this run may do (None: no limit), with all plans that follow.
        next_plan: what comes after a plan, on the same workers; asked before anything starts where a plan has no packs.
        claims: what this driver holds of a study that several drivers share; None: it has all.
        leads: it writes the journal.

    Returns:
        What was done, all plans together.

    Raises:
        ConfigError: the resources of a pack are not there and never will be; nothing has been started, or, where a
            plan that follows asks for them, nothing of that plan.
        MemsweepError: Ray cannot start or be joined, or no node came in time.
        StoreError: a stored result is damaged.
        StorageError: the journal cannot be written at the start; nothing has been started.
    """
    workspace = Path(workspace).resolve()
    store = Store(Location.at(results) / folder_name(plan.sweep.name))
    launch, active = launch or Launch(), ActiveLimits(limits or Limits())
    inline = bool(launch.inline)
    cores = threads(plan.sweep.resources) if inline else 0  # on Ray nobody has counted the room yet
    plan = _with_packs(plan, next_plan, active.by_clock(cores, in_process=inline))
    if not plan.packs:
        if plan.trials:
            _journal(plan, store, written=leads)
        return RunSummary()
    asked = Asked(plan, workspace, launch, Location.at(results))
    before = {} if claims is None else {name: failure.get("time") for name, failure in store.failures().items()}
    left = partial(open_packs, claims=claims, store=store, before=before)
    scheduler: PackScheduler | None = None
    ended, interrupted, lost, outage = False, False, "", ""
    with listen(on_result) as deliver:
        began = time.monotonic()
        try:
            # Twice: Ray's native code takes SIGTERM for itself while it starts.
            with (
                terminate_like_ctrl_c(),
                _backend(asked, work, launch, left) as backend,
                terminate_like_ctrl_c(),
            ):
                journal = _journal(plan, store, written=leads)
                scheduler = PackScheduler(plan, workspace, store, journal, on_progress, deliver, active, claims)
                with active.watch(), active.watch_packs(), active.watch_nodes(lambda: backend.node_hours):
                    _all_plans(scheduler, backend, next_plan, asked, active)
                    ended = True
        except KeyboardInterrupt as interruption:
            interrupted = not (ended and active.reached)  # hours that were over when all had ended stopped nothing
            lost = str(interruption) if isinstance(interruption, ClusterLost) else ""
        except StorageError as error:  # from the next plan, at the end of all retries
            if scheduler is None:
                raise
            interrupted, outage = True, error.cause
        if scheduler is None:
            return RunSummary(interrupted=True, lost=lost)
        scheduler.ended(interrupted=interrupted)
        outage = scheduler.outage.give_up() or outage
        profile = Profile(scheduler.phases.seconds, backend.slots, time.monotonic() - began, backend.absent)
    limit = active.reached if interrupted and not lost and not outage else ""
    elsewhere = frozenset(scheduler.elsewhere)
    return RunSummary(scheduler.results, scheduler.failures, interrupted, limit, lost, outage, profile, elsewhere)


def _with_packs(plan: Plan, next_plan: NextPlan, by_clock: ByClock) -> Plan:
    """The first of a plan and those that follow it that has something to run; the last one where none has."""
    while not plan.packs and (following := next_plan(RunSummary(by_clock=by_clock))) is not None:
        plan = following
    return plan


def hand_out(scheduler: PackScheduler, backend: Backend) -> None:
    """Runs what waits, batch by batch.

    Raises:
        KeyboardInterrupt: the run was stopped, or a limit was reached and something is left.
    """
    for jobs, one_by_one in scheduler.batches(lambda: backend.slots):
        with sigint_restored():
            backend.run(jobs, scheduler, one_by_one=one_by_one)


def _all_plans(
    scheduler: PackScheduler, backend: Backend, next_plan: NextPlan, asked: Asked, limits: ActiveLimits
) -> None:
    following: Plan | None
    while True:
        hand_out(scheduler, backend)
        results, failures = dict(scheduler.results), dict(scheduler.failures)
        limit = limits.reached if limits.over(len(results), len(failures)) else ""
        by_clock = limits.by_clock(asked.cores(backend.slots), in_process=asked.inline)
        following = next_plan(RunSummary(results, failures, limit=limit, by_clock=by_clock))
        if following is None:
            return
        asked.add(following)
        scheduler.add(following)


def _journal(plan: Plan, store: Store, *, written: bool) -> Journal:
    """The journal with every trial of the plan, written before any of them runs."""
    statuses = read_statuses(store.location)
    unknown = [name for name in plan.done if name not in statuses or not statuses[name].state.has_result]
    stored = {name: statuses[name].state.value for name in plan.done.difference(unknown)}
    stored |= store.outcomes(unknown)
    return Journal(
        store.location,
        recovered_statuses(statuses, (trial.identity for trial in plan.trials), stored, store.failures()),
        written=written,
    )


@contextmanager
def _backend(
    asked: Asked, work: Work, launch: Launch, left: Callable[[Sequence[Pack]], Sequence[Pack]]
) -> Iterator[Backend]:
    if launch.inline:
        yield InlineBackend(work)
        return
    from memsweep.sweep.ray.backend import ray_backend

    def packs() -> dict[ResourcesConfig, int]:
        return {kind: len(left(some)) for kind, some in asked.packs.items()}

    with ray_backend(work, packs, asked.fit, launch.address, partial(asked.most_nodes, left)) as backend:
        yield backend
