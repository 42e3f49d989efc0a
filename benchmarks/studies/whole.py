"""A study from its file to its report, as ``memsweep sweep`` does it, with a stopwatch at each stage."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.harness import ROOT
from benchmarks.scale.proc import consumed
from benchmarks.studies.stages import Stages
from memsweep.config.load.study import load_study
from memsweep.config.schema.study import SweepConfig
from memsweep.report import build
from memsweep.sweep.backend import Work
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.runner import run
from memsweep.sweep.planning.plan import Plan, identified, make_plan, pack_of
from memsweep.sweep.planning.plan_file import write_plan
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.results import Store
from memsweep.sweep.tracking import Tracker
from memsweep.sweep.tracking.uri import tracking_uri
from memsweep.sweep.worker.execute import execute_pack
from memsweep.sweep.worker.timing import Profile

T = TypeVar("T")


@dataclass(frozen=True)
class Whole:
    """The time and memory that a study took.

    Attributes:
        trials, jobs: rows of the grid, and the packs that they ran in.
        stages: stage -> wall-clock seconds, in order: configs (from the file to checked rows), identities, packs,
            tracker (MLflow's database and the sweep's own run), run (workers, store and mirror), report, mirror (what
            MLflow had not taken yet).
        profile: of the run.
        memory: largest resident memory of the driver after the run and after the report, MiB.
        page: size of the report's page, bytes.
        cpu: CPU seconds of all processes, from the study's file to the report and MLflow's last run.
    """

    trials: int
    jobs: int
    stages: dict[str, float]
    profile: Profile
    memory: tuple[float, float]
    page: int
    cpu: float


def whole(
    study: str,
    overrides: tuple[str, ...],
    results: Path,
    *,
    every: int = 1,
    apart: bool = False,
    work: Work = execute_pack,
    inline: bool = False,
) -> Whole:
    """Run a study in an empty results folder.

    Args:
        study: name or path of the study file.
        overrides: in Hydra's grammar.
        results: the folder.
        every: only every so many-th trial.
        apart: each trial is a job of its own, as trials of models that do not pack are where each takes long.
        work: what a worker does with a job.
        inline: without Ray.

    Raises:
        RuntimeError: a trial has no result, or something is not in MLflow.
    """
    with consumed() as cpu:
        found = _whole(study, overrides, results, every, apart, work, inline)
        return replace(found, cpu=cpu())


def _whole(
    study: str, overrides: tuple[str, ...], results: Path, every: int, apart: bool, work: Work, inline: bool
) -> Whole:
    stages = Stages()
    sweep, plan = _planned(study, overrides, every, apart, stages)
    store = Store(results / folder_name(sweep.name))
    write_plan(store.folder, plan, {})
    tracker = Tracker(tracking_uri(None, results), results, sweep.name)
    stages.ended("tracker")

    done = run(
        plan,
        workspace=ROOT,
        results=results,
        launch=Launch(inline=inline),
        on_result=lambda name: tracker.log_stored([name]),
        work=work,
    )
    stages.ended("run")
    memory = _memory()
    paths = build(store.folder)
    stages.ended("report")
    complaint = tracker.finish("done", patience=120.0)
    stages.ended("mirror")
    if complaint or done.failed or len(done.finished) < len(plan.trials):
        failures = [failure["error"] for failure in done.failed.values()]
        raise RuntimeError(f"{len(done.finished)} of {len(plan.trials)} trials finished. {complaint} {failures[:1]}")
    size = paths.page.stat().st_size
    return Whole(len(plan.trials), len(plan.packs), stages.seconds, done.profile, (memory, _memory()), size, 0.0)


def _planned(
    study: str, overrides: tuple[str, ...], every: int, apart: bool, stages: Stages
) -> tuple[SweepConfig, Plan]:
    sweep = load_study(study, overrides, ROOT)
    sweep = replace(sweep, rows=sweep.rows[::every])
    stages.ended("configs")
    trials = identified(sweep)
    stages.ended("identities")
    plan = make_plan(sweep, trials, set())
    if apart:
        plan = replace(plan, packs=tuple(pack_of([trial]) for trial in plan.trials))
    stages.ended("packs")
    return sweep, plan


def _memory() -> float:
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def in_a_process(function: Callable[..., T], *arguments: Any) -> T:
    """Call it in a new process, whose largest memory is then its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def as_json(found: Whole) -> str:
    """Everything, for a look at one run."""
    return json.dumps({**vars(found), "profile": vars(found.profile)}, indent=1)
