"""The course of a run: its rounds, and what became of every trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.config.canonical import to_dict
from memsweep.outcome import Outcome
from memsweep.sweep import provenance
from memsweep.sweep.backend import Backend
from memsweep.sweep.carry import never_reached
from memsweep.sweep.identity import pack_identity
from memsweep.sweep.job import Failure, PackJob, PackReport
from memsweep.sweep.phases import Phases
from memsweep.sweep.progress import Ledger, Snapshot
from memsweep.sweep.resources import threads
from memsweep.sweep.store import Store

if TYPE_CHECKING:
    from memsweep.sweep.plan import Plan

_UNTOLD: Failure = {
    "outcome": str(Outcome.FAILED),
    "error": "the worker ended without a word about this trial: a fault of memsweep, please report it",
    "traceback": "",
}


class Course:
    """Runs a plan on a backend and hears what happens (``memsweep.sweep.backend.Events``).

    Args:
        plan: what to run.
        workspace: folder whose ``tasks/`` the workers import.
        store: the study's results.
        on_progress: told the state after every event.
        deliver: told the identity of every new result.

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
        on_progress: Callable[[Snapshot], None],
        deliver: Callable[[str], None],
    ) -> None:
        self.results: dict[str, str] = {}
        self.failures: dict[str, Failure] = {}
        self.phases = Phases()
        self._store, self._on_progress, self._deliver = store, on_progress, deliver
        self._jobs = _jobs(plan, workspace, store.folder)
        self._cost = {trial.identity: pack.cost / len(pack.trials) for pack in plan.packs for trial in pack.trials}
        self._ledger = Ledger(len(plan.trials), len(plan.done), sum(self._cost.values()))
        self._singles: list[PackJob] = []  # members of packs that failed
        # trials that ran out of memory, or died, while others ran beside them; chains whose worker died
        self._lonely: list[PackJob] = []
        self._beside_others = self._last_round = False

    def run(self, backend: Backend) -> None:
        """All packs; then the members of failed packs, each alone; then what lacked memory even so, one at a time.

        What a chain lacks stays together: its trials need one another's results, and never shared a program.

        Raises:
            KeyboardInterrupt: the run was stopped; ``results`` and ``failures`` hold what had ended.
        """
        self._beside_others = backend.slots > 1
        self._show()
        backend.run(self._jobs, backend.slots, self)
        self._again(backend, self._singles, backend.slots, "each alone")
        self._beside_others, self._last_round = False, True
        self._again(backend, self._lonely, 1, "one at a time")

    def _again(self, backend: Backend, jobs: list[PackJob], at_once: int, how: str) -> None:
        if jobs:
            count = sum(len(job.members) for job in jobs)
            self._ledger.note = f"{count} trial{'s' if count > 1 else ''} again, {how}, after a failure"
            backend.run(list(jobs), at_once, self)
            self._ledger.note = ""
            self._show()

    def started(self, job: PackJob) -> None:
        self._ledger.started(job.pack, sum(self._cost[name] for name, _ in job.members))
        self._show()

    def advanced(self, job: PackJob, fraction: float) -> None:
        self._ledger.advanced(job.pack, fraction)
        self._show()

    def finished(self, job: PackJob, report: PackReport, *, died: bool = False) -> None:
        self._ledger.ended(job.pack)
        self.phases.add(report.seconds)
        told = {*report.finished, *report.failed}
        for name, outcome in report.finished.items():
            self.results[name] = outcome
            self._ledger.settled(self._cost[name])
            self._deliver(name)
        if report.failed and _chained(job):
            self._chain_failed(job, report.failed, died=died)
            report = replace(report, failed={})
        for name, failure in report.failed.items():
            lacked_memory = died or failure["outcome"] == Outcome.OUT_OF_MEMORY
            self._failed(job, name, failure, certain=name in report.guilty, lacked_memory=lacked_memory)
        for name, _ in job.members:
            if name not in told:
                self._failed(job, name, _UNTOLD, certain=True)
        self._show()

    def died(self, job: PackJob, failure: Failure) -> None:
        self._ledger.ended(job.pack)
        # What was written before the worker died is a result like any other.
        stored = {name: str(self._store.record(name)["outcome"]) for name, _ in job.members if self._store.has(name)}
        lost = {name: failure for name, _ in job.members if name not in stored}
        if _chained(job):  # it died at the first trial that is lost, and never came to the others
            first = next(iter(lost), "")
            lost = {name: failure if name == first else never_reached(first) for name in lost}
        self.finished(job, PackReport(stored, lost), died=True)

    def stopped(self) -> None:
        """All workers are gone: what they stored before their packs had ended counts like any other result."""
        for job in self._jobs:
            for name, _ in job.members:
                if name not in self.results and self._store.has(name):
                    self.results[name] = str(self._store.record(name)["outcome"])
                    self._deliver(name)

    def _failed(
        self, job: PackJob, name: str, failure: Failure, *, certain: bool = False, lacked_memory: bool = False
    ) -> None:
        """Run the trial again where that can tell more; else it has failed for good."""
        alone = replace(job, pack=pack_identity([name]), members=tuple(m for m in job.members if m[0] == name))
        if len(job.members) > 1 and not certain:
            self._singles.append(alone)
        elif lacked_memory and self._beside_others:
            self._lonely.append(alone)
        else:
            self._give_up(job, name, failure)

    def _chain_failed(self, job: PackJob, failed: Mapping[str, Failure], *, died: bool) -> None:
        """Run what the chain lacks again, one at a time, where that can tell more; else it has failed for good."""
        lacked_memory = any(failure["outcome"] == Outcome.OUT_OF_MEMORY for failure in failed.values())
        if (died and not self._last_round) or (lacked_memory and self._beside_others):
            rest = tuple(member for member in job.members if member[0] in failed)
            self._lonely.append(replace(job, pack=pack_identity(name for name, _ in rest), members=rest))
            return
        for name, failure in failed.items():
            self._give_up(job, name, failure)

    def _give_up(self, job: PackJob, name: str, failure: Failure) -> None:
        self.failures[name] = failure
        self._ledger.settled(self._cost[name], failed=True)
        self._store.fail(name, {"study": job.study, "time": provenance.now(), **failure})

    def _show(self) -> None:
        self._on_progress(self._ledger.snapshot())


def _chained(job: PackJob) -> bool:
    return any(data.get("chain") for _, data in job.members)


def _jobs(plan: Plan, workspace: Path, folder: Path) -> list[PackJob]:
    revision = provenance.code_revision(workspace)
    return [
        PackJob(
            pack=pack.identity,
            study=plan.study,
            folder=str(folder),
            workspace=str(workspace),
            members=tuple((trial.identity, to_dict(trial.config)) for trial in pack.trials),
            threads=threads(plan.resources),
            revision=revision,
        )
        for pack in plan.packs
    ]
