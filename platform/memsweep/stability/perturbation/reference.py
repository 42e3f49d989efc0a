"""Changes that are held against something else than the target (``perturbation.reference``).

By metric, the worst push that is found for the loss is judged by the task's metric: an error is the error rate above
that of the right answers, and limits are shares of the unmoved model's way to chance. By itself, an error is the mean
squared distance of the outputs from the model's own, and limits are shares of their variance: no target enters.

Letters: P rows (replicas and dummies), S size of the flat weights.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from memsweep.config.schema.trial import METRIC, TrialConfig
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import TaskLoss
from memsweep.learning.loss.exact import ExactLoss
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.stability.perturbation.moved import levels_of

LEAST = 1e-3
"""Least way of an error rate to chance: that of a model at chance, which solves nothing."""


def referred(
    ensemble: Ensemble, task_loss: TaskLoss[Any], data: Any, weights: Tensor, config: TrialConfig
) -> tuple[TaskLoss[Any], Tensor]:
    """The loss that a search climbs, and what changes are shares of, ``[P]``: a way to chance, or a variance."""
    named = ensemble.layout.named(weights)
    assert isinstance(task_loss, ExactLoss | SampledLoss), "please report this: a reference for an unknown loss"
    if config.perturbation.reference == METRIC:
        levels = levels_of(task_loss, config.perturbation)
        own = task_loss.metrics(ensemble.model, named, data)[levels.name]
        return task_loss, (own - levels.chance).clamp(min=LEAST).to(weights)
    if isinstance(task_loss, SampledLoss):
        task_loss = task_loss.of_outputs(data)
    return task_loss, task_loss.own_variance(ensemble.model, named, data)
