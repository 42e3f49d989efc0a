"""The commands that compute: sweep, resume, extend, retry."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.commands import console
from memsweep.config.load.study import load_study
from memsweep.documents import Answer
from memsweep.errors import MemsweepError
from memsweep.studies.locations import Place, find_study, names_folder, plan_to_run, shown_page
from memsweep.studies.run import Run
from memsweep.studies.trials import Request, added, more_steps
from memsweep.sweep.driver.launch import Launch, Limits
from memsweep.sweep.driver.progress import phase
from memsweep.sweep.planning.plan import identified
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import State, read_statuses
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.typed import typed

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig
    from memsweep.sweep.planning.plan import PlannedTrial
    from memsweep.sweep.planning.plan_file import StoredPlan
    from memsweep.sweep.store.results import Store


def sweep(args: argparse.Namespace) -> Answer:
    """Runs a study: plan, train, measure, judge, report."""
    study = _read(args)
    request = Request(
        study,
        _trials(study),
        no_reuse=args.no_reuse,
        drop_extended=args.drop_extended,
        overrides=tuple(args.overrides),
        source=args.study,
    )
    return run(request, args, Location.at(args.results))


def resume(args: argparse.Namespace) -> Answer:
    """Finishes the stored plan of a study; needs no study file."""
    store, plan = _stored(args)
    study = _unchanged(plan, store.location.parent)
    return run(Request(study, _trials(study), tracking=plan.tracking, plan=plan), args, store.location.parent)


def retry(args: argparse.Namespace) -> Answer:
    """Runs the trials of a study that failed, and no others."""
    store, plan = _stored(args)
    study = _unchanged(plan, store.location.parent)
    statuses, stored = read_statuses(store.location), store.identities()
    ended_badly = {State.FAILED, State.OUT_OF_MEMORY}
    badly = {name for name, status in statuses.items() if status.state in ended_badly or status.given_up}
    failed = badly | store.failures().keys()
    only = frozenset(failed - stored)
    request = Request(study, _trials(study), only, retry_all=args.force, tracking=plan.tracking, plan=plan)
    return run(request, args, store.location.parent)


def extend(args: argparse.Namespace) -> Answer:
    """Adds trials to the stored plan of a study, and runs those without a result."""
    from memsweep.commands.extend import extend_grid, extend_search

    wider = _read(args)
    results = Location.at(args.results)
    plan = plan_to_run(find_study(wider.name, results), console.trust_of(args), wider.rows)
    before = _unchanged(plan, results)
    if before.search or wider.search:
        study = extend_search(before, wider, extended=bool(plan.extended))
    else:
        earlier = [row for name, row in zip(plan.rows, before.rows, strict=True) if name in plan.extended]
        study = extend_grid(before, wider, earlier)
    trials = _trials(study)
    if note := more_steps(before.rows, [row for row in study.rows if row not in before.rows]):
        console.say_sentence(note)
    return run(Request(study, trials, plan=plan, extended=added(plan, trials), source=args.study), args, results)


def _read(args: argparse.Namespace) -> SweepConfig:
    with phase("reading the study", sys.stdout):
        return load_study(args.study, args.overrides, Path(args.workspace), args.discover, console.trust_of(args))


def run(request: Request, args: argparse.Namespace, results: Location) -> Answer:
    """Runs a study where the command line says, and prints how it ended."""
    from memsweep.commands.answers.run import run_document

    launch, limits = Launch(args.inline, args.address), Limits(args.max_hours, args.max_trials, args.max_failures)
    named = names_folder(results, args.results, Path(getattr(args, "study", "")).parent)
    request = replace(request, command=shlex.join(["memsweep", *sys.argv[1:]]))
    page = shown_page(results, wanted=not args.no_page and not args.json)
    ending = Run(request, Place(results, Path(args.workspace), launch, limits, named, page)).execute()
    if ending.report is not None:
        print(f"\n{ending.report.text()}")
    console.print_ending(ending, results, verbose=args.verbose)
    return Answer(run_document(ending), ending.code)


def _trials(study: SweepConfig) -> tuple[PlannedTrial, ...]:
    """The trials of a grid; a search makes its own round by round."""
    return identified(study) if study.search is None else ()


def _stored(args: argparse.Namespace) -> tuple[Store, StoredPlan]:
    store = find_study(args.study, Location.at(args.results))
    args.discover(Path(args.workspace))
    plan = plan_to_run(store, console.trust_of(args))
    if store.location.name != folder_name(plan.study):
        raise MemsweepError(
            f"{store.location} holds the study {plan.study!r}, whose folder is called {folder_name(plan.study)}: it "
            "was copied or renamed. Give the folder that name (in another results folder, where there is one already)."
        )
    return store, plan


def _unchanged(plan: StoredPlan, results: Location) -> SweepConfig:
    """The study of a stored plan.

    Raises:
        MemsweepError: the installed code gives its trials other identities.
    """
    study = plan.sweep()
    if study.search is not None:  # its trials are compared when its rounds are repeated
        return study
    trials = identified(study)
    if changed := sum(trial.identity not in plan.rows for trial in trials):
        source, words = str(plan.provenance.get("source") or plan.study), plan.provenance.get("overrides") or ()
        workspace = plan.provenance.get("workspace")
        again = typed("sweep", source, results, *words, workspace=Path(workspace) if workspace else None)
        raise MemsweepError(
            f"{changed} of the {len(trials)} trials of {plan.study!r} have another identity under the installed code: "
            "the code that makes the numbers, a data file, this machine's kernels, or the version of torch or numpy "
            "has changed since the plan was made. Install the version that made it, or run the study with this one: "
            f"{again} (memsweep plan says which results it can reuse)."
        )
    return study
