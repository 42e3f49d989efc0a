"""The commands that train nothing: plan, status, and sync, which writes to MLflow what it lacks."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep import registry
from memsweep.commands import console
from memsweep.documents import Answer
from memsweep.errors import MemsweepError, filled
from memsweep.gate import display
from memsweep.recurrence.compiled.expected import nothing_is_trained
from memsweep.studies.locations import find_study, store_of, stored_plan
from memsweep.sweep.estimate.nodes import offered
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.typed import workspace_of

if TYPE_CHECKING:
    from memsweep.sweep.planning.plan_file import StoredPlan
    from memsweep.sweep.store.results import Store

WATCH_SECONDS = 2.0
CLEAR = "\x1b[H\x1b[2J"
"""Takes a terminal's cursor home and empties its screen."""


def plan(args: argparse.Namespace) -> Answer:
    """Says what ``sweep`` would do; see ``_plan``."""
    with nothing_is_trained():
        return _plan(args)


def _plan(args: argparse.Namespace) -> Answer:
    """Says what ``sweep`` would do: trials, reuse, packs, resources, expected hours; writes only what it measured."""
    from memsweep.config.load.study import load_study

    study = load_study(args.study, args.overrides, Path(args.workspace), args.discover, console.trust_of(args))
    results, node = Location.at(args.results), offered(args.node)

    # behind the refusals of a study, which do not wait for them
    from memsweep.commands.answers.plan import expected_item, plan_document
    from memsweep.studies.preview import preview
    from memsweep.sweep.estimate.estimate import BENCHMARK_SECONDS

    made = preview(study, results, no_reuse=args.no_reuse)
    document = plan_document(made) if args.json else None  # of a large grid it takes a while
    left = any(wave.packs for wave in made.waves)
    if document is None:
        console.print_plan(made, verbose=args.verbose, whole=args.all, estimated=left)
    if left:
        seconds = 0.0 if args.no_probe else BENCHMARK_SECONDS
        if seconds and sys.stderr.isatty():
            told = f"measuring, {seconds:.0f} s of the processor once it has started (--no-probe leaves it out) ..."
            console.say_sentence(told, file=sys.stderr)
        sys.stdout.flush()
        guess, stored = made.estimate(seconds, args.workspace), _bytes_of_a_trial(store_of(results, study.name))
        if document is None:
            inline = made.placement is not None and made.placement.inline
            console.print_estimate(guess, stored, probed=seconds > 0, inline=inline)
            if node is not None:
                console.print_nodes(guess, node)
        else:
            document["expected"] = expected_item(study, guess, stored, node, probed=seconds > 0)
    return Answer(document or {})


def _bytes_of_a_trial(store: Store) -> tuple[float, float]:
    """Mean bytes of a stored result: of all its files, and of its weights among them; 0 where there is none."""
    from memsweep.sweep.store.layout import WEIGHTS
    from memsweep.sweep.store.tables import names

    trials = max(1, len(store.identities()))
    sizes = {kind: sum(store.location.names(kind).values()) / trials for kind in ("records", *names(), WEIGHTS)}
    return sum(sizes.values()), sizes[WEIGHTS]


def status(args: argparse.Namespace) -> Answer:
    """Says the state of every trial of a study, and which process runs it; with --watch until none does."""
    from memsweep.commands.answers.status import print_status
    from memsweep.studies.status import read_status

    if args.watch and args.json:
        raise MemsweepError("--watch is for readers at a terminal, --json for programs: leave one of them out.")
    shown, store = "", find_study(args.study, Location.at(args.results))
    made = stored_plan(store).provenance
    where = workspace_of(made, store.location), str(made.get("address") or ""), bool(made.get("job"))
    while True:
        document = read_status(store)
        if not args.json:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                print_status(document, store.location, *where)
            text = filled(printed.getvalue(), sys.stdout)
            if text != shown:
                if args.watch and sys.stdout.isatty():
                    display(sys.stdout).write(CLEAR)
                print(text, end="", flush=True)
                shown = text
        if not args.watch or document["running"] is None:
            return Answer(document)
        try:
            time.sleep(WATCH_SECONDS)
        except KeyboardInterrupt:
            return Answer(document)


def sync(args: argparse.Namespace) -> Answer:
    """Writes to MLflow every stored result that it lacks; exit code 1 where something is still missing."""
    from memsweep.report.publish import build
    from memsweep.report.tracked import study_run_of, verdicts_of
    from memsweep.sweep.store.lease import hold_lease
    from memsweep.sweep.tracking import sync as bring_up

    store = find_study(args.study, Location.at(args.results))
    registry.discover_when_asked("memsweep.models.parameterizations")  # whose slopes the report shows
    made = stored_plan(store)
    with hold_lease(store.location, lambda: None):
        ended, report = _ending(store, made), build(store.location)
        complaint = bring_up(
            store.location.parent,
            made.study,
            made.rows,
            {**made.tracking, "description": made.description},
            ended,
            report.folder,
            *((verdicts_of(report.contents), study_run_of(report.contents)) if ended != "interrupted" else ()),
        )
    document = {"study": made.study, "complete": not complaint, "lacks": complaint or None}
    if complaint:
        console.say_sentence(complaint, file=sys.stderr)
        return Answer(document, 1)
    return Answer(document, text=f"MLflow has all that is stored of {made.study}")


def _ending(store: Store, made: StoredPlan) -> str:
    """How a sweep ended; a search between two rounds counts as interrupted."""
    from memsweep.search import history
    from memsweep.sweep.store.journal import ending, read_statuses

    search = history.read(store.location, made)
    ended = ending(read_statuses(store.location), made.rows)
    return "interrupted" if ended == "done" and search is not None and not search.ended else ended
