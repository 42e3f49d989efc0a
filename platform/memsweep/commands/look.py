"""The verbs that look: plan, status, report; and sync, which brings MLflow up to the store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep import console, registry
from memsweep.commands.stored import find_study, store_of, stored_plan
from memsweep.errors import MemsweepError
from memsweep.sweep.reusable import reusable
from memsweep.sweep.storage import Place

if TYPE_CHECKING:
    from memsweep.config.schema import SweepConfig
    from memsweep.sweep.plan_file import StoredPlan
    from memsweep.sweep.store import Store
    from memsweep.sweep.waves import Wave


def plan(args: argparse.Namespace) -> int:
    """Print what ``sweep`` would do: rows, reuse, packs, resources, and what it would take. Writes nothing."""
    from memsweep.config.compose import load_study
    from memsweep.sweep.journal import read_rows
    from memsweep.sweep.plan import identified, make_plan
    from memsweep.sweep.reuse import reasons
    from memsweep.sweep.waves import waves

    study = load_study(args.study, args.overrides, Path(args.workspace))
    results = Place.at(args.results)
    store = store_of(results, study.name)
    if study.search is not None:
        expected = waves(study, ())
        console.print_search_plan(study, expected, len(store.identities()))
    else:
        trials = identified(study)
        reuse = reusable(trials, store, results, no_reuse=args.no_reuse)
        why = {} if args.no_reuse else reasons(trials, reuse.all, store, results, reuse.damaged, read_rows(store.place))
        made = make_plan(study, trials, reuse.all)
        console.print_plan(made, set(reuse.here), reuse.elsewhere, why, verbose=args.verbose)
        expected = waves(study, made.packs)
    if any(wave.packs for wave in expected):
        _print_estimate(study, expected, store, args)
    return 0


def _print_estimate(study: SweepConfig, expected: Sequence[Wave], store: Store, args: argparse.Namespace) -> None:
    from memsweep.sweep.estimate import PROBE_SECONDS, estimate

    seconds = 0.0 if args.no_probe else PROBE_SECONDS
    if seconds and sys.stderr.isatty():
        print(f"measuring, at most {seconds:.0f} s (--no-probe leaves it out) ...", file=sys.stderr)
    sys.stdout.flush()
    found = estimate(expected, study.resources, Path(args.workspace), seconds)
    console.print_estimate(found, _bytes_of_a_row(store), probed=seconds > 0)


def _bytes_of_a_row(store: Store) -> float:
    """Mean bytes of a stored result, record and tables; 0 where there is none."""
    from memsweep.sweep.tables import TABLES

    rows = len(store.identities())
    return sum(sum(store.place.names(kind).values()) for kind in ("records", *TABLES)) / rows if rows else 0.0


def status(args: argparse.Namespace) -> int:
    """Print where every row of a study stands, and who is at work on it. Writes nothing."""
    from memsweep.search import history
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
    console.print_status(made, rows, who, failures, damaged, history.read(store.place, made))
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
            _ending(store, made),
            reports.build(store.place).folder,
            print,
        )
    if done.complaint:
        print(done.complaint, file=sys.stderr)
    return 1 if done.complaint else 0


def _ending(store: Store, made: StoredPlan) -> str:
    """How a sweep ended; a search between two rounds has not."""
    from memsweep.search import history
    from memsweep.sweep.journal import ending, read_rows

    search = history.read(store.place, made)
    ended = ending(read_rows(store.place), made.rows)
    return "interrupted" if ended == "done" and search is not None and not search.ended else ended
