"""The verbs of the command line that run studies: plan, sweep, report."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import console, registry

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
    console.print_plan(made, here, elsewhere)
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
    console.print_end(made, summary, paths, time.monotonic() - began)
    console.print_tracking(tracker.uri, results, tracker.experiment_id)
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

    registry.discover(Path(args.workspace))  # the report asks parameterizations what theory says of them
    folder = Path(args.study)
    if not (folder / "records").is_dir():
        folder = Path(args.results) / folder_name(args.study)
    paths = _report(folder)
    print(table_text(paths))
    print(f"report: {console.shown(paths.page)}")
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
    live = LiveVerdicts(((trial.identity, trial.config) for trial in made.trials), store.tables)
    for identity in made.done:
        live.add(identity)
    with open_view(made.study) as view:

        def on_result(record: dict[str, Any], tables: dict[str, pd.DataFrame]) -> None:
            tracker.log_trial(record, tables)
            for line in live.add(record["identity"]):
                view.say(line)

        summary = run(
            made,
            workspace=workspace,
            results=results,
            launch=Launch(inline=args.inline, address=args.address, dashboard=args.dashboard),
            on_progress=view.update,
            on_result=on_result,
        )
    if not summary.interrupted:  # what ended needs no checkpoint, and what failed begins anew
        shutil.rmtree(store.folder / "checkpoints", ignore_errors=True)
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

    params: dict[str, Any] = {"trials": len(sweep_config.rows), "protocol": sweep_config.protocol}
    params |= {f"grid.{path}": json.dumps(values, default=str) for path, values in sweep_config.grid.items()}
    return params | {f"resources.{name}": value for name, value in vars(sweep_config.resources).items()}
