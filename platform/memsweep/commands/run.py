"""What every verb that computes does: hold the lease, say what will be done, write the plan, run, report."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.commands import console
from memsweep.commands.live_verdicts import Judges
from memsweep.commands.locations import join_cluster, refuse_lost
from memsweep.commands.start import Intent, Start, begin, settle
from memsweep.commands.stored import store_of, stored_plan
from memsweep.errors import MemsweepError
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import ending, read_rows

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.config.schema.study import SweepConfig
    from memsweep.report import ReportPaths
    from memsweep.sweep.driver.runner import RunSummary
    from memsweep.sweep.planning.plan import Plan
    from memsweep.sweep.store.results import Store
    from memsweep.sweep.tracking import Tracker

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells use it."""


@dataclass
class _Loss:
    """Whether the lease was lost; stops the run as Ctrl-C would."""

    happened: bool = False

    def __call__(self) -> None:
        self.happened = True
        os.kill(os.getpid(), signal.SIGTERM)  # not SIGINT, which a shell's background job ignores


def carry_out(intent: Intent, args: argparse.Namespace, results: Location) -> int:
    """Do what a verb wants, in a results folder; its exit code.

    Raises:
        HeldError: another driver is at work on the study.
        MemsweepError: the results cannot be written, or the resources are not there; nothing has been started.
    """
    from memsweep.sweep.ray.session import import_ray
    from memsweep.sweep.signals import terminate_like_ctrl_c
    from memsweep.sweep.store.lease import held
    from memsweep.sweep.store.write_check import preflight
    from memsweep.sweep.tracking.uri import tracking_uri

    join_cluster(args)
    _refuse_impossible(intent, args)
    refuse_lost(args, results)
    tracking_uri(None, results)  # a wrong one is refused here, before anything is written
    store = store_of(results, intent.sweep.name)
    preflight(results)
    search = intent.sweep.search
    if search is not None and search.settings.scheduler.by_ray and not args.inline:
        import_ray(args.address)  # wanted before there is a session
    loss = _Loss()
    with terminate_like_ctrl_c(), held(store.location, loss):
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


def _drive(intent: Intent, args: argparse.Namespace, results: Location, store: Store) -> int:
    from memsweep.sweep.planning.plan_file import write_plan
    from memsweep.sweep.store.record import now
    from memsweep.sweep.tracking import Tracker
    from memsweep.sweep.worker import provenance

    began = time.monotonic()
    if intent.plan is not None and intent.plan.serial != stored_plan(store).serial:
        raise MemsweepError("another command has changed the plan of this study just now. Run the same command again.")
    rows = read_rows(store.location)
    start = begin(intent, store, results, rows)
    console.print_difference(start.plan, rows, start.reuse, start.left_alone, start.not_now)
    if start.searching is not None and start.searching.warmth:
        print(f"  {start.searching.warmth}")
    revision = provenance.code_revision(Path(args.workspace).resolve())
    tracking = intent.tracking or {"params": _sweep_params(intent.sweep), "tags": {"code_revision": revision}}
    written = partial(
        write_plan,
        store.location,
        provenance={"started": now(), "code_revision": revision},
        tracking=tracking,
        sweep=intent.sweep,
    )
    written(start.plan)
    settle(start, store, anew=intent.no_reuse)
    tracker = Tracker.open(
        None,
        results,
        intent.sweep.name,
        intent.sweep.description,
        params=tracking["params"],
        tags=tracking["tags"],
    )
    try:
        tracker.log_stored(trial.identity for trial in start.plan.trials if trial.identity in start.plan.done)
        summary = _run(start, store, tracker, args, results, written, _news(start, store, intent.sweep, args.optuna))
        paths = _report(store)
    except BaseException as error:  # the sweep's own run must not look as if it were still running
        tracker.finish("interrupted" if isinstance(error, KeyboardInterrupt) else "failed", patience=5.0)
        raise
    made = start.whole
    tracker.log_report(paths.folder)
    ended = ending(read_rows(store.location), (trial.identity for trial in made.trials))
    complaint = tracker.finish("interrupted" if ended == "done" and start.goes_on else ended)
    console.print_end(made, summary, paths, time.monotonic() - began)
    console.print_tracking(tracker.uri, results, tracker.experiment_id)
    left = len({trial.identity for trial in made.trials} - made.done - summary.finished.keys() - summary.failed.keys())
    console.print_stop(summary, left, intent.sweep.name)
    if complaint:
        print(complaint, file=sys.stderr)
    return _exit_code(summary, start)


def _exit_code(summary: RunSummary, start: Start) -> int:
    from memsweep.sweep.driver.limits import LIMIT_REACHED

    if summary.limit:
        return LIMIT_REACHED
    if summary.interrupted and not summary.lost:
        return INTERRUPTED
    return 1 if summary.lost or summary.failed or start.left_alone else 0


def _refuse_impossible(intent: Intent, args: argparse.Namespace) -> None:
    """On this machine alone, a request that it can never meet is refused before anything is written."""
    from memsweep.sweep.planning.resources import slots, this_machine

    if args.address is None:
        slots(intent.sweep.resources, [this_machine(intent.sweep.resources)])


def _run(
    start: Start,
    store: Store,
    tracker: Tracker,
    args: argparse.Namespace,
    results: Location,
    write: Callable[[Plan], None],
    news: Callable[[], list[str]],
) -> RunSummary:
    from memsweep.config.schema.canonical import to_dict
    from memsweep.sweep.driver.limits import Limits
    from memsweep.sweep.driver.progress_view import open_view
    from memsweep.sweep.driver.runner import Launch, run

    made, searching, judges = start.plan, start.searching, Judges(start, store)
    with open_view(made.study) as view:

        def on_result(record: dict[str, Any], tables: dict[str, pd.DataFrame]) -> None:
            tracker.log_trial(record, tables)
            for line in judges.add(record["identity"]):
                view.say(line)

        def on_rows(more: Plan, reused: Collection[str]) -> None:
            write(more)
            tracker.log_stored(reused)
            for line in (*news(), *judges.more()):
                view.say(line)

        summary = run(
            made,
            workspace=Path(args.workspace).resolve(),
            results=results,
            launch=Launch(inline=args.inline, address=args.address, dashboard=args.dashboard),
            limits=Limits(args.max_hours, args.max_trials, args.max_failures),
            on_progress=view.update,
            on_result=on_result,
            follow=searching.follow(start.left_alone, on_rows) if searching and not start.not_now else _nothing,
        )
    if start.ended(store.identities()):  # what has ended needs none
        store.forget_checkpoints()
        store.forget_states()
    configs = {trial.identity: trial.config for trial in start.whole.trials}
    for identity, failure in store.failures().items():
        if identity in configs:
            tracker.log_failure(identity, failure, to_dict(configs[identity]))
    return summary


def _news(start: Start, store: Store, sweep: SweepConfig, optuna: str | None) -> Callable[[], list[str]]:
    """What is said when a round of a search begins, which an Optuna storage is shown, too."""
    if (searching := start.searching) is None:
        return list
    from memsweep.commands.optuna_storage import mirror_of

    mirrored = mirror_of(optuna, sweep, store, searching) if optuna else list[str]
    return lambda: [*searching.news(), *mirrored()]


def _nothing(summary: RunSummary) -> None:
    """No plan follows the one of a grid."""


def _report(store: Store) -> ReportPaths:
    from memsweep import report as reports

    return reports.build(store.location)


def _sweep_params(sweep_config: SweepConfig) -> dict[str, Any]:
    """Flat settings of the sweep as a whole: the grid, axis by axis, the resources, the search."""
    from memsweep.config.schema.canonical import to_dict
    from memsweep.config.schema.search import Search
    from memsweep.config.search.sections import search_to_dict

    counted = "trials" if sweep_config.search is None else "cells"
    params: dict[str, Any] = {counted: len(sweep_config.rows), "protocol": sweep_config.protocol}
    params |= {f"grid.{path}": json.dumps(values, default=str) for path, values in sweep_config.grid.items()}
    params |= {f"resources.{name}": value for name, value in vars(sweep_config.resources).items()}
    for part, section in (("search", sweep_config.search), ("confirm", sweep_config.confirm)):
        if section is not None:
            written = search_to_dict(section) if isinstance(section, Search) else to_dict(section)
            params |= {f"{part}.{path}": json.dumps(value, default=str) for path, value in written.items()}
    return params
