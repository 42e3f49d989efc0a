"""Plans of tiny trials, and what workers do with them in the tests of the runner; workers import this file, too."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from engine import trial
from memsweep.config.schema.study import ResourcesConfig, SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.sweep.planning.identity import identity, pack_identity
from memsweep.sweep.planning.plan import Pack, Plan, PlannedTrial
from memsweep.sweep.store.filesystem import STAGING
from memsweep.sweep.worker.execute import PackJob, PackReport, Progress, execute_pack, failure_of

KILLER, RAISER, HOG, OBSTACLE = 101, 102, 103, 104
"""Values of training.first_seed by which a test marks a trial that shall not go well."""


def tiny(first_seed: int, width: int = 2) -> TrialConfig:
    return trial(model={"width": width}, training={"first_seed": first_seed, "seeds": 1, "steps": 20})


def planned(configs: Sequence[Sequence[TrialConfig]], study: str = "demo", **resources: float) -> Plan:
    """A plan whose packs are given outright."""
    packs = []
    for members in configs:
        trials = tuple(PlannedTrial(identity(config), config) for config in members)
        name = pack_identity(trial.identity for trial in trials)
        packs.append(Pack(name, trials, float(len(trials)), name))
    everything = tuple(trial for pack in packs for trial in pack.trials)
    rows, asked = tuple(trial.config for trial in everything), ResourcesConfig(**resources)  # type: ignore[arg-type]
    sweep = SweepConfig(name=study, rows=rows, grid={}, resources=asked)
    return Plan(sweep, everything, frozenset(), tuple(packs))


def marked(job: PackJob, mark: int) -> bool:
    return any(data["training"]["first_seed"] == mark for _, data in job.members)


def troubled(job: PackJob, progress: Progress) -> PackReport:
    """The real work, except that marked trials kill their worker, raise, or ask for more memory than there is."""
    if marked(job, KILLER):
        os.kill(os.getpid(), signal.SIGKILL)
    for mark, error in ((RAISER, ValueError("a fault of the task")), (HOG, MemoryError("4 TiB"))):
        if marked(job, mark):
            return PackReport(failed={name: failure_of(error) for name, _ in job.members})
    return execute_pack(job, progress)


def endless(job: PackJob, progress: Progress) -> PackReport:
    """The first pack finishes; every other works until it is stopped."""
    if marked(job, 1):
        return execute_pack(job, progress)
    Path(job.workspace, f"busy-{os.getpid()}").touch()
    while True:
        time.sleep(0.05)
        progress(0.5)


def obstructed(job: PackJob, progress: Progress) -> PackReport:
    """The real work; before the marked trial the study's folder stops to take files, whoever writes them."""
    if marked(job, OBSTACLE):
        obstruct(Path(job.folder))
    with Path(job.workspace, "started").open("a") as log:
        log.write(f"{job.pack}\n")
    return execute_pack(job, progress)


def obstruct(study: Path) -> None:
    """A file where new files are staged: root cannot write there either, and what is stored can be read."""
    shutil.rmtree(study / STAGING, ignore_errors=True)
    (study / STAGING).write_bytes(b"")
