"""The course of a run: what runs when and again, and what became of every trial."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.errors import StorageError
from memsweep.outcome import Outcome
from memsweep.sweep.driver.claims import LOOK_INTERVAL, Claims
from memsweep.sweep.driver.launch import ActiveLimits, Limits
from memsweep.sweep.driver.progress import Snapshot, WorkCounter
from memsweep.sweep.driver.sharing import Divided, Division, Undivided
from memsweep.sweep.driver.storage_outage import StorageOutage
from memsweep.sweep.planning.chain_values import never_reached
from memsweep.sweep.store.journal import Journal, State
from memsweep.sweep.store.record import StoredFailure, now
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import Failure, PackJob, PackReport
from memsweep.sweep.worker.failure import NODE_LOST
from memsweep.sweep.worker.job import jobs_of, take_report
from memsweep.sweep.worker.timing import Phases

if TYPE_CHECKING:
    from memsweep.sweep.planning.plan import Plan

_log = logging.getLogger(__name__)
_DEATHS = 3
"""A trial whose worker died so often, for an unknown cause, is not tried again."""

_NODE_LOSSES = 10
"""A pack that lost its node so often may be what brings nodes down; from then on a loss counts as a death."""

_LOOK_INTERVAL = 0.5  # seconds between two looks at a storage that fails, while nothing runs

_NO_REPORT: Failure = {
    "outcome": str(Outcome.FAILED),
    "error": "the worker ended without a report on this trial: a fault of memsweep, please report it",
    "traceback": "",
}

Batch = tuple[list[PackJob], bool]
"""Jobs, and whether they are to run one by one."""


class PackScheduler:
    """Gives out the packs of a plan, again where they failed; receives a backend's ``memsweep.sweep.backend.Events``.

    Args:
        plan: what to run.
        workspace: folder whose ``tasks/`` the workers import.
        store: the study's results.
        journal: holds every trial's state.
        on_progress: called with the state after every event.
        deliver: called with the identity of every new result.
        limits: of the run.
        claims: what this driver holds of a study that several drivers share; None: it has all.

    Attributes:
        results: identity -> outcome of each trial that has a result now.
        failures: identity -> failure of each trial that failed for good.
        phases: where the workers' time went.
        outage: what the storage does not take. Nothing is started meanwhile.
        elsewhere: identities of the results that other drivers have stored meanwhile.
    """

    def __init__(
        self,
        plan: Plan,
        workspace: Path,
        store: Store,
        journal: Journal,
        on_progress: Callable[[Snapshot], None],
        deliver: Callable[[str], None],
        limits: ActiveLimits | None = None,
        claims: Claims | None = None,
    ) -> None:
        self.elsewhere: set[str] = set()
        self.results: dict[str, str] = {}
        self.failures: dict[str, Failure] = {}
        self.phases = Phases()
        self.outage = StorageOutage(store)
        self._store, self._journal, self._on_progress, self._deliver = store, journal, on_progress, deliver
        self._workspace, self._limits = workspace, limits or ActiveLimits(Limits())
        self._waiting = jobs_of(plan, workspace, store.location.uri)
        self._cost = _costs(plan)
        costs = sum(self._cost.values())
        self._work = WorkCounter(
            len(plan.trials), len(plan.done), costs, plan.most_trials, guesses=not plan.may_end_early
        )
        self._deaths: Counter[str] = Counter()  # by trial
        self._node_losses: Counter[str] = Counter()  # by pack
        self._retry: list[PackJob] = []  # packs whose worker died, members of packs that failed
        # trials that ran out of memory, or died, while others ran beside them; chains whose worker died
        self._retry_alone: list[PackJob] = []
        self._one_by_one = False
        self._slots: Callable[[], int] = lambda: 1
        self._stopped = False  # because the storage failed for too long
        self._division: Division = Undivided()
        if claims is not None:
            self._division = Divided(claims, store, self._found_elsewhere, lambda: self._slots())
        self._unstarted: dict[str, PackJob] = {}  # of the backend's present jobs, by pack
        self._postponed: list[PackJob] = []  # what their workers left out, because the storage failed

    def add(self, plan: Plan) -> None:
        """Continues with a plan that has other trials too: its packs wait now; its other trials have ended."""
        self._note_new(plan)
        costs = _costs(plan)
        self._cost |= costs
        self._waiting += jobs_of(plan, self._workspace, self._store.location.uri)
        replaced = len(self.results.keys() - {trial.identity for trial in plan.trials})
        self._work.grow(len(plan.trials), len(plan.done - self.results.keys()), sum(costs.values()), replaced)
        self._show()

    def _note_new(self, plan: Plan) -> None:
        """Writes into the journal the trials that it lacks or holds as cancelled."""
        statuses, waiting = self._journal.trials, {trial.identity for pack in plan.packs for trial in pack.trials}
        names = [trial.identity for trial in plan.trials]
        fresh = [name for name in names if name not in statuses or statuses[name].state is State.CANCELLED]
        outcomes = self._store.outcomes(plan.done.intersection(fresh))
        ended = set(fresh) - outcomes.keys() - waiting
        failures = self._store.failures() if ended else {}
        for name in fresh:
            failed = failures[name]["outcome"] if name in ended and name in failures else State.QUEUED
            self._journal.note([name], State(outcomes.get(name, failed)))

    def batches(self, slots: Callable[[], int]) -> Iterator[Batch]:
        """The jobs that are to run, batch by batch, with as many of the waiting trials as may get a result.

        Args:
            slots: the most jobs that the backend could run at once so far.

        Raises:
            KeyboardInterrupt: a limit was reached and something is left; ``results`` and ``failures`` hold what had
                ended.
        """
        self._show()
        self._slots = slots
        while self._waiting:
            self._stop_if_over()
            yield from self._tried(self._take_allowed())

    def _take_allowed(self) -> list[PackJob]:
        """Takes the jobs that may run now from those that wait; cuts the last one where a limit requires it."""
        room = self._limits.room(len(self.results))
        if room is None:
            jobs, self._waiting = self._waiting, []
            return jobs
        jobs = []
        while room and self._waiting:
            job, *others = self._waiting
            first, rest = job.members[:room], job.members[room:]
            jobs.append(job.of(first) if rest else job)
            self._waiting = [job.of(rest), *others] if rest else others
            room -= len(first)
        return jobs

    def _stop_if_over(self) -> None:
        if self._limits.over(len(self.results), len(self.failures)):
            raise KeyboardInterrupt

    def _tried(self, jobs: list[PackJob]) -> Iterator[Batch]:
        """All packs; then the failed ones where another try can help; then suspects one at a time.

        A pack whose worker died continues from its checkpoint. Each member of a pack that failed runs alone, so that
        only the culprit fails; so does each member of a pack whose worker dies again. The missing trials of a chain
        stay together: they need one another's results, and never shared a program.
        """
        yield from self._submitted(jobs)
        while self._retry:
            self._stop_if_over()
            jobs, self._retry = self._retry, []
            yield from self._again(jobs, "after a failure")
        while self._retry_alone or self._retry:
            self._stop_if_over()
            jobs, self._retry_alone, self._retry = [*self._retry_alone, *self._retry], [], []
            yield from self._again(jobs, "one at a time, after a failure", one_by_one=True)

    def _again(self, jobs: list[PackJob], how: str, *, one_by_one: bool = False) -> Iterator[Batch]:
        count = sum(len(job.members) for job in jobs)
        self._work.note = f"{count} trial{'s' if count > 1 else ''} again, {how}"
        yield from self._submitted(jobs, one_by_one)
        self._work.note = ""
        self._show()

    def _submitted(self, jobs: list[PackJob], one_by_one: bool = False) -> Iterator[Batch]:
        self._one_by_one = one_by_one
        while jobs:
            self._unstarted = {job.pack: job for job in jobs}
            self._division.begin(jobs)
            self._wait_for_others()
            yield [*self._unstarted.values()], one_by_one
            self._wait_for_storage()
            jobs, self._postponed = [*self._unstarted.values(), *self._postponed], []

    def _wait_for_others(self) -> None:
        """Returns when one of the jobs may start, or other drivers have ended all of them."""
        while self._unstarted and not self.may_start():
            self._wait_for_storage()
            self._stop_if_over()
            time.sleep(LOOK_INTERVAL / 4)

    def _found_elsewhere(self, outcomes: Mapping[str, str], failures: Mapping[str, StoredFailure]) -> None:
        """Other drivers have ended these trials of jobs that have not started here."""
        self.elsewhere |= outcomes.keys() - self.results.keys()
        self._settle(outcomes)
        for name, failure in failures.items():
            self._note_failed(name, failure, failure)
            self._ended(name)
        ended = self.results.keys() | self.failures.keys()
        for job in [*self._unstarted.values()]:
            if ended.issuperset(name for name, _ in job.members):
                del self._unstarted[job.pack]
        self._show()

    def _wait_for_storage(self) -> None:
        """Returns when the storage has taken everything.

        Raises:
            KeyboardInterrupt: its time is over.
        """
        while self.outage.cause:
            self._settle(self.outage.offer())
            if self.outage.over:
                raise KeyboardInterrupt
            if self.outage.cause:
                time.sleep(_LOOK_INTERVAL)

    def _offer(self) -> None:
        """Offers the storage what it did not take; stops the run when its time is over."""
        self._settle(self.outage.offer())
        if self.outage.over and not self._stopped:
            self._stopped = True
            self._limits.stop()

    @property
    def _beside_others(self) -> bool:
        """Whether more than one job may have run at once."""
        return not self._one_by_one and self._slots() > 1

    def may_start(self) -> bool:
        return not self.outage.cause and bool(self.outage.noted(self._division.any))

    def first(self, packs: Collection[str]) -> str | None:
        return self.outage.noted(lambda: self._division.first(packs))

    def free(self, packs: Collection[str]) -> int:
        return self.outage.noted(lambda: self._division.free(packs)) or 0

    def started(self, job: PackJob) -> None:
        self._unstarted.pop(job.pack, None)
        self._division.started(job.pack)
        asked = job.resources
        self._limits.started(job.pack, asked.cpus * asked.workers, asked.card * asked.workers)
        self._work.started(job.pack, sum(self._cost[name] for name, _ in job.members))
        try:
            take_report(self._store, job.pack)  # of an earlier driver's worker
        except StorageError as error:
            self.outage.add(error.cause)
        self._journal.note((name for name, _ in job.members if name not in self.results), State.RUNNING)
        self._journal.flush()  # a trial may take this process down
        self._show()

    def advanced(self, job: PackJob, fraction: float, doing: str = "") -> None:
        self._work.advanced(job.pack, fraction, doing)
        self._journal.flush_if_due()
        self._offer()
        self._stop_if_worked_out()
        self._show()

    def finished(self, job: PackJob, report: PackReport) -> None:
        self._limits.ended(job.pack)
        self._work.ended(job.pack)
        self.phases.add(report.seconds)
        self._settle(report.finished)
        if report.failed and job.is_chained:
            self._chain_failed(job, report.failed)
        else:
            for name, failure in report.failed.items():
                self._failed(job, name, failure, culprit=name in report.culprits)
        ended = report.finished.keys() | report.failed.keys() | report.unstored.keys()
        left = [name for name, _ in job.members if name not in ended]
        if report.outage:
            self.outage.add(report.outage, report.unstored)
            self._offer()
            self._left_out(job, left, report)
        else:
            for name in left:
                self._failed(job, name, _NO_REPORT, culprit=True)
        self._stop_if_worked_out()
        self._show()

    def _stop_if_worked_out(self) -> None:
        """Stops the run where its packs have used what they may, and something is left."""
        left = len(self._cost) > len(self.results) + len(self.failures)
        if left and not self._limits.reached and self._limits.worked_out():
            self._limits.stop()

    def _left_out(self, job: PackJob, names: list[str], report: PackReport) -> None:
        """A worker left these trials out, because the storage failed: they wait until it works again.

        Where it works for the driver, and the worker got nothing done, it counts as a death of the worker: its node
        may lack a mount or a key.
        """
        if not names:
            return
        left = job.of(tuple(member for member in job.members if member[0] in names))
        if self.outage.cause or len(names) < len(job.members):
            self._journal.note(names, State.QUEUED)
            self._postponed.append(left)
            return
        error = f"StorageError: {report.outage}. The driver can use the storage: look at the worker's node."
        suspects = names[:1] if job.is_chained else names
        self._deaths.update(suspects)
        self._lost(left, suspects, {"outcome": str(Outcome.FAILED), "error": error, "traceback": ""})

    def died(self, job: PackJob, failure: Failure) -> None:
        self._limits.ended(job.pack)
        self._unstarted.pop(job.pack, None)  # its worker may have died before it was told what to do
        self._division.started(job.pack)
        try:
            self._worker_died(job, failure)
        except StorageError as error:  # what the worker had stored is unknown now
            self._work.ended(job.pack)
            self.outage.add(error.cause)
            self._left_out(job, [name for name, _ in job.members if name not in self.results], PackReport())
        self._show()

    def _worker_died(self, job: PackJob, failure: Failure) -> None:
        report = None
        with contextlib.suppress(ValueError, KeyError, TypeError):  # a report that was cut off, or there is none
            report = PackReport.from_json(take_report(self._store, job.pack) or "")
        if report is not None:  # it ended itself, and left the cause
            return self.finished(job, report)
        self._work.ended(job.pack)
        # What was written before the worker died is a result like any other.
        self._settle({name: self._stored(name) for name, _ in job.members if self._store.has(name)})
        unfinished = [name for name, _ in job.members if name not in self.results]
        left = replace(job, members=tuple(m for m in job.members if m[0] in unfinished))
        if unfinished and failure.get("cause") == NODE_LOST and self._node_losses[job.pack] < _NODE_LOSSES:
            self._node_losses[job.pack] += 1
            self._journal.note(unfinished, State.QUEUED)  # the node failed, not the trials
            self._retry.append(left)
        elif unfinished:
            # the trials of a chain run one by one: it died at the first unfinished one, and did not reach the others
            suspects = unfinished[:1] if job.is_chained else unfinished
            self._deaths.update(suspects)
            self._lost(left, suspects, failure)

    def _lost(self, job: PackJob, suspects: list[str], failure: Failure) -> None:
        """The worker of a job died: retries its trials, or gives up after three deaths of the first suspect."""
        deaths = self._deaths[suspects[0]]
        if deaths >= _DEATHS or (failure["outcome"] == Outcome.OUT_OF_MEMORY and not self._beside_others):
            for name, _ in job.members:
                self._give_up(job, name, failure if name in suspects else never_reached(suspects[0]))
            return
        self._journal.note(suspects, State.QUEUED, failure=failure)
        self._journal.note([name for name, _ in job.members if name not in suspects], State.QUEUED)
        if len(suspects) == 1:
            self._retry_alone.append(job)
        elif deaths > 1 or failure["outcome"] == Outcome.OUT_OF_MEMORY:
            self._retry += [job.only(name) for name in suspects]
        else:
            self._retry.append(job)

    def ended(self, *, interrupted: bool) -> None:
        """All workers have ended; results that they stored before their packs had ended count like any other."""
        if interrupted:
            names = [name for name in self._cost if name not in self.results]
            with contextlib.suppress(StorageError):
                self._settle({name: self._stored(name) for name in names if self._store.has(name)})
            running = [name for name in names if self._journal.trials[name].state is State.RUNNING]
            self._journal.note(running, State.PREEMPTED)
        self._journal.flush()
        if self._journal.trouble and not self.outage.cause:
            _log.warning("%s", self._journal.trouble)

    def _settle(self, outcomes: Mapping[str, str]) -> None:
        for name, outcome in outcomes.items():
            if name in self.results:  # another driver had stored it before this pack ran
                continue
            self.results[name] = outcome
            self._work.settled(self._cost[name])
            self._journal.note([name], State(outcome))
            self._deliver(name)
            self._ended(name)

    def _ended(self, name: str) -> None:
        self.outage.noted(lambda: self._division.settled(name))

    def _stored(self, name: str) -> str:
        return str(self._store.record(name)["outcome"])

    def _failed(self, job: PackJob, name: str, failure: Failure, *, culprit: bool = False) -> None:
        """Retries the trial alone where that can find the culprit or free memory; else it has failed for good."""
        alone = job.only(name)
        if len(job.members) > 1 and not culprit:
            self._journal.note([name], State.QUEUED)
            self._retry.append(alone)
        elif failure["outcome"] == Outcome.OUT_OF_MEMORY and self._beside_others:
            self._journal.note([name], State.QUEUED)
            self._retry_alone.append(alone)
        else:
            self._give_up(job, name, failure)

    def _chain_failed(self, job: PackJob, failed: Mapping[str, Failure]) -> None:
        """Retries the missing trials of a chain alone where memory ran out; else they have failed for good."""
        lacked_memory = any(failure["outcome"] == Outcome.OUT_OF_MEMORY for failure in failed.values())
        if lacked_memory and self._beside_others:
            self._retry_alone.append(replace(job, members=tuple(m for m in job.members if m[0] in failed)))
            self._journal.note(list(failed), State.QUEUED)
            return
        for name, failure in failed.items():
            self._give_up(job, name, failure)

    def _note_failed(self, name: str, failure: Failure, stored: Mapping[str, Any]) -> None:
        self.failures[name] = failure
        self._work.settled(self._cost[name], failed=True)
        self._journal.note([name], State(failure["outcome"]), failure=stored)

    def _give_up(self, job: PackJob, name: str, failure: Failure) -> None:
        stored = {"study": job.study, "time": now(), **failure}
        self._note_failed(name, failure, stored)
        try:
            self._store.fail(name, stored)
        except StorageError as error:
            self.outage.add(error.cause, failures={name: stored})
        self._ended(name)
        left = len(self._cost) > len(self.results) + len(self.failures)
        if left and not self._limits.reached and self._limits.over(0, len(self.failures)):
            self._limits.stop()

    def _show(self) -> None:
        waiting = sum(map(len, (self._unstarted, self._postponed, self._retry, self._retry_alone)))
        self._on_progress(replace(self._work.snapshot(), waiting=waiting, slots=self._slots()))


def _costs(plan: Plan) -> dict[str, float]:
    return {trial.identity: pack.cost / len(pack.trials) for pack in plan.packs for trial in pack.trials}
