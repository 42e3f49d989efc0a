"""What the verbs of the command line print: plans, endings, paths."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memsweep.report import ReportPaths
    from memsweep.sweep.phases import Profile
    from memsweep.sweep.plan import Plan
    from memsweep.sweep.runner import RunSummary


def print_plan(made: Plan, here: set[str], elsewhere: Mapping[str, Path]) -> None:
    """Every row with what varies and what will become of it, then the work that is left."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from memsweep.config.canonical import flatten, to_dict
    from memsweep.config.protocols import MATCHED

    flat = [flatten(to_dict(trial.config)) for trial in made.trials]
    varied = [key for key in flat[0] if len({repr(row.get(key)) for row in flat}) > 1]
    pack_of = {trial.identity: number for number, pack in enumerate(made.packs, 1) for trial in pack.trials}
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("identity", *varied, "state"):
        table.add_column(name)
    for trial, row in zip(made.trials, flat, strict=True):
        if trial.identity in here:
            state = "done"
        elif trial.identity in elsewhere:
            state = f"reused from {elsewhere[trial.identity].name}"
        else:
            state = f"to run, pack {pack_of[trial.identity]}"
        table.add_row(trial.identity[:12], *(str(row.get(key, "")) for key in varied), state)
    console = Console(markup=False, width=None if sys.stdout.isatty() else 160)
    console.print(table)
    whole = sum(pack.cost for pack in made.packs) or 1.0
    shares = ", ".join(f"{pack.cost / whole:.0%} ({len(pack.trials)} trials)" for pack in made.packs[:8])
    more = f" and {len(made.packs) - 8} more" if len(made.packs) > 8 else ""
    left = len(made.trials) - len(made.done)
    replicas = sum(trial.config.training.seeds for pack in made.packs for trial in pack.trials)
    resources = made.resources
    print(f"study {made.study}: {len(made.trials)} trials, {len(made.done)} done or reused, {left} to run")
    if made.protocol != MATCHED:
        print(f"protocol: {made.protocol}, under the study's own settings")
    print(
        f"to run: {replicas} replicas in {len(made.packs)} packs" + (f"; work shares {shares}{more}" if shares else "")
    )
    print(f"each pack asks for {resources.cpus:g} CPU, {resources.gpus:g} GPU")


def print_end(made: Plan, summary: RunSummary, paths: ReportPaths, seconds: float) -> None:
    """The verdicts, what was done, what failed and why, and where to look."""
    from memsweep.report import table_text
    from memsweep.sweep.view import duration

    finished = len(made.done) + len(summary.finished)
    print()
    print(table_text(paths))
    reused = f", {len(made.done)} of them reused" if made.done else ""
    print(f"{finished}/{len(made.trials)} done{reused}; {duration(seconds)}")
    if summary.finished:
        print(profile_text(summary.profile))
    if summary.diverged:
        print(f"{summary.diverged} diverged: their errors are inf in the report")
    for identity, failure in list(summary.failed.items())[:5]:
        print(f"{failure['outcome']}: {identity}: {failure['error'].splitlines()[0][:300]}", file=sys.stderr)
        print(failure["traceback"], file=sys.stderr)
    if len(summary.failed) > 5:
        print(f"{len(summary.failed) - 5} more failed: the report has every traceback", file=sys.stderr)
    print(f"report:    {shown(paths.page)}")
    print(f"verdicts:  {shown(paths.verdicts)}")


def profile_text(profile: Profile) -> str:
    """Where the time went: ``work 93 % (training 71, perturbation 20, storing 2), scheduling and idle 7 %``."""
    from memsweep.sweep.phases import WORK

    shares = {name: round(100 * profile.share(name)) for name in WORK}
    largest = sorted((name for name in WORK if shares[name]), key=lambda name: -shares[name])
    parts = ", ".join(f"{name} {shares[name]}" for name in largest)
    idle = round(100 * profile.scheduling)
    return f"time: work {100 - idle} %{f' ({parts})' if parts else ''}, scheduling and idle {idle} %"


def print_tracking(uri: str, results: Path, experiment: str | None) -> None:
    """How to see the runs in MLflow."""
    page = f"/#/experiments/{experiment}/runs" if experiment else ""
    if not uri.startswith("sqlite"):
        print(f"MLflow:    {uri}{page if uri.startswith('http') else ''}")
        return
    folder = "" if results == Path("results").resolve() else f" RESULTS={shlex.quote(shown(results))}"
    print(f"MLflow UI: make ui{folder}, then http://127.0.0.1:5000{page}")
    print(f"           (or: mlflow ui --host 127.0.0.1 --workers 1 --backend-store-uri {uri})")


def shown(path: Path) -> str:
    """A path as short as it can be said from the current folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
