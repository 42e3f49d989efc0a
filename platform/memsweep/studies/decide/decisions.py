"""How each question of a study stands: decided, hopeless and why, or open, with what it has cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from memsweep.stability.verdict.judgement import SMALLEST_SEEDS
from memsweep.studies.decide.choice import Chosen
from memsweep.studies.decide.options import LEARNERS_AMONG
from memsweep.studies.decide.question import Question
from memsweep.studies.decide.reading import Subject

DECIDED, HOPELESS, LIMIT, OPEN = "decided", "hopeless", "limit", "open"
"""A verdict; more than this command may do would be needed; the limit came first; the run ended before its end."""


@dataclass(frozen=True)
class Decision:
    """How one question stands.

    Attributes:
        name: condition and ball, in words.
        state: DECIDED, HOPELESS, LIMIT or OPEN.
        verdict: of the rule.
        seconds: core seconds of its condition's trials, as far as they were measured, replaced ones among them.
        why: of a hopeless one, or of one whose next step does not fit into the rest of a limit; else empty.
        needed: core hours of what ``why`` names; nan where it names nothing.
    """

    name: str
    state: str
    verdict: str
    seconds: float
    why: str = ""
    needed: float = math.nan


def decision(subject: Subject, state: str, seconds: float, why: str = "", needed: float = math.nan) -> Decision:
    """The decision of a subject."""
    return Decision(subject.name, state, subject.finding.judgement.verdict.value, seconds, why, needed)


def hopeless(chosen: Chosen, looks: str = "") -> tuple[str, float]:
    """Why a question will not be decided, and the core hours that would be needed.

    Args:
        chosen: for the question: nothing that a round may do.
        looks: why no further round is made, where that is the reason.
    """
    question, needed = chosen.question, chosen.needed or chosen.option
    if question.misfit and needed is None:
        return _unfit(question), math.nan
    if needed is None:
        lies = f"nothing in reach is expected to decide it: {'; '.join(question.reasons[:2])}"
        return looks or lies, math.nan
    hours = chosen.cost / 3600.0
    amount = f"{needed.words(question.design)}, about {hours:.2g} core hours"
    if chosen.told:
        told = f"what would decide it by forecast, with a chance of {chosen.told}: {amount}"
    elif needed.repairs:
        told = f"what would be tried next, with no forecast of a verdict: {amount}"
    else:
        told = f"what would be added next, because the rule lacks it: {amount}"
    return f"{looks + '; ' if looks else ''}{told}", hours


def _unfit(question: Question) -> str:
    (width, horizon), times = min(question.misfit.items(), key=lambda item: item[1])
    seeds = question.design.seeds
    few = "fewer than five of" if seeds >= SMALLEST_SEEDS else f"for five of {LEARNERS_AMONG} to do so, too few of"
    return (
        f"{few} {seeds} seeds learn the memory: at width {width} and horizon {horizon} the error of the others is "
        f"{times:.2g} times what is allowed"
    )
