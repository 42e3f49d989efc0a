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
from memsweep.studies.continuation import extended, resumed, retried, trials_of
from memsweep.studies.locations import Place, find_study, names_folder, shown_page
from memsweep.studies.run import Run
from memsweep.studies.trials import Request
from memsweep.sweep.driver.launch import Launch, Limits
from memsweep.sweep.driver.progress import phase
from memsweep.sweep.store.filesystem import Location

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig
    from memsweep.studies.ending import Ending
    from memsweep.sweep.store.results import Store


def sweep(args: argparse.Namespace) -> Answer:
    """Runs a study: plan, train, measure, judge, report."""
    study = _read(args)
    request = Request(
        study,
        trials_of(study),
        no_reuse=args.no_reuse,
        drop_extended=args.drop_extended,
        overrides=tuple(args.overrides),
        source=args.study,
    )
    return run(request, args, Location.at(args.results))


def resume(args: argparse.Namespace) -> Answer:
    """Finishes the stored plan of a study; needs no study file."""
    store = _stored(args)
    return run(resumed(store, console.trust_of(args)), args, store.location.parent)


def retry(args: argparse.Namespace) -> Answer:
    """Runs the trials of a study that failed, and no others."""
    store = _stored(args)
    return run(retried(store, console.trust_of(args), force=args.force), args, store.location.parent)


def extend(args: argparse.Namespace) -> Answer:
    """Adds trials to the stored plan of a study, and runs those without a result."""
    wider = _read(args)
    results = Location.at(args.results)
    request, note = extended(wider, results, console.trust_of(args), args.study)
    if note:
        console.say_sentence(note)
    return run(request, args, results)


def _read(args: argparse.Namespace) -> SweepConfig:
    with phase("reading the study", sys.stdout):
        return load_study(args.study, args.overrides, Path(args.workspace), args.discover, console.trust_of(args))


def run(request: Request, args: argparse.Namespace, results: Location) -> Answer:
    """Runs a study where the command line says, and prints how it ended."""
    return run_to_end(request, args, results)[1]


def run_to_end(request: Request, args: argparse.Namespace, results: Location) -> tuple[Ending, Answer]:
    """The same, with how it ended."""
    from memsweep.commands.answers.run import run_document

    launch, limits = Launch(args.inline, args.address), Limits(args.max_hours, args.max_trials, args.max_failures)
    named = names_folder(results, args.results, Path(getattr(args, "study", "")).parent)
    request = replace(request, command=shlex.join(["memsweep", *sys.argv[1:]]))
    page = shown_page(results, wanted=not args.no_page and not args.json)
    ending = Run(request, Place(results, Path(args.workspace), launch, limits, named, page)).execute()
    if ending.report is not None:
        print(f"\n{ending.report.text()}")
    console.print_ending(ending, results, verbose=args.verbose)
    return ending, Answer(run_document(ending), ending.code)


def _stored(args: argparse.Namespace) -> Store:
    store = find_study(args.study, Location.at(args.results))
    args.discover(Path(args.workspace))
    return store
