"""What every verb that computes does: hold the lease, say what will be done, write the plan, run, report."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import console
from memsweep.commands.places import join_cluster, refuse_lost
from memsweep.commands.stored import store_of, stored_plan
from memsweep.errors import MemsweepError
from memsweep.sweep.journal import Row, ending, read_rows
from memsweep.sweep.reusable import Reuse, reusable
from memsweep.sweep.storage import Place

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.config.schema import SweepConfig
    from memsweep.report import ReportPaths
    from memsweep.sweep.plan import Plan, PlannedTrial
    from memsweep.sweep.plan_file import StoredPlan
    from memsweep.sweep.runner import RunSummary
    from memsweep.sweep.store import Store
    from memsweep.sweep.tracking import Tracker

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells use it."""


@dataclass(frozen=True)
class Intent:
    """What a verb wants.

    Attributes:
        sweep: the study.
        trials: its rows.
        only: run none but these; None for all that have no result.
        poisoned_too: run also what has failed in the same way too often.
        no_reuse: compute every row anew.
        tracking: params and tags of the sweep's own run in MLflow; None for those of a new one.
        plan: the stored plan that this goes on with; None where there need be none.
    """

    sweep: SweepConfig
    trials: tuple[PlannedTrial, ...]
    only: frozenset[str] | None = None
    poisoned_too: bool = False
    no_reuse: bool = False
    tracking: Mapping[str, Any] | None = None
    plan: StoredPlan | None = None


@dataclass
class _Loss:
    """Whether the lease was lost; stops the run as Ctrl-C would."""

    happened: bool = False

    def __call__(self) -> None:
        self.happened = True
        os.kill(os.getpid(), signal.SIGTERM)  # not SIGINT, which a shell's background job ignores


def carry_out(intent: Intent, args: argparse.Namespace, results: Place) -> int:
    """Do what a verb wants, in a results folder; its exit code.

    Raises:
        HeldError: another driver is at work on the study.
        MemsweepError: the results cannot be written, or the resources are not there; nothing has been started.
    """
    from memsweep.sweep.lease import held
    from memsweep.sweep.preflight import preflight
    from memsweep.sweep.signals import terminate_like_ctrl_c
    from memsweep.sweep.tracking.place import tracking_uri

    join_cluster(args)
    _refuse_impossible(intent, args)
    refuse_lost(args, results)
    tracking_uri(None, results)  # a wrong one is refused here, before anything is written
    store = store_of(results, intent.sweep.name)
    preflight(results)
    loss = _Loss()
    with terminate_like_ctrl_c(), held(store.place, loss):
        try:
            code = _drive(intent, args, results, store)
        except KeyboardInterrupt:
            if not loss.happened:
                raise
            code = INTERRUPTED
    if loss.happened:
        raise MemsweepError(
            "this process was silent for so long that another driver took its sweep over. What it had finished is "
            f"stored; see: memsweep status {intent.sweep.name}"
        )
    return code


def _drive(intent: Intent, args: argparse.Namespace, results: Place, store: Store) -> int:
    from memsweep.sweep import provenance
    from memsweep.sweep.plan import make_plan
    from memsweep.sweep.plan_file import write_plan
    from memsweep.sweep.tracking import Tracker

    began = time.monotonic()
    if intent.plan is not None and intent.plan.serial != stored_plan(store).serial:
        raise MemsweepError("another command has changed the plan of this study just now. Run the same command again.")
    workspace = Path(args.workspace).resolve()
    rows = read_rows(store.place)
    reuse = reusable(intent.trials, store, results, no_reuse=intent.no_reuse)
    left_alone = _left_alone(intent, rows, reuse)
    unwanted = {t.identity for t in intent.trials if intent.only is not None and t.identity not in intent.only}
    made = make_plan(intent.sweep, intent.trials, reuse.all, left_alone | unwanted)
    console.print_difference(made, rows, reuse, left_alone, len(unwanted - reuse.all))
    revision = provenance.code_revision(workspace)
    tracking = intent.tracking or {"params": _sweep_params(intent.sweep), "tags": {"code_revision": revision}}
    write_plan(store.place, made, {"started": provenance.now(), "code_revision": revision}, tracking)
    _settle(made, store, reuse, anew=intent.no_reuse)
    tracker = Tracker.open(
        None,
        results,
        intent.sweep.name,
        intent.sweep.description,
        params=tracking["params"],
        tags=tracking["tags"],
    )
    try:
        tracker.log_stored(trial.identity for trial in made.trials if trial.identity in made.done)
        summary = _run(made, store, tracker, args, workspace, results)
        paths = _report(store)
    except BaseException as error:  # the sweep's own run must not look as if it were still running
        tracker.finish("interrupted" if isinstance(error, KeyboardInterrupt) else "failed", patience=5.0)
        raise
    tracker.log_report(paths.folder)
    complaint = tracker.finish(ending(read_rows(store.place), (trial.identity for trial in made.trials)))
    console.print_end(made, summary, paths, time.monotonic() - began)
    console.print_tracking(tracker.uri, results, tracker.experiment_id)
    _say_what_stopped_it(summary, console.word(intent.sweep.name))
    if complaint:
        print(complaint, file=sys.stderr)
    stopped = summary.interrupted and not summary.lost
    return INTERRUPTED if stopped else 1 if summary.lost or summary.failed or left_alone else 0


def _say_what_stopped_it(summary: RunSummary, study: str) -> None:
    kept = f"what is finished is kept. Run the same command again to go on, or: memsweep resume {study}"
    if summary.lost:
        print(f"{summary.lost}; {kept}", file=sys.stderr)
    elif summary.interrupted:
        print(f"interrupted: {kept}")


def _left_alone(intent: Intent, rows: Mapping[str, Row], reuse: Reuse) -> frozenset[str]:
    """Rows that have failed in the same way so often that another try would be in vain."""
    if intent.poisoned_too or intent.no_reuse:
        return frozenset()
    names = (trial.identity for trial in intent.trials)
    return frozenset(n for n in names if n not in reuse.all and n in rows and rows[n].poisoned)


def _settle(made: Plan, store: Store, reuse: Reuse, *, anew: bool) -> None:
    """Make the study's folder what the plan says: copy what is reused, set aside what is damaged or computed anew."""
    from memsweep.sweep.store import Store

    for identity in sorted(reuse.damaged):
        store.set_aside(identity)
    for identity, folder in reuse.elsewhere.items():
        store.adopt(Store(folder), identity)
    if anew:
        for identity in store.identities() & {trial.identity for trial in made.trials}:
            store.set_aside(identity)
        store.forget_checkpoints()


def _refuse_impossible(intent: Intent, args: argparse.Namespace) -> None:
    """On this machine alone, a request that it can never meet is refused before anything is written."""
    from memsweep.sweep.resources import slots, this_machine

    if args.address is None:
        slots(intent.sweep.resources, [this_machine(intent.sweep.resources)])


def _run(
    made: Plan, store: Store, tracker: Tracker, args: argparse.Namespace, workspace: Path, results: Place
) -> RunSummary:
    from memsweep.config.canonical import to_dict
    from memsweep.report.live import LiveVerdicts
    from memsweep.sweep.runner import Launch, run
    from memsweep.sweep.view import open_view

    launch = Launch(inline=args.inline, address=args.address, dashboard=args.dashboard)
    where = partial(run, made, workspace=workspace, results=results, launch=launch)
    if made.packs:
        live = LiveVerdicts(((trial.identity, trial.config) for trial in made.trials), store.tables)
        for identity in made.done:
            live.add(identity)
        with open_view(made.study) as view:

            def on_result(record: dict[str, Any], tables: dict[str, pd.DataFrame]) -> None:
                tracker.log_trial(record, tables)
                for line in live.add(record["identity"]):
                    view.say(line)

            summary = where(on_progress=view.update, on_result=on_result)
    else:
        summary = where()
    failures = store.failures()
    if {trial.identity for trial in made.trials} <= made.done | summary.finished.keys():  # what has ended needs none
        store.forget_checkpoints()
    configs = {trial.identity: trial.config for trial in made.trials}
    for identity, failure in failures.items():
        if identity in configs:
            tracker.log_failure(identity, failure, to_dict(configs[identity]))
    return summary


def _report(store: Store) -> ReportPaths:
    from memsweep import report as reports

    return reports.build(store.place)


def _sweep_params(sweep_config: SweepConfig) -> dict[str, Any]:
    """Flat settings of the sweep as a whole: the grid, axis by axis, and the resources."""
    params: dict[str, Any] = {"trials": len(sweep_config.rows), "protocol": sweep_config.protocol}
    params |= {f"grid.{path}": json.dumps(values, default=str) for path, values in sweep_config.grid.items()}
    return params | {f"resources.{name}": value for name, value in vars(sweep_config.resources).items()}
