"""The ``decide`` command: goes on with a study, round by round, until its questions are decided."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.commands import console
from memsweep.commands.answers.run import run_document
from memsweep.commands.verbs import execute, in_full, limits_of, read, stored
from memsweep.config.load import study_files
from memsweep.documents import Answer
from memsweep.errors import ConfigError, Exit, MemsweepError, counted
from memsweep.recurrence.compiled.expected import nothing_is_trained
from memsweep.studies.decide.decisions import DECIDED, HOPELESS, LIMIT, Decision
from memsweep.studies.decide.request import Deciding, deciding, limits_of_study
from memsweep.studies.decide.smallest import names_module, smallest
from memsweep.sweep.driver.progress import duration, phase
from memsweep.sweep.store.filesystem import Location

_HERE = "the command line"

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig
    from memsweep.documents.keys.runs import DecideDocument, DecisionItem
    from memsweep.studies.decide.round_log import Step
    from memsweep.studies.ending import Ending
    from memsweep.sweep.store.results import Store


def decide(args: argparse.Namespace) -> Answer:
    """Goes on with a study until its questions are decided, hopeless, or a limit is reached."""
    store = _stored(args)
    study = None if store is not None else _smallest(args) if names_module(args.study) else read(args)
    results = Location.at(args.results) if store is None else store.location.parent
    limits = limits_of_study(limits_of(args), study)
    with nothing_is_trained() if args.plan else contextlib.nullcontext():
        source = args.study if store is None else ""  # what is stored knows its file
        request, questions = deciding(study, store, results, console.trust_of(args), source, limits)
        if args.plan:
            with phase("choosing what comes next by the results", sys.stderr):
                decisions, steps = questions.preview(request, results)
    if args.plan:
        _print(decisions, steps)
        return Answer(_document(request.sweep.name, decisions, questions, steps))
    if questions.note:
        console.say_sentence(f"begins with {counted(len(request.trials), 'trial')}: {questions.note}")
    ending = execute(request, args, results, limits)
    with phase("looking at what is decided", sys.stderr):
        decisions = questions.decisions(at_limit=bool(ending.summary.limit))
    _print(decisions, left=questions.left)
    if questions.left:
        console.say_sentence(f"{counted(questions.left, 'planned trial')} left, the same command goes on with them")
    elif any(one.state == LIMIT for one in decisions):
        console.say_sentence("the same command goes on: a limit is that of one run")
    if claims := _claims(ending):
        console.say(f"claims are none of these questions, decide adds no seeds for them: {claims}")
    document = {**_document(ending.study, decisions, questions), "run": run_document(ending)}
    at_limit = any(one.state == LIMIT for one in decisions)
    return Answer(document, ending.code or (Exit.LIMIT if at_limit else Exit.DONE))


def _stored(args: argparse.Namespace) -> Store | None:
    """The stored study that the command line names by its folder, or by its name where no study file has it.

    Raises:
        ConfigError: words that would change nothing of it, or of a study that is no module.
    """
    is_module, workspace = names_module(args.study), Path(args.workspace)
    if args.kernel is not None and not is_module:
        raise ConfigError(
            ["--kernel is the memory for a module (my_nets:MinGRU); of a study, task.kernel=NAME sets it"], _HERE
        )
    is_file = is_module or os.path.isfile(args.study) or args.study in study_files.names(workspace)
    has_results = "://" in args.study or os.path.isfile(os.path.join(args.study, "plan.json"))
    if is_file and not has_results:
        return None
    try:
        store = stored(args)
    except MemsweepError:
        if has_results:
            raise
        return None  # no study at all: whoever reads it says which there are
    if args.overrides:
        raise ConfigError(
            [
                f"{args.overrides[0]} would change nothing of the stored study {args.study}. "
                f"{in_full('decide', store, args.overrides)}"
            ],
            _HERE,
        )
    return store


def _smallest(args: argparse.Namespace) -> SweepConfig:
    args.discover(Path(args.workspace))
    return smallest(args.study, args.kernel, args.overrides, Path(args.workspace))


def _print(decisions: Sequence[Decision], steps: Sequence[Step] = (), *, left: int = 0) -> None:
    if not decisions and not steps and not left:
        console.say_sentence("nothing to decide: no weights were moved over several widths or horizons")
    if decisions:
        states = ", ".join(f"{count} {state}" for state, count in Counter(one.state for one in decisions).items())
        console.say_sentence(f"{counted(len(decisions), 'question')}: {states}")
    for one in decisions:
        said = one.verdict if one.state == DECIDED else one.state
        why = f": {one.why}" if one.why else ""
        console.say_sentence(f"  {one.name}: {said}, {duration(one.seconds)} of a core{why}")
    if steps:
        console.say_sentence(f"next, about {duration(sum(step.cost for step in steps))} of a core:")
    for step in steps:
        cost = f", about {duration(step.cost)}" if len(steps) > 1 else ""
        console.say_sentence(f"  {step.name}: {step.does}{cost}")


def _claims(ending: Ending) -> str:
    """The command that would decide the claims that lack seeds; empty where none does, and without a report."""
    from memsweep.report.headline.answer import answer_of

    return answer_of(ending.report.contents).claims if ending.report is not None else ""


def _document(
    study: str, decisions: Sequence[Decision], questions: Deciding, steps: Sequence[Step] = ()
) -> DecideDocument:
    return {
        "study": study,
        "decisions": [_item(one) for one in decisions],
        "hopeless": [one.name for one in decisions if one.state == HOPELESS],
        "trials_left": questions.left,
        "rounds": questions.rounds,
        "next_round": [{"name": step.name, "does": step.does, "core_seconds": step.cost} for step in steps],
        "run": None,
    }


def _item(one: Decision) -> DecisionItem:
    return {
        "name": one.name,
        "state": one.state,  # type: ignore[typeddict-item]
        "verdict": one.verdict,  # type: ignore[typeddict-item]
        "core_seconds": one.seconds,
        "why": one.why,
        "needed_core_hours": one.needed,
    }
