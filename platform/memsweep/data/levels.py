"""The metric by which a task is solved: of the right answers, at chance, and how many test sequences tell it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memsweep.config.core.problems import not_one_of
from memsweep.config.schema.trial import METRIC, SELF, THRESHOLDS, PerturbationConfig

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

SOLVED = 0.05
"""Largest error rate above that of the right answers of a model that solves its task, as a share of that at chance."""
COUNTED = 10
"""Wrong sequences that a threshold must be worth: their number has a standard deviation of a third then."""


@dataclass(frozen=True)
class Levels:
    """Of one metric, of which more is better.

    Attributes:
        name: of the metric.
        best: of the right answers.
        chance: expected, of the best model that ignores its inputs.
    """

    name: str
    best: float
    chance: float

    @staticmethod
    def of(task: Any, perturbation: PerturbationConfig) -> Levels:
        """Of the metric that is asked for, or the task's first one with levels."""
        levels = task.metric_levels()
        name = perturbation.reference_metric or next(iter(levels))
        return Levels(name, *levels[name])


def sequences_needed(way: float, threshold: float) -> int:
    """Test sequences that tell a threshold: a share of the way of the error rate to chance."""
    return math.ceil(COUNTED / (threshold * way)) if way > 0.0 else 0


def problems_of_reference(part: Any, trial: TrialConfig, drawn: Callable[[int], int]) -> Iterator[str]:
    """Why changes cannot be held against the reference that a trial asks for, a sentence without a full stop each.

    ``drawn``: how many test sequences the task gives where it is asked for so many.
    """
    name, asked = trial.task.name, trial.perturbation
    if asked.reference == SELF and part.carries_states:
        yield (
            f"perturbation.reference is self, but the task {name} carries states from batch to batch, so that outputs "
            "differ before a window begins: use target"
        )
    if asked.reference != METRIC:
        return
    levels = {} if trial.has_closed_form or part.carries_states else part(trial.task).metric_levels()
    if not levels:
        yield (
            f"perturbation.reference is metric, but the task {name} with the model {trial.model.name} has no metric "
            f"with a level of chance: use target{'' if part.carries_states else ', or self'}"
        )
        return
    if asked.reference_metric is not None and asked.reference_metric not in levels:
        yield str(not_one_of("perturbation.reference_metric", asked.reference_metric, levels))
        return
    chosen = Levels.of(part(trial.task), asked)
    needed = sequences_needed((1.0 - SOLVED) * (chosen.best - chosen.chance), min(THRESHOLDS))
    told = (
        f"but a threshold of {min(THRESHOLDS):.0%} of the way from {chosen.best:g} to {chosen.chance:.3g} of "
        f"{chosen.name} needs {needed} test sequences: use"
    )
    if (found := drawn(needed)) < needed:
        yield f"the task {name} has {found} test sequences, {told} perturbation.reference=target, or self"
    elif asked.test_size < needed:
        yield f"perturbation.test_size is {asked.test_size}, {told} perturbation.test_size={needed} or more"
