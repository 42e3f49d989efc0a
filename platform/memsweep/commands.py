"""The verbs of the command line that run studies: plan, sweep, report.

Everything that prints is here and in ``cli``; everything that computes is below.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.config.schema import SweepConfig
    from memsweep.report import ReportPaths
    from memsweep.sweep.plan import Plan, PlannedTrial
    from memsweep.sweep.runner import RunSummary
    from memsweep.sweep.store import Store

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells use it."""


def plan(args: argparse.Namespace) -> int:
    """Print what ``sweep`` would do: rows, reuse, packs, resources. Writes nothing."""
    from memsweep.sweep.plan import identified, make_plan

    sweep_config = _load(args)
    store = _store(Path(args.results), sweep_config)
    trials = identified(sweep_config)
    here, elsewhere = _reusable(trials, store, Path(args.results), no_reuse=args.no_reuse)
    made = make_plan(sweep_config, trials, here | set(elsewhere))
    _print_plan(made, here, elsewhere)
    return 0


def sweep(args: argparse.Namespace) -> int:
    """Run a study: plan, train, measure, judge, report. Returns the exit code."""
    from memsweep.sweep import provenance
    from memsweep.sweep.plan import identified, make_plan
    from memsweep.sweep.plan_file import write_plan
    from memsweep.sweep.tracking import Tracker
    from memsweep.sweep.tracking.place import tracking_uri

    began = time.monotonic()
    sweep_config = _load(args)
    results, workspace = Path(args.results).resolve(), Path(args.workspace).resolve()
    store = _store(results, sweep_config)
    trials = identified(sweep_config)
    here, elsewhere = _reusable(trials, store, results, no_reuse=args.no_reuse)
    made = make_plan(sweep_config, trials, here | set(elsewhere))
    _refuse_impossible(made, args)
    uri = tracking_uri(None, results)  # a wrong one is refused here, before anything is written
    revision = provenance.code_revision(workspace)
    write_plan(store.folder, made, {"started": provenance.now(), "code_revision": revision})
    _settle(made, store, elsewhere)
    tracker = Tracker.open(
        uri,
        results,
        sweep_config.name,
        sweep_config.description,
        params=_sweep_params(sweep_config),
        tags={"code_revision": revision},
    )
    try:
        tracker.log_stored(trial.identity for trial in trials if trial.identity in made.done)
        summary = _run(made, store, tracker, args, workspace, results)
        paths = _report(store.folder)
    except BaseException as error:  # the sweep's own run must not look as if it were still running
        tracker.finish("interrupted" if isinstance(error, KeyboardInterrupt) else "failed", patience=5.0)
        raise
    tracker.log_report(paths.folder)
    ended = "interrupted" if summary.interrupted else "failed" if summary.failed else "done"
    complaint = tracker.finish(ended)
    _print_end(made, summary, paths, time.monotonic() - began)
    print(f"MLflow UI: {_ui_command(tracker.uri, results)}")
    if summary.interrupted:
        anew = " (without --no-reuse, which would begin anew)" if args.no_reuse else ""
        print(f"interrupted: what is finished is kept. Run the same command again to go on{anew}.")
    if complaint:
        print(complaint, file=sys.stderr)
    return INTERRUPTED if summary.interrupted else 1 if summary.failed else 0


def report(args: argparse.Namespace) -> int:
    """Make the report of a stored study anew and print its verdict table."""
    from memsweep.report import table_text
    from memsweep.sweep.store import folder_name

    folder = Path(args.study)
    if not (folder / "records").is_dir():
        folder = Path(args.results) / folder_name(args.study)
    paths = _report(folder)
    print(table_text(paths))
    print(f"report: {_shown(paths.page)}")
    return 0


def _load(args: argparse.Namespace) -> SweepConfig:
    from memsweep.config.compose import load_study

    return load_study(args.study, args.overrides, Path(args.workspace))


def _store(results: Path, sweep_config: SweepConfig) -> Store:
    """The study's results; a name that no folder can have is a mistake of the study."""
    from memsweep.errors import ConfigError, StoreError
    from memsweep.sweep.store import Store, folder_name

    try:
        return Store(results / folder_name(sweep_config.name))
    except StoreError as error:
        raise ConfigError([str(error)], "the study") from error


def _reusable(
    trials: tuple[PlannedTrial, ...], store: Store, results: Path, *, no_reuse: bool
) -> tuple[set[str], dict[str, Path]]:
    """Identities that need no work: those stored in this study, and those of other studies with their folders."""
    from memsweep.sweep.store import find_elsewhere

    if no_reuse:
        return set(), {}
    wanted = {trial.identity for trial in trials}
    here = wanted & store.identities()
    return here, find_elsewhere(results, wanted - here)


def _settle(made: Plan, store: Store, elsewhere: dict[str, Path]) -> None:
    """Make the study's folder what the plan says: copy what is reused, set aside what is computed anew."""
    from memsweep.sweep.store import Store

    for identity, folder in elsewhere.items():
        store.adopt(Store(folder), identity)
    anew = {trial.identity for trial in made.trials} - made.done
    for identity in store.identities() & anew:
        store.set_aside(identity)


def _refuse_impossible(made: Plan, args: argparse.Namespace) -> None:
    """On this machine alone, a request that it can never meet is refused before anything is written."""
    from memsweep.sweep.resources import slots, this_machine

    if made.packs and args.address is None:
        slots(made.resources, [this_machine(made.resources)])


def _run(
    made: Plan, store: Store, tracker: Any, args: argparse.Namespace, workspace: Path, results: Path
) -> RunSummary:
    from memsweep.report.live import LiveVerdicts
    from memsweep.sweep.runner import Launch, RunSummary, run
    from memsweep.sweep.view import open_view

    if not made.packs:
        return RunSummary()
    live = LiveVerdicts((trial.identity, trial.config) for trial in made.trials)
    for identity in made.done:
        live.add(identity, store.tables(identity))
    with open_view(made.study) as view:

        def on_result(record: dict[str, Any], tables: dict[str, pd.DataFrame]) -> None:
            tracker.log_trial(record, tables)
            for line in live.add(record["identity"], tables):
                view.say(line)

        summary = run(
            made,
            workspace=workspace,
            results=results,
            launch=Launch(inline=args.inline, address=args.address, dashboard=args.dashboard),
            on_progress=view.update,
            on_result=on_result,
        )
    from memsweep.config.canonical import to_dict

    configs = {trial.identity: trial.config for trial in made.trials}
    for identity, failure in summary.failed.items():
        tracker.log_failure(identity, failure, to_dict(configs[identity]))
    return summary


def _report(folder: Path) -> ReportPaths:
    from memsweep import report as reports

    return reports.build(folder)


def _sweep_params(sweep_config: SweepConfig) -> dict[str, Any]:
    """Flat settings of the sweep as a whole: the grid, axis by axis, and the resources."""
    import json

    params: dict[str, Any] = {"trials": len(sweep_config.rows)}
    params |= {f"grid.{path}": json.dumps(values, default=str) for path, values in sweep_config.grid.items()}
    return params | {f"resources.{name}": value for name, value in vars(sweep_config.resources).items()}


def _print_plan(made: Plan, here: set[str], elsewhere: dict[str, Path]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from memsweep.config.canonical import flatten, to_dict

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
    print(
        f"to run: {replicas} replicas in {len(made.packs)} packs" + (f"; work shares {shares}{more}" if shares else "")
    )
    print(f"each pack asks for {resources.cpus:g} CPU, {resources.gpus:g} GPU")


def _print_end(made: Plan, summary: RunSummary, paths: ReportPaths, seconds: float) -> None:
    from memsweep.report import table_text
    from memsweep.sweep.view import duration

    finished = len(made.done) + len(summary.finished)
    print()
    print(table_text(paths))
    reused = f", {len(made.done)} of them reused" if made.done else ""
    print(f"{finished}/{len(made.trials)} done{reused}; {duration(seconds)}")
    if summary.diverged:
        print(f"{summary.diverged} diverged: their errors are inf in the report")
    for identity, failure in list(summary.failed.items())[:5]:
        print(f"{failure['outcome']}: {identity}: {failure['error'].splitlines()[0][:300]}", file=sys.stderr)
        print(failure["traceback"], file=sys.stderr)
    if len(summary.failed) > 5:
        print(f"{len(summary.failed) - 5} more failed: the report has every traceback", file=sys.stderr)
    print(f"report:    {_shown(paths.page)}")
    print(f"verdicts:  {_shown(paths.verdicts)}")


def _ui_command(uri: str, results: Path) -> str:
    if not uri.startswith("sqlite"):
        return uri
    folder = "" if results == Path("results").resolve() else f" RESULTS={shlex.quote(_shown(results))}"
    return f"make ui{folder}, or: mlflow ui --host 127.0.0.1 --workers 1 --backend-store-uri {uri}"


def _shown(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
