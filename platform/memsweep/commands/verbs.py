"""The commands that compute: sweep, resume, extend, retry."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.commands import console
from memsweep.config.load import study_files
from memsweep.config.load.study import load_study
from memsweep.documents import Answer
from memsweep.errors import ConfigError, MemsweepError
from memsweep.studies.continuation import extended, resumed, retried, trials_of
from memsweep.studies.locations import Place, find_study, names_folder, shown_page
from memsweep.studies.run import Run
from memsweep.studies.sharing.run import SharedRun
from memsweep.studies.trials import Request
from memsweep.sweep.driver.launch import LIMITS, Launch, Limits, NodeRequest
from memsweep.sweep.driver.progress import phase
from memsweep.sweep.estimate.nodes import offered
from memsweep.sweep.store.filesystem import Location

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig
    from memsweep.studies.ending import Ending
    from memsweep.sweep.store.results import Store


def sweep(args: argparse.Namespace) -> Answer:
    """Runs a study: plan, train, measure, judge, report."""
    study = read(args)
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
    store = stored(args)
    return run(resumed(store, console.trust_of(args)), args, store.location.parent)


def retry(args: argparse.Namespace) -> Answer:
    """Runs the trials of a study that failed, and no others."""
    store = stored(args)
    return run(retried(store, console.trust_of(args), force=args.force), args, store.location.parent)


def extend(args: argparse.Namespace) -> Answer:
    """Adds trials to the stored plan of a study, and runs those without a result."""
    _see_file(args)
    wider = read(args)
    results = Location.at(args.results)
    request, note = extended(wider, results, console.trust_of(args), args.study)
    if note:
        console.say_sentence(note)
    return run(request, args, results)


def _see_file(args: argparse.Namespace) -> None:
    """Refuses a study that has results and no file of its name: says whose file makes it.

    Raises:
        ConfigError: there is no such file.
    """
    try:
        study_files.find(args.study, Path(args.workspace))
    except ConfigError as error:
        try:
            store = find_study(args.study, Location.at(args.results))
        except MemsweepError:
            raise error from None
        told = f"extend reads the file of a study, and {args.study!r} is the name of stored results"
        raise ConfigError([f"{told}. {in_full('extend', store, args.overrides)}"], "the command line") from None


def in_full(verb: str, store: Store, overrides: Sequence[str]) -> str:
    """A sentence with the command that does what was asked of a stored study, as far as its plan knows its words."""
    from memsweep.report.read.study import load_study as load_stored

    made = load_stored(store.location)
    if not made.source and not made.is_of_words:
        return "Give its study file."
    command = made.extended_by(shlex.join(overrides)) if verb == "extend" else made.again(verb, overrides)
    return f"The whole command: {command}" if command else "Give its study file."


def read(args: argparse.Namespace) -> SweepConfig:
    """The study of the command line."""
    with phase("reading the study", sys.stdout):
        return load_study(args.study, args.overrides, Path(args.workspace), args.discover, console.trust_of(args))


def run(request: Request, args: argparse.Namespace, results: Location) -> Answer:
    """Runs a study where the command line says, and prints how it ended."""
    from memsweep.commands.answers.run import run_document

    ending = execute(request, args, results)
    return Answer(run_document(ending), ending.code)


def execute(request: Request, args: argparse.Namespace, results: Location, limits: Limits | None = None) -> Ending:
    """Runs a study where the command line says, and prints its report and how it ended.

    Args:
        request, args, results: the study, the command line, and the folder of all studies.
        limits: None: those of the command line.
    """
    launch = Launch(args.inline, args.address, args.max_nodes, _request_of(args))
    named = names_folder(results, args.results, Path(getattr(args, "study", "")).parent)
    request = replace(request, command=shlex.join(["memsweep", *sys.argv[1:]]))
    page = shown_page(results, wanted=not args.no_page and not args.json)
    place = Place(results, Path(args.workspace), launch, limits or limits_of(args), named, page)
    ending = (SharedRun if getattr(args, "share", False) else Run)(request, place).execute()
    if ending.report is not None:
        print(f"\n{ending.report.text(advice=request.grow is None)}")
    console.print_ending(ending, results, verbose=args.verbose)
    return ending


def _request_of(args: argparse.Namespace) -> NodeRequest | None:
    if args.nodes is None:
        return None
    count, node = args.nodes if isinstance(args.nodes, int) else None, offered(args.node)
    return NodeRequest(count, node.price, {"CPU": node.cpus, "GPU": node.gpus}) if node else NodeRequest(count)


def limits_of(args: argparse.Namespace) -> Limits:
    """The limits of the command line."""
    return Limits(**{name: getattr(args, f"max_{name}") for name in LIMITS})


def stored(args: argparse.Namespace) -> Store:
    """The stored results of the study of the command line."""
    store = find_study(args.study, Location.at(args.results))
    args.discover(Path(args.workspace))
    return store
