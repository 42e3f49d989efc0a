"""The verbs that look: plan, status, report; and sync, which brings MLflow up to the store."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from memsweep import console, registry
from memsweep.commands.stored import find_study, store_of, stored_plan
from memsweep.errors import MemsweepError
from memsweep.sweep.reusable import reusable
from memsweep.sweep.storage import Place


def plan(args: argparse.Namespace) -> int:
    """Print what ``sweep`` would do: rows, reuse, packs, resources. Writes nothing."""
    from memsweep.config.compose import load_study
    from memsweep.sweep.journal import read_rows
    from memsweep.sweep.plan import identified, make_plan
    from memsweep.sweep.reuse import reasons

    study = load_study(args.study, args.overrides, Path(args.workspace))
    results = Place.at(args.results)
    store = store_of(results, study.name)
    trials = identified(study)
    reuse = reusable(trials, store, results, no_reuse=args.no_reuse)
    why = {} if args.no_reuse else reasons(trials, reuse.all, store, results, reuse.damaged, read_rows(store.place))
    made = make_plan(study, trials, reuse.all)
    console.print_plan(made, set(reuse.here), reuse.elsewhere, why, verbose=args.verbose)
    return 0


def status(args: argparse.Namespace) -> int:
    """Print where every row of a study stands, and who is at work on it. Writes nothing."""
    from memsweep.sweep.journal import read_rows, settled
    from memsweep.sweep.lease import holder

    store = find_study(args.study, Place.at(args.results))
    made = stored_plan(store)
    stored = store.identities() & made.rows.keys()
    damaged, failures = store.faults(stored), store.failures()
    outcomes = store.outcomes(stored - damaged.keys())
    rows, who = read_rows(store.place), holder(store.place)
    if who is None:  # nobody runs what a dead driver left running
        rows = settled(rows, made.rows, outcomes, failures)
    console.print_status(made, rows, who, failures, damaged)
    return 0


def report(args: argparse.Namespace) -> int:
    """Make the report of a stored study anew and print its verdict table."""
    from memsweep import report as reports

    registry.discover(Path(args.workspace))  # the report asks parameterizations what theory says of them
    paths = reports.build(find_study(args.study, Place.at(args.results)).place)
    print(reports.table_text(paths))
    print(f"report: {console.shown(paths.page)}")
    return 0


def sync(args: argparse.Namespace) -> int:
    """Bring MLflow to what the store holds; the exit code says whether all of it is there now."""
    from memsweep import report as reports
    from memsweep.sweep.journal import ending, read_rows
    from memsweep.sweep.lease import held
    from memsweep.sweep.tracking import sync as bring_up

    registry.discover(Path(args.workspace))
    store = find_study(args.study, Place.at(args.results))
    made = stored_plan(store)
    if not made.tracking:
        raise MemsweepError(
            f"the plan of {made.study!r} does not say which run of MLflow is its own: an older version wrote it. Run "
            "its study file once more (memsweep sweep STUDY); finished results are reused, and mirrored."
        )
    with held(store.place, lambda: None):
        done = bring_up(
            None,
            store.place.parent,
            made.study,
            {**made.tracking, "description": made.description},
            list(made.rows),
            made.rows,
            ending(read_rows(store.place), made.rows),
            reports.build(store.place).folder,
            print,
        )
    if done.complaint:
        print(done.complaint, file=sys.stderr)
    return 1 if done.complaint else 0
