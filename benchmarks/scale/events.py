"""How many packs and reports the driver can take: real Ray, real journal, and packs that come back at once."""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.harness import ROOT, Row
from benchmarks.scale.proc import resident
from benchmarks.studies import noop
from memsweep.config.load.study import load_study
from memsweep.config.schema.trial import TrialConfig
from memsweep.sweep.driver.progress import Snapshot
from memsweep.sweep.driver.runner import hand_out
from memsweep.sweep.driver.scheduler import PackScheduler
from memsweep.sweep.planning.identity import identity
from memsweep.sweep.planning.plan import Plan, PlannedTrial, pack_of
from memsweep.sweep.planning.resources import local_cpus
from memsweep.sweep.ray.backend import ray_backend
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import Journal, TrialStatus
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import PackJob, PackReport, Progress

_WARM = 0.1  # of the packs: not counted, because workers start then


def told(count: int, job: PackJob, progress: Progress) -> PackReport:
    """A worker's job that reports so often and says that all is done; nothing is computed or stored."""
    from ray import tune

    for index in range(count):
        tune.report({"fraction": index / count, "doing": "", "peak_memory": 0})
    return PackReport(finished={name: "done" for name, _ in job.members})


def silent(job: PackJob, progress: Progress) -> PackReport:
    return told(0, job, progress)


def telling(job: PackJob, progress: Progress) -> PackReport:
    return told(10, job, progress)


def planned(packs: int, members: int, slots: int) -> Plan:
    """Packs of so many trials, for so many slots of this machine; configs are one trial's with other first seeds."""
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "noop.yaml"
        study.write_text(noop.STUDY, encoding="utf-8")
        sweep = load_study(str(study), (), ROOT)
    first: TrialConfig = sweep.rows[0]
    trials = []
    for seed in range(packs * members):
        config = replace(first, training=replace(first.training, first_seed=5 * seed))
        trials.append(PlannedTrial(identity(config), config))
    parts = [trials[start : start + members] for start in range(0, len(trials), members)]
    sweep = replace(sweep, name="events", resources=replace(sweep.resources, cpus=local_cpus() / slots))
    return Plan(sweep, tuple(trials), frozenset(), tuple(map(pack_of, parts)))


@dataclass
class _Watch:
    """When the trials had ended, and what it had cost this process by then."""

    trials: int
    seen: list[tuple[int, float, float, float]] = field(default_factory=list)

    def __call__(self, snapshot: Snapshot) -> None:
        if not self.seen or snapshot.finished > self.seen[-1][0]:
            self.seen.append((snapshot.finished, time.perf_counter(), time.process_time(), time.thread_time()))

    def steady(self) -> tuple[float, float, float, float]:
        """Trials, wall-clock seconds, CPU seconds of the process, of the main thread; without the start."""
        begin = next(entry for entry in self.seen if entry[0] >= _WARM * self.trials)
        trials, *times = (after - before for before, after in zip(begin, self.seen[-1], strict=True))
        return trials, *times  # type: ignore[return-value]


def drive(packs: int, members: int, slots: int, reports: bool = False, where: str | None = None) -> Row:
    """Run so many packs through the driver.

    Args:
        packs, members: how many packs of how many trials.
        slots: workers on this machine, whatever its cores.
        reports: ten reports of progress a pack.
        where: results folder or bucket of journal and checkpoints (None: a folder that is gone afterwards).
    """
    plan = planned(packs, members, slots)
    watch = _Watch(len(plan.trials))
    work = telling if reports else silent
    with tempfile.TemporaryDirectory(prefix="memsweep-events-") as folder:
        store = Store(Location.at(where or folder) / f"events-{packs}-{members}-{slots}-{int(reports)}")
        with ray_backend(work, lambda: {plan.sweep.resources: packs}, lambda asked: (asked, 0), None) as backend:
            journal = Journal(store.location, {trial.identity: TrialStatus() for trial in plan.trials})
            before = resident()
            course = PackScheduler(plan, ROOT, store, journal, watch, lambda name: None)
            hand_out(course, backend)
            course.ended(interrupted=False)
            grown = resident() - before
    trials, wall, process, main = watch.steady()
    jobs = trials / members
    return {
        "slots": slots,
        "packs": packs,
        "trials_a_pack": members,
        "reports_a_pack": 10 if reports else 0,
        "place": "S3" if where else "disk",
        "packs_per_second": jobs / wall,
        "driver_ms_a_pack": 1000 * process / jobs,
        "main_thread_ms_a_pack": 1000 * main / jobs,
        "memory_mib": grown,
        "threads": threading.active_count(),
    }
