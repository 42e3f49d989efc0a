"""The course of a run: what it runs again and again, and what became of every trial."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.canonical import to_dict
from memsweep.outcome import Outcome
from memsweep.sweep.backend import Backend
from memsweep.sweep.driver.limits import Bound, Limits, interrupts_kept
from memsweep.sweep.driver.progress import Ledger, Snapshot
from memsweep.sweep.planning.chain_values import never_reached
from memsweep.sweep.planning.identity import Arithmetic, pack_identity
from memsweep.sweep.planning.resources import threads
from memsweep.sweep.store.journal import Journal, State
from memsweep.sweep.store.record import now
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker import crash_report, provenance
from memsweep.sweep.worker.execute import Failure, PackJob, PackReport
from memsweep.sweep.worker.failure import NODE_LOST
from memsweep.sweep.worker.timing import Phases

if TYPE_CHECKING:
    from memsweep.sweep.planning.plan import Plan

_log = logging.getLogger(__name__)

_DEATHS = 3
"""A trial whose worker died so often, for a cause that is not known, is not tried again."""

_NODE_LOSSES = 10
"""A pack that lost its node so often may be what brings nodes down; from then on a loss counts as a death."""

_UNTOLD: Failure = {
    "outcome": str(Outcome.FAILED),
    "error": "the worker ended without a word about this trial: a fault of memsweep, please report it",
    "traceback": "",
}


class PackScheduler:
    """Runs a plan on a backend and hears what happens (``memsweep.sweep.backend.Events``).

    Args:
        plan: what to run.
        workspace: folder whose ``tasks/`` the workers import.
        store: the study's results.
        journal: where every row's state is noted.
        on_progress: told the state after every event.
        deliver: told the identity of every new result.
        bound: the limits of the run.

    Attributes:
        results: identity -> outcome of each trial that has a result now.
        failures: identity -> failure of each trial that failed for good.
        phases: where the workers' time went.
    """

    def __init__(
        self,
        plan: Plan,
        workspace: Path,
        store: Store,
        journal: Journal,
        on_progress: Callable[[Snapshot], None],
        deliver: Callable[[str], None],
        bound: Bound | None = None,
    ) -> None:
        self.results: dict[str, str] = {}
        self.failures: dict[str, Failure] = {}
        self.phases = Phases()
        self._store, self._journal, self._on_progress, self._deliver = store, journal, on_progress, deliver
        self._workspace, self._bound = workspace, bound or Bound(Limits())
        self._waiting = _jobs(plan, workspace, store.location.uri)
        self._cost = _costs(plan)
        self._ledger = Ledger(len(plan.trials), len(plan.done), sum(self._cost.values()))
        self._deaths: Counter[str] = Counter()  # by trial
        self._node_losses: Counter[str] = Counter()  # by pack
        self._next: list[PackJob] = []  # packs whose worker died, from their checkpoints; members of packs that failed
        # trials that ran out of memory, or died, while others ran beside them; chains whose worker died
        self._lonely: list[PackJob] = []
        self._beside_others = False

    def add(self, plan: Plan) -> None:
        """Go on with a plan that has more trials: its packs wait now; its other trials have ended."""
        self._note_new(plan)
        costs = _costs(plan)
        self._cost |= costs
        self._waiting += _jobs(plan, self._workspace, self._store.location.uri)
        self._ledger.grown(len(plan.trials), len(plan.done - self.results.keys()), sum(costs.values()))
        self._show()

    def _note_new(self, plan: Plan) -> None:
        """Write into the journal what it does not know yet, or took for cancelled."""
        rows, waiting = self._journal.rows, {trial.identity for pack in plan.packs for trial in pack.trials}
        names = [trial.identity for trial in plan.trials]
        fresh = [name for name in names if name not in rows or rows[name].state is State.CANCELLED]
        outcomes = self._store.outcomes(plan.done.intersection(fresh))
        ended = set(fresh) - outcomes.keys() - waiting
        failures = self._store.failures() if ended else {}
        for name in fresh:
            failed = failures[name]["outcome"] if name in ended and name in failures else State.QUEUED
            self._journal.note([name], State(outcomes.get(name, failed)))

    def run(self, backend: Backend) -> None:
        """Run the packs that wait, as many of their trials as may get a result.

        Raises:
            KeyboardInterrupt: the run was stopped, or a limit was reached and something is left; ``results`` and
                ``failures`` hold what had ended.
        """
        self._show()
        while self._waiting:
            self._stop_if_over()
            self._run(backend, self._served())

    def _served(self) -> list[PackJob]:
        """The jobs that may be run now, taken from those that wait; the last of them is cut where a limit says so."""
        room = self._bound.room(len(self.results))
        if room is None:
            jobs, self._waiting = self._waiting, []
            return jobs
        jobs = []
        while room and self._waiting:
            job, *others = self._waiting
            first, rest = job.members[:room], job.members[room:]
            jobs.append(_of(job, first) if rest else job)
            self._waiting = [_of(job, rest), *others] if rest else others
            room -= len(first)
        return jobs

    def _stop_if_over(self) -> None:
        if self._bound.over(len(self.results), len(self.failures)):
            raise KeyboardInterrupt

    def _run(self, backend: Backend, jobs: list[PackJob]) -> None:
        """All packs; then what failed, in a way that another try can mend or explain; then that one at a time.

        A pack whose worker died goes on from its checkpoint. The members of a pack that failed run alone each, so that
        only the culprit fails; so do those of a pack whose worker dies again. What a chain lacks stays together: its
        trials need one another's results, and never shared a program.
        """
        self._beside_others = backend.slots > 1
        self._give(backend, jobs, backend.slots)
        while self._next:
            self._stop_if_over()
            jobs, self._next = self._next, []
            self._again(backend, jobs, backend.slots, "after a failure")
        self._beside_others = False
        while self._lonely or self._next:
            self._stop_if_over()
            jobs, self._lonely, self._next = [*self._lonely, *self._next], [], []
            self._again(backend, jobs, 1, "one at a time, after a failure")

    def _again(self, backend: Backend, jobs: list[PackJob], at_once: int, how: str) -> None:
        count = sum(len(job.members) for job in jobs)
        self._ledger.note = f"{count} trial{'s' if count > 1 else ''} again, {how}"
        self._give(backend, jobs, at_once)
        self._ledger.note = ""
        self._show()

    def _give(self, backend: Backend, jobs: list[PackJob], at_once: int) -> None:
        with interrupts_kept():
            backend.run(jobs, at_once, self)

    def started(self, job: PackJob) -> None:
        self._ledger.started(job.pack, sum(self._cost[name] for name, _ in job.members))
        crash_report.pop(self._store, job.pack)  # of an earlier driver's worker
        self._journal.note((name for name, _ in job.members if name not in self.results), State.RUNNING)
        self._journal.flush()  # a trial may take this process down
        self._show()

    def advanced(self, job: PackJob, fraction: float) -> None:
        self._ledger.advanced(job.pack, fraction)
        self._journal.flush_if_due()
        self._show()

    def finished(self, job: PackJob, report: PackReport) -> None:
        self._ledger.ended(job.pack)
        self.phases.add(report.seconds)
        self._settle(report.finished)
        if report.failed and _chained(job):
            self._chain_failed(job, report.failed)
        else:
            for name, failure in report.failed.items():
                self._failed(job, name, failure, certain=name in report.culprits)
        for name, _ in job.members:
            if name not in report.finished and name not in report.failed:
                self._failed(job, name, _UNTOLD, certain=True)
        self._show()

    def died(self, job: PackJob, failure: Failure) -> None:
        if (said := crash_report.pop(self._store, job.pack)) is not None:  # it ended itself, and knew why
            with contextlib.suppress(ValueError, KeyError, TypeError):  # ended in the middle of a word
                self.finished(job, PackReport.from_json(said))
                return
        self._ledger.ended(job.pack)
        # What was written before the worker died is a result like any other.
        self._settle({name: self._stored(name) for name, _ in job.members if self._store.has(name)})
        lost = [name for name, _ in job.members if name not in self.results]
        left = replace(job, members=tuple(m for m in job.members if m[0] in lost))
        if lost and failure.get("cause") == NODE_LOST and self._node_losses[job.pack] < _NODE_LOSSES:
            self._node_losses[job.pack] += 1
            self._journal.note(lost, State.QUEUED)  # no failure of theirs
            self._next.append(left)
        elif lost:
            # the trials of a chain run one by one: it died at the first that is lost, and never came to the others
            suspects = lost[:1] if _chained(job) else lost
            self._deaths.update(suspects)
            self._lost(left, suspects, failure)
        self._show()

    def _lost(self, job: PackJob, suspects: list[str], failure: Failure) -> None:
        """The worker of a job died, and with it what these trials were doing."""
        deaths = self._deaths[suspects[0]]
        if deaths >= _DEATHS or (failure["outcome"] == Outcome.OUT_OF_MEMORY and not self._beside_others):
            for name, _ in job.members:
                self._give_up(job, name, failure if name in suspects else never_reached(suspects[0]))
            return
        self._journal.note(suspects, State.QUEUED, failure=failure)
        self._journal.note([name for name, _ in job.members if name not in suspects], State.QUEUED)
        if len(suspects) == 1:
            self._lonely.append(job)
        elif deaths > 1 or failure["outcome"] == Outcome.OUT_OF_MEMORY:
            self._next += [_alone(job, name) for name in suspects]
        else:
            self._next.append(job)

    def ended(self, *, interrupted: bool) -> None:
        """All workers are gone. What they stored before their packs had ended counts like any other result."""
        if interrupted:
            names = [name for name in self._cost if name not in self.results]
            self._settle({name: self._stored(name) for name in names if self._store.has(name)})
            running = [name for name in names if self._journal.rows[name].state is State.RUNNING]
            self._journal.note(running, State.PREEMPTED)
        self._journal.flush()
        if self._journal.trouble:
            _log.warning("%s", self._journal.trouble)

    def _settle(self, outcomes: Mapping[str, str]) -> None:
        for name, outcome in outcomes.items():
            self.results[name] = outcome
            self._ledger.settled(self._cost[name])
            self._journal.note([name], State(outcome))
            self._deliver(name)

    def _stored(self, name: str) -> str:
        return str(self._store.record(name)["outcome"])

    def _failed(self, job: PackJob, name: str, failure: Failure, *, certain: bool = False) -> None:
        """Run the trial again where that can tell more; else it has failed for good."""
        alone = _alone(job, name)
        if len(job.members) > 1 and not certain:
            self._journal.note([name], State.QUEUED)
            self._next.append(alone)
        elif failure["outcome"] == Outcome.OUT_OF_MEMORY and self._beside_others:
            self._journal.note([name], State.QUEUED)
            self._lonely.append(alone)
        else:
            self._give_up(job, name, failure)

    def _chain_failed(self, job: PackJob, failed: Mapping[str, Failure]) -> None:
        """Run what the chain lacks again, one at a time, where that can tell more; else it has failed for good."""
        lacked_memory = any(failure["outcome"] == Outcome.OUT_OF_MEMORY for failure in failed.values())
        if lacked_memory and self._beside_others:
            self._lonely.append(replace(job, members=tuple(m for m in job.members if m[0] in failed)))
            self._journal.note(list(failed), State.QUEUED)
            return
        for name, failure in failed.items():
            self._give_up(job, name, failure)

    def _give_up(self, job: PackJob, name: str, failure: Failure) -> None:
        self.failures[name] = failure
        self._ledger.settled(self._cost[name], failed=True)
        self._journal.note([name], State(failure["outcome"]), failure=failure)
        self._store.fail(name, {"study": job.study, "time": now(), **failure})
        left = len(self._cost) > len(self.results) + len(self.failures)
        if left and not self._bound.reached and self._bound.over(0, len(self.failures)):
            self._bound.stop()

    def _show(self) -> None:
        self._on_progress(self._ledger.snapshot())


def _alone(job: PackJob, name: str) -> PackJob:
    return _of(job, tuple(member for member in job.members if member[0] == name))


def _of(job: PackJob, members: tuple[tuple[str, dict[str, Any]], ...]) -> PackJob:
    """The job with these of its members, as a pack of their own."""
    return replace(job, pack=pack_identity(name for name, _ in members), members=members)


def _costs(plan: Plan) -> dict[str, float]:
    return {trial.identity: pack.cost / len(pack.trials) for pack in plan.packs for trial in pack.trials}


def _chained(job: PackJob) -> bool:
    return any(data.get("chain") for _, data in job.members)


def _jobs(plan: Plan, workspace: Path, folder: str) -> list[PackJob]:
    revision = provenance.code_revision(workspace)
    return [
        PackJob(
            pack=pack.identity,
            study=plan.study,
            folder=folder,
            workspace=str(workspace),
            members=tuple((trial.identity, to_dict(trial.config)) for trial in pack.trials),
            threads=threads(plan.resources),
            time_limit=plan.resources.time_limit,
            memory=plan.resources.memory,
            revision=revision,
            workers=plan.resources.workers,
            arithmetic=Arithmetic.of(plan.resources),
            after=tuple((trial.identity, trial.after) for trial in pack.trials if trial.after),
        )
        for pack in plan.packs
    ]
