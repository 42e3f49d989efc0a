"""A workspace with the poisoned task, and sweeps over it: what the poison did, and that it did nothing to others."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from memsweep import registry
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.runner import RunSummary, run
from memsweep.sweep.planning.identity import identity, pack_identity
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import PackJob, PackReport, Progress, execute_pack
from memsweep.trial import RunOptions, TrialResult, run_pack
from runner_work import planned, tiny

INLINE = Launch(inline=True)
NEEDLESS = "needless"

RAISED = {
    "raise": "ZeroDivisionError: a fault of the task",
    "unpicklable": "Unpicklable: not to be pickled",
    "mute": "Mute: (its text cannot be had: __str__ raised ValueError)",
    "long": "ValueError: xxxx",
    "terminal": r"ValueError: \x1b[2J\x07 cleared \x00",
    "surrogate": r"ValueError: \ud800",
    "odd": "Odd: no Exception",
    "generator": "GeneratorExit: ",
    "exit": "SystemExit: 0",
    "exit words": "SystemExit: x",
    "recursion": "RecursionError: maximum recursion depth exceeded",
    "tebibyte": "RuntimeError: ",
    "tebibyte numpy": "MemoryError: Unable to allocate 1.00 TiB",
}
HUNGRY = ("tebibyte", "tebibyte numpy")


@dataclass(frozen=True)
class Site:
    """The workspace, which one process can have one of, and a folder for the results of one test."""

    workspace: Path
    results: Path

    @property
    def store(self) -> Store:
        return Store(self.results / "demo")

    def rerun(self) -> int:
        """How many rows ``counted`` has computed although they had a result."""
        return sum(self._log())

    def computed(self) -> int:
        """How many programs ``counted`` has computed."""
        return len(self._log())

    def _log(self) -> list[int]:
        return [int(line) for line in (self.results / "demo" / NEEDLESS).read_text().split()]

    def lost(self, configs: Iterable[TrialConfig]) -> int:
        """How many of these trials, which had a result or should have one, have none."""
        names = {identity(config) for config in configs}
        whole = names & self.store.identities()
        return len(names - whole) + len(self.store.check(whole))


def workspace_in(folder: Path) -> Path:
    """The folder, with the poisoned task in its ``tasks/``, which this process knows from now on."""
    (folder / "tasks").mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name("harmful_tasks.py"), folder / "tasks" / "poisoned.py")
    assert registry.discover(folder) == []
    return folder


def poisoned(poison: str, place: str = "train", step: int = 7, *, first_seed: int = 0, **sections: Any) -> TrialConfig:
    task = registry.get(registry.TASK, "poisoned").Config(poison=poison, place=place, step=step)
    return replace(tiny(first_seed), task=task, **sections)


def healthy(count: int, *, first_seed: int = 50) -> list[TrialConfig]:
    return [poisoned("none", first_seed=first_seed + index) for index in range(count)]


def members(poison: str) -> list[TrialConfig]:
    """Three programs: a trial that is done before the poison, the poison, and a trial that is never reached."""
    first, last = healthy(2)
    return [first, poisoned(poison), replace(last, training=replace(last.training, steps=21))]


def job_of(site: Site, configs: Iterable[TrialConfig], **options: Any) -> PackJob:
    members = tuple((identity(config), to_dict(config)) for config in configs)
    pack = pack_identity(name for name, _ in members)
    return PackJob(pack, "demo", str(site.store.location), str(site.workspace), members, **options)


def counted(job: PackJob, progress: Progress) -> PackReport:
    """The real work; every program notes, before it is computed, how many of its rows have a result already."""
    store = Store(job.folder)

    def noted(configs: Sequence[TrialConfig], options: RunOptions) -> list[TrialResult]:
        with (store.folder / NEEDLESS).open("a") as log:
            log.write(f"{sum(store.has(identity(config)) for config in configs)}\n")
        return run_pack(configs, options)

    store.folder.mkdir(parents=True, exist_ok=True)
    return execute_pack(job, progress, noted)


def swept(site: Site, packs: Sequence[Sequence[TrialConfig]], launch: Launch, **resources: Any) -> RunSummary:
    """The packs through the real runner."""
    plan = planned(packs, **resources)
    return run(plan, workspace=site.workspace, results=site.results, launch=launch, work=counted)


def same_bits(site: Site, configs: Iterable[TrialConfig]) -> bool:
    """Whether these trials have the tables that they get in a folder of their own, with nothing else around."""
    configs = list(configs)
    alone = replace(site, results=site.results / "alone")
    swept(alone, [[config] for config in configs], INLINE)
    return all(_equal(site.store.tables(name), alone.store.tables(name)) for name in map(identity, configs))


def _equal(ours: dict[str, pd.DataFrame], theirs: dict[str, pd.DataFrame]) -> bool:
    return all(ours[table].equals(theirs[table]) for table in theirs)
