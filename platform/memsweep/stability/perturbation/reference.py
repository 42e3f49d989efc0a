"""Changes that are held against something else than the target (``perturbation.reference``).

By metric, the worst push that is found for the loss is judged by the task's metric: an error is the error rate above
that of the right answers, and limits are shares of the unmoved model's way to chance. By itself, an error is the mean
squared distance of the outputs from the model's own, and limits are shares of their variance: no target enters.

Letters: P rows (replicas and dummies), K copies, L limits, S size of the flat weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from memsweep.config.schema.trial import DRIFT, ERROR, EXCESS, METRIC, PerturbationConfig, TrialConfig
from memsweep.data.levels import Levels
from memsweep.data.task import on_processor
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.loss.exact import ExactLoss
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.stability.perturbation.ascent import FIRST_STEP, LAST_STEP, Ascent, Loss
from memsweep.stability.perturbation.moved import Moved

LEAST = 1e-3
"""Least way of an error rate to chance: that of a model at chance, which solves nothing."""


def referred(
    ensemble: Ensemble, task_loss: TaskLoss[Any], data: Any, weights: Tensor, config: TrialConfig
) -> tuple[TaskLoss[Any], Tensor]:
    """The loss that a search climbs, and what changes are shares of, ``[P]``: a way to chance, or a variance."""
    named = ensemble.layout.named(weights)
    assert isinstance(task_loss, ExactLoss | SampledLoss), "please report this: a reference for an unknown loss"
    if config.perturbation.reference == METRIC:
        levels = _levels(task_loss, config.perturbation)
        own = task_loss.metrics(ensemble.model, named, data)[levels.name]
        return task_loss, (own - levels.chance).clamp(min=LEAST).to(weights)
    if isinstance(task_loss, SampledLoss):
        task_loss = task_loss.of_outputs(data)
    return task_loss, task_loss.own_variance(ensemble.model, named, data)


def _levels(task_loss: TaskLoss[Any], config: PerturbationConfig) -> Levels:
    assert isinstance(task_loss, ExactLoss | SampledLoss), "please report this: a metric of an unknown loss"
    with on_processor():
        return Levels.of(task_loss.task, config)


def moved_against(reference: str) -> type[Moved[Any]]:
    """How models move whose changes are held against ``metric`` or ``self``."""
    return MovedByMetric if reference == METRIC else MovedByItself


@dataclass(frozen=True)
class MovedByItself(Moved[Data]):
    """Models whose outputs drift from their own, relative to the variance of these."""

    @property
    def reading(self) -> str:
        return DRIFT

    def _loss(self, data: Data, rows: Ensemble, live: Tensor, reading: str) -> Loss:
        return super()._loss(data, rows, live, DRIFT)


@dataclass(frozen=True)
class MovedByMetric(Moved[Data]):
    """Models whose loss is climbed, and whose error rate says how far a push has changed them."""

    @property
    def reading(self) -> str:
        return EXCESS

    def ascent(self, data: Data, size: int, reading: str) -> Ascent:
        rate = self._rate(data)
        if reading == ERROR:
            return Ascent(rate, self.ball, size)
        unmoved = rate(torch.zeros_like(self.weights).unsqueeze(1))
        loss = self._loss(data, self.ensemble, self.ensemble.real, ERROR)
        return Judged(loss, self.ball, size, lambda shift_PKS: rate(shift_PKS) - unmoved)

    def _rate(self, data: Data) -> Loss:
        """Error rates above that of the right answers."""
        levels = _levels(self.task_loss, self.config)

        @torch.no_grad()
        def rate(shift_PKS: Tensor) -> Tensor:
            shifted = self.ensemble.layout.named(self.weights.unsqueeze(1) + shift_PKS)
            found = self.task_loss.metrics(self.ensemble.model, shifted, data)[levels.name]
            return levels.best - found

        return rate


@dataclass(frozen=True)
class Judged(Ascent):
    """Ascent of a loss whose pushes are judged by another number.

    Attributes:
        judge: gives it, of the shifts without a gradient.
    """

    judge: Loss

    def climb(
        self, shifts: Tensor, radii: Tensor, steps: int, first_step: float = FIRST_STEP, last_step: float = LAST_STEP
    ) -> tuple[Tensor, Tensor]:
        """As of ``Ascent``; without a step, the judge's number of the shifts."""
        if steps:
            return super().climb(shifts, radii, steps, first_step, last_step)
        return Ascent(self.judge, self.ball, self.size).climb(shifts, radii, 0)
