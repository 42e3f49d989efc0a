"""The errors of trained replicas on test data, with and without perturbation.

Errors are expectations where they have a closed form. Otherwise every seed has test sequences of its own, so that the
spread of errors over seeds contains that of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.schema.trial import PerturbationConfig, TrialConfig
from memsweep.data.task import Batch, on_processor
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.models.base import Part
from memsweep.stability.gradients import gradient_norms
from memsweep.stability.perturbation.error import Sample, perturbation_error, stronger_error
from memsweep.stability.side import attempt
from memsweep.stability.verdict.radius import THRESHOLDS
from memsweep.streams import TEST, Stream

FEW, MORE = 64, 512
"""Test sequences on which the search climbs at first and at last; all of them judge what it has found."""
_PARTS = 4
"""A part of an ensemble has a quarter of its rows: of 16, about three replicas of each of five seeds are real."""


@dataclass(frozen=True)
class Evaluation:
    """What test data say of one replica.

    Attributes:
        error: without perturbation.
        errors: by ball, the perturbation error at radius 0 and at each radius of the grid.
        stronger: by ball, what a stronger search finds at some of these radii, nan at the others; without a ball where
            it did not run.
        metrics: the task's, by name.
        gradient: norm of the gradient of the last state by the state ``lag`` steps before; empty without Jacobians.
    """

    error: float
    errors: dict[str, list[float]]
    stronger: dict[str, list[float]]
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
    failures: list[str],
) -> dict[int, Evaluation]:
    """Evaluate the real replicas of an ensemble.

    Args:
        ensemble: of the models.
        task_loss, targets: of the errors.
        weights: ``[rows, size]``.
        alive: of every replica, whether its gradients are wanted.
        config: any trial of the pack.
        failures: gets the reason where gradients cannot be measured.

    Returns:
        Row -> evaluation.
    """
    found = {}
    for rows, part, data, sample in parts_of(ensemble, task_loss, config):
        own_weights, own_targets = weights[rows], targets[rows]
        how = config.perturbation
        errors = {
            ball: perturbation_error(part, task_loss, data, own_weights, own_targets, ball, how, sample).errors
            for ball in how.balls
        }
        stronger = _stronger(part, task_loss, data, own_weights, own_targets, errors, how, sample)
        with torch.no_grad():
            named = part.layout.named(own_weights)
            error = task_loss.loss(part.model, named, data, own_targets).tolist()
            metrics = {name: value.tolist() for name, value in task_loss.metrics(part.model, named, data).items()}
            wanted = [alive[row] for row in rows[: len(part.replicas)]]
            sequences = _sequences(data, part, own_weights)
            gradients = attempt(
                "gradients through time", partial(gradient_norms, part.model, named, sequences, wanted), failures
            )
        for place, row in enumerate(rows[: len(part.replicas)]):
            if part.real[place]:
                found[row] = Evaluation(
                    error=error[place] if math.isfinite(error[place]) else math.inf,
                    errors={ball: values[place].tolist() for ball, values in errors.items()},
                    stronger=stronger.get(place, {}),
                    metrics={name: value[place] for name, value in metrics.items()},
                    gradient=[] if gradients is None else gradients[place].tolist(),
                )
    return found


def worst_weights(
    ensemble: Ensemble, task_loss: TaskLoss[Data], weights: Tensor, targets: Tensor, ball: str, config: TrialConfig
) -> Tensor:
    """The moved weights with the largest error that the search finds at the largest radius of the grid.

    Args:
        ensemble, task_loss, weights, targets, config: as of ``evaluate``.
        ball: which weights move.

    Returns:
        ``[rows, size]``; dummies keep their weights.
    """
    found = weights.clone()
    for rows, part, data, sample in parts_of(ensemble, task_loss, config):
        numbers = (data, weights[rows], targets[rows], ball, config.perturbation, sample)
        own = rows[: len(part.replicas)]
        found[own] = perturbation_error(part, task_loss, *numbers).weights[: len(own), -1]
    return found


def metrics_of(
    ensemble: Ensemble, task_loss: TaskLoss[Data], weights: Tensor, config: TrialConfig
) -> dict[int, dict[str, float]]:
    """The task's metrics on the test data: row of each real replica -> name -> value. Arguments as of ``evaluate``."""
    found = {}
    for rows, part, data, _ in parts_of(ensemble, task_loss, config):
        with torch.no_grad():
            metrics = task_loss.metrics(part.model, part.layout.named(weights[rows]), data)
        for place, row in enumerate(rows[: len(part.replicas)]):
            found[row] = {name: float(value[place]) for name, value in metrics.items()}
    return found


def _stronger(
    ensemble: Ensemble,
    task_loss: TaskLoss[Data],
    data: Data,
    weights: Tensor,
    targets: Tensor,
    errors: Mapping[str, Tensor],
    config: PerturbationConfig,
    sample: Sample[Data] | None,
) -> dict[int, dict[str, list[float]]]:
    """By row and ball, what a stronger search finds for the replicas whose seed is a multiple of ``stronger_every``."""
    every = config.stronger_every
    rows = [row for row, replica in enumerate(ensemble.replicas) if every and replica.seed % every == 0]
    if config.method != "worst_case" or not rows:
        return {}
    if sample is not None and sample.limits is not None:
        limits = weights.new_tensor([sample.limits[0], sample.limits[-1]]).expand(len(weights), -1)
    else:  # a linear model without encoder and readout answers with zeros
        silent = torch.where(ensemble.select(Part.RECURRENT), weights, 0.0)
        with torch.no_grad():
            zero = task_loss.loss(ensemble.model, ensemble.layout.named(silent), data, targets)
        limits = zero.unsqueeze(-1) * weights.new_tensor([THRESHOLDS[0], THRESHOLDS[-1]])
    size = ensemble.rows if ensemble.rows == 1 or sample is not None else max(1, ensemble.rows // _PARTS)
    found: dict[int, dict[str, list[float]]] = {}
    for own, taken in in_groups(rows, size):
        part = ensemble.part(own, size)
        for ball, values in errors.items():
            numbers = (weights[taken], targets[taken], ball, config, values[taken], limits[taken], sample)
            worst = stronger_error(part, task_loss, data, *numbers).tolist()
            for place, row in enumerate(own):
                found.setdefault(row, {})[ball] = worst[place]
    return found


def rows_by_seed(ensemble: Ensemble) -> dict[int, list[int]]:
    """Seed -> the real rows of its replicas."""
    seeds: dict[int, list[int]] = {}
    for row, replica in enumerate(ensemble.replicas):
        if ensemble.real[row]:
            seeds.setdefault(replica.seed, []).append(row)
    return seeds


def in_groups(rows: Sequence[int], size: int) -> Iterator[tuple[list[int], list[int]]]:
    """Groups of rows, and the same filled up to ``size`` with the first: numbers do not depend on the other rows."""
    for start in range(0, len(rows), size):
        own = list(rows[start : start + size])
        yield own, own + own[:1] * (size - len(own))


def rows_together(ensemble: Ensemble, config: TrialConfig) -> int:
    """How many rows of a sampled ensemble are evaluated together."""
    packs = type(ensemble.model).traits(config.model).pack_fields
    return max(1, ensemble.rows // _PARTS) if packs else 1  # a trial that always runs alone has one replica a seed


def parts_of(
    ensemble: Ensemble, task_loss: TaskLoss[Data], config: TrialConfig
) -> Iterator[tuple[list[int], Ensemble, Data, Sample[Data] | None]]:
    """Rows of the ensemble (the first one again for dummies), the part that they make, its data, and a sample of them.

    There is no sample where all data cost no more: they are an expectation, or statistics of sequences.
    """
    if evaluated_exactly(config):
        yield list(range(ensemble.rows)), ensemble, task_loss.population(), None
        return
    stream, size_of_all = Stream(config.training.data_seed, TEST), config.perturbation.test_size
    limits = None
    if not config.has_closed_form:
        with on_processor():
            chance = registry.get(registry.TASK, config.task.name)(config.task).chance()
        limits = tuple(threshold * chance for threshold in THRESHOLDS)
    size = rows_together(ensemble, config)
    for seed, rows in rows_by_seed(ensemble).items():
        data = task_loss.data(stream, seed, size_of_all)
        sample = None
        if limits is not None:
            few, more = (task_loss.data(stream, seed, min(count, size_of_all)) for count in (FEW, MORE))
            sample = Sample(few, more, limits)
        for own, taken in in_groups(rows, size):
            yield taken, ensemble.part(own, size), data, sample


def _sequences(data: object, ensemble: Ensemble, like: Tensor) -> Tensor:
    """Sequences for gradient norms; where errors are exact, the model is linear and its Jacobians do not depend on
    them.

    Returns:
        ``[B, T, I]``, or symbols ``[B, T]``.
    """
    return data.inputs if isinstance(data, Batch) else like.new_zeros(1, ensemble.model.signature.horizon, 1)
