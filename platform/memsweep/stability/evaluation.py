"""The errors of trained replicas on test data, with and without perturbation.

Errors are expectations where they have a closed form. Otherwise every seed has test sequences of its own, so that the
spread of errors over seeds contains that of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.config.schema.trial import TrialConfig
from memsweep.data.task import Batch
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.stability.gradients import gradient_norms
from memsweep.stability.perturbation.error import perturbation_error
from memsweep.streams import TEST, Stream

_PARTS = 4
"""A part of an ensemble has a quarter of its rows: of 16, about three replicas of each of five seeds are real."""


@dataclass(frozen=True)
class Evaluation:
    """What test data say of one replica.

    Attributes:
        error: without perturbation.
        errors: by ball, the perturbation error at radius 0 and at each radius of the grid.
        metrics: the task's, by name.
        gradient: norm of the gradient of the last state by the state ``lag`` steps before; empty without Jacobians.
    """

    error: float
    errors: dict[str, list[float]]
    metrics: dict[str, float]
    gradient: list[float]


def evaluated_exactly(config: TrialConfig) -> bool:
    """Whether perturbation errors are expectations in closed form; otherwise they are means over test sequences."""
    error = config.perturbation.error
    return error == "exact" or (error == "auto" and config.has_closed_form)


def evaluate(
    ensemble: Ensemble,
    task_loss: TaskLoss[Data],
    weights: Tensor,
    targets: Tensor,
    alive: Sequence[bool],
    config: TrialConfig,
) -> dict[int, Evaluation]:
    """Evaluate the real replicas of an ensemble.

    Args:
        ensemble: of the models.
        task_loss, targets: of the errors.
        weights: ``[rows, size]``.
        alive: of every replica, whether its gradients are wanted.
        config: any trial of the pack.

    Returns:
        Row -> evaluation.
    """
    found = {}
    for rows, part, data in _parts(ensemble, task_loss, config):
        own_weights, own_targets = weights[rows], targets[rows]
        how = config.perturbation
        errors = {
            ball: perturbation_error(part, task_loss, data, own_weights, own_targets, ball, how).tolist()
            for ball in how.balls
        }
        with torch.no_grad():
            named = part.layout.named(own_weights)
            error = task_loss.loss(part.model, named, data, own_targets).tolist()
            metrics = {name: value.tolist() for name, value in task_loss.metrics(part.model, named, data).items()}
            wanted = [alive[row] for row in rows[: len(part.replicas)]]
            gradients = gradient_norms(part.model, named, _sequences(data, part, own_weights), wanted)
        for place, row in enumerate(rows[: len(part.replicas)]):
            if part.real[place]:
                found[row] = Evaluation(
                    error=error[place] if math.isfinite(error[place]) else math.inf,
                    errors={ball: values[place] for ball, values in errors.items()},
                    metrics={name: value[place] for name, value in metrics.items()},
                    gradient=[] if gradients is None else gradients[place].tolist(),
                )
    return found


def _parts(
    ensemble: Ensemble, task_loss: TaskLoss[Data], config: TrialConfig
) -> Iterator[tuple[list[int], Ensemble, Data]]:
    """Rows of the ensemble (the first one again for dummies), the part that they make, and its data."""
    if evaluated_exactly(config):
        yield list(range(ensemble.rows)), ensemble, task_loss.population()
        return
    packs = type(ensemble.model).traits(config.model).pack_fields
    size = max(1, ensemble.rows // _PARTS) if packs else 1  # a trial that always runs alone has one replica a seed
    seeds: dict[int, list[int]] = {}
    for row, replica in enumerate(ensemble.replicas):
        if ensemble.real[row]:
            seeds.setdefault(replica.seed, []).append(row)
    for seed, rows in seeds.items():
        data = task_loss.data(Stream(config.training.data_seed, TEST), seed, config.perturbation.test_size)
        for start in range(0, len(rows), size):
            own = rows[start : start + size]
            yield own + own[:1] * (size - len(own)), ensemble.part(own, size), data


def _sequences(data: object, ensemble: Ensemble, like: Tensor) -> Tensor:
    """Sequences for gradient norms; where errors are exact, the model is linear and its Jacobians do not depend on
    them.

    Returns:
        ``[B, T, I]``, or symbols ``[B, T]``.
    """
    return data.inputs if isinstance(data, Batch) else like.new_zeros(1, ensemble.model.signature.horizon, 1)
