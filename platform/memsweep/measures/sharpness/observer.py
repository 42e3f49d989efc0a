"""The sharpness of an ensemble, measured while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from memsweep.config.schema.training import TrainingConfig
from memsweep.learning.ensemble.frozen import freezes_weights, frozen_entries
from memsweep.learning.ensemble.replicas import stability_margin, time_scales
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.loss.batch_sharding import ShardedBatch
from memsweep.learning.training.learner import Learner
from memsweep.learning.training.observer import Observer
from memsweep.learning.training.optimizer import rate_factor, rates_at, settings_at
from memsweep.measures.sharpness.curvature import largest_eigenvalue
from memsweep.models.base import Part


class SharpnessAt(NamedTuple):
    """The sharpness of a replica.

    Attributes:
        step: steps that were done before.
        learning_rate: of the next step.
        sharpness: largest eigenvalue of the loss's Hessian, at least this.
        ceiling: learning rate that the optimizer would bear here on a quadratic, at most this; inf where no curvature
            was found, nan before the first step.
        margin: 1 - max |eigenvalue| of the recurrence; nan where the model has no eigenvalues.
        output_change: root mean square of the change of the outputs since the first step.
        time_scale_low, time_scale, time_scale_high: the shortest, the median and the longest of the modes, in steps;
            nan as the margin.
    """

    step: int
    learning_rate: float
    sharpness: float
    ceiling: float
    margin: float
    output_change: float
    time_scale_low: float
    time_scale: float
    time_scale_high: float


@dataclass
class SharpnessObserver(Observer):
    """The sharpness of an ensemble: measurements ``[P, 8]``, in the order of ``SharpnessAt`` without the step."""

    def pattern(self, device: torch.device) -> Tensor:
        return torch.full((self.rows, len(SharpnessAt._fields) - 1), torch.nan, dtype=torch.float64, device=device)

    def of(self, row: int, steps: int) -> list[Mapping[str, Any]]:
        return [
            SharpnessAt(index * self.every, *values[row].tolist())._asdict()
            for index, values in enumerate(self.measured)
            if index * self.every <= steps
        ]

    def validated(
        self,
        learner: Learner,
        task_loss: TaskLoss[Data],
        data: ShardedBatch[Data],
        step: int,
        training: TrainingConfig,
    ) -> None:
        """Measure curvature (without penalties), spectrum and change of outputs, where they are due."""
        if self.is_due(step):
            self.measured.append(_sharpness(learner, task_loss, data, step, training))


def _sharpness(
    learner: Learner, task_loss: TaskLoss[Data], data: ShardedBatch[Data], step: int, training: TrainingConfig
) -> Tensor:
    """``[P, 8]``; nan where a replica does not train."""
    settings = settings_at(training, step)
    ensemble, weights, live = learner.ensemble, learner.weights, learner.live
    moving = ensemble.exists & ~ensemble.select(Part.STATISTIC) & live.unsqueeze(-1)
    if freezes_weights(ensemble.model):
        moving &= ~frozen_entries(ensemble)

    def gradient(at: Tensor) -> Tensor:
        return learner.gradients_at(task_loss, data, at)

    directions = [torch.where(moving, each, 0.0) for each in (gradient(weights), ensemble.initial)]
    start = sum(each / each.norm(dim=-1, keepdim=True).clamp(min=1e-300) for each in directions)
    base = rates_at(learner.rates, settings)
    relative = learner.groups.spread(learner.groups.rates(base) / base.unsqueeze(-1))
    scale = torch.where(moving, (relative / learner.optimizer.divisor()).sqrt(), 0.0)
    curvature = [largest_eigenvalue(gradient, weights, each, start) for each in (moving.to(weights.dtype), scale)]
    rate = base * rate_factor(step, training.steps, training.schedule, training.warmup) * learner.plateau.factor
    ceiling = learner.optimizer.edge / curvature[1].clamp(min=0.0)
    with torch.no_grad():
        margin, scales = stability_margin(ensemble, weights), time_scales(ensemble, weights)
    change = learner.output_change(task_loss, data)
    numbers = [each.double() for each in (rate, curvature[0], ceiling, margin, change, *scales.unbind(-1))]
    return torch.where(live.unsqueeze(-1), torch.stack(numbers, -1), torch.nan)
