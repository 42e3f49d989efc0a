"""The ``decide`` command: goes on with a study, round by round, until its questions are decided."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.commands import console
from memsweep.commands.answers.run import run_document
from memsweep.commands.verbs import execute, limits_of, read, stored
from memsweep.documents import Answer
from memsweep.errors import Exit, counted
from memsweep.studies.decide.decisions import DECIDED, HOPELESS, LIMIT, Decision
from memsweep.studies.decide.request import deciding
from memsweep.sweep.driver.progress import duration
from memsweep.sweep.store.filesystem import Location

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig
    from memsweep.documents.keys.runs import DecideDocument, DecisionItem
    from memsweep.studies.decide.round_log import Step


def decide(args: argparse.Namespace) -> Answer:
    """Goes on with a study until its questions are decided, hopeless, or a limit is reached."""
    store = stored(args) if os.path.isdir(args.study) else None
    study = None if store is not None else _smallest(args) if _names_module(args.study) else read(args)
    results = Location.at(args.results) if store is None else store.location.parent
    request, questions = deciding(study, store, results, console.trust_of(args), args.study, limits_of(args))
    if args.plan:
        decisions, steps = questions.preview(request, results)
        _print(decisions, steps)
        return Answer(_document(request.sweep.name, decisions, questions.rounds, steps))
    ending = execute(request, args, results)
    decisions = questions.decisions(at_limit=bool(ending.summary.limit))
    _print(decisions)
    document = {**_document(ending.study, decisions, questions.rounds), "run": run_document(ending)}
    at_limit = any(one.state == LIMIT for one in decisions)
    return Answer(document, ending.code or (Exit.LIMIT if at_limit else Exit.DONE))


def _names_module(word: str) -> bool:
    """Whether the study is a module: ``my_nets:MinGRU``."""
    return ":" in word and "://" not in word and not os.path.exists(word)


def _smallest(args: argparse.Namespace) -> SweepConfig:
    from memsweep.studies.decide.smallest import smallest

    args.discover(Path(args.workspace))
    return smallest(args.study, args.kernel, args.overrides, Path(args.workspace))


def _print(decisions: Sequence[Decision], steps: Sequence[Step] = ()) -> None:
    if not decisions and not steps:
        console.say_sentence("nothing to decide: no condition has results over several widths or horizons")
    if decisions:
        states = ", ".join(f"{count} {state}" for state, count in Counter(one.state for one in decisions).items())
        console.say_sentence(f"{counted(len(decisions), 'question')}: {states}")
    for one in decisions:
        said = one.verdict if one.state == DECIDED else one.state
        why = f": {one.why}" if one.why else ""
        console.say_sentence(f"  {one.name}: {said}, {duration(one.seconds)} of a core{why}")
    if steps:
        console.say_sentence(f"next round, about {duration(sum(step.cost for step in steps))} of a core:")
    for step in steps:
        console.say_sentence(f"  {step.name}: {step.does}, about {duration(step.cost)}")


def _document(study: str, decisions: Sequence[Decision], rounds: int, steps: Sequence[Step] = ()) -> DecideDocument:
    return {
        "study": study,
        "decisions": [_item(one) for one in decisions],
        "hopeless": [one.name for one in decisions if one.state == HOPELESS],
        "rounds": rounds,
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
