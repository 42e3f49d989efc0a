"""The errors of trained replicas on test data, with and without perturbation.

Errors are expectations where they have a closed form. Otherwise every seed has test sequences of its own, so that the
spread of errors over seeds contains that of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.schema.trial import PerturbationConfig, TrialConfig, refers_elsewhere
from memsweep.data.task import Batch, on_processor
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.models.base import Part
from memsweep.stability.gradients import gradient_norms
from memsweep.stability.perturbation.error import Worst, perturbation_error, stronger_change, worst_at
from memsweep.stability.perturbation.moved import Sample
from memsweep.stability.side import attempt
from memsweep.stability.verdict.radius import THRESHOLDS
from memsweep.streams import TEST, Stream

FEW, MORE = 64, 512
"""Test sequences on which the search climbs at first and at last; all of them judge what it has found."""
SEEDS_OF = 3
"""Seeds, of each ``stronger_every``, on which a stronger search measures what the usual one misses."""
_PARTS = 4
"""A part of an ensemble has a quarter of its rows: of 16, about three replicas of each of five seeds are real."""


class Point(NamedTuple):
    """A point of the curve of one replica in one ball.

    Attributes:
        radius: of the perturbation.
        error: of the model that is moved so far.
        change: what radii are read from.
        threshold: whose radius this is, as a fraction of the zero predictor's loss; nan for a point of the grid.
        stronger: the change that a stronger search finds; nan where it did not run.
    """

    radius: float
    error: float
    change: float
    threshold: float = math.nan
    stronger: float = math.nan


@dataclass(frozen=True)
class Evaluation:
    """What test data say of one replica.

    Attributes:
        error: without perturbation.
        curves: by ball, at radius 0, along the radii of the grid, and at the radii of the thresholds.
        metrics: the task's, by name.
        gradient: norm of the gradient of the last state by the state ``lag`` steps before; empty without Jacobians.
        scale: what the changes are shares of, where that is not the zero predictor's loss.
    """

    error: float
    curves: dict[str, list[Point]]
    metrics: dict[str, float]
    gradient: list[float]
    scale: float = math.nan


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
        numbers = (part, task_loss, data, own_weights, own_targets)
        limits = _limits(part, task_loss, own_weights, own_targets, config)
        if refers_elsewhere(config.perturbation):
            from memsweep.stability.perturbation.reference import referred

            climbed, scales = referred(part, task_loss, data, own_weights, config)
            numbers = (part, climbed, data, own_weights, own_targets)
            limits = scales.clamp(min=torch.finfo(scales.dtype).tiny).unsqueeze(-1) * scales.new_tensor(THRESHOLDS)
        curves: dict[str, list[list[Point]]] = {}
        for ball in config.perturbation.balls:
            worst = perturbation_error(*numbers, ball, config.perturbation, sample, limits=limits)
            curves[ball] = _points(worst, _stronger(*numbers, ball, worst, config.perturbation, sample))
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
                    curves={ball: points[place] for ball, points in curves.items()},
                    metrics={name: value[place] for name, value in metrics.items()},
                    gradient=[] if gradients is None else gradients[place].tolist(),
                )
                if refers_elsewhere(config.perturbation):
                    found[row] = replace(found[row], scale=float(scales[place]))
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
        found[own] = worst_at(part, task_loss, *numbers)[: len(own)]
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


def _limits(
    ensemble: Ensemble, task_loss: TaskLoss[Data], weights: Tensor, targets: Tensor, config: TrialConfig
) -> Tensor:
    """The changes at which radii are read, ``[P, L]``: the thresholds, in the expected loss of the zero predictor."""
    if config.has_closed_form:  # a linear model without encoder and readout answers with zeros
        silent = torch.where(ensemble.select(Part.RECURRENT), weights, 0.0)
        with torch.no_grad():
            named = ensemble.layout.named(silent)
            zero = task_loss.loss(ensemble.model, named, task_loss.population(), targets).unsqueeze(-1)
    else:
        with on_processor():
            chance = registry.get(registry.TASK, config.task.name)(config.task).chance()
        zero = weights.new_full((len(weights), 1), chance)
    return zero * weights.new_tensor(THRESHOLDS)


def _points(worst: Worst, stronger: Tensor) -> list[list[Point]]:
    """Of each row, its points: those of the grid, then those of the thresholds with what a stronger search found."""
    radii = worst.radii.tolist()
    grid = [
        [*map(Point, radii, errors, changes)]
        for errors, changes in zip(worst.errors.tolist(), worst.changes.tolist(), strict=True)
    ]
    at = (worst.crossings, worst.errors_at_crossings, worst.at_crossings)
    read = [
        [*map(Point, *own, THRESHOLDS, more)]
        for *own, more in zip(*map(Tensor.tolist, at), stronger.tolist(), strict=True)
    ]
    return [[*along, *points] for along, points in zip(grid, read, strict=True)]


def _stronger(
    ensemble: Ensemble,
    task_loss: TaskLoss[Data],
    data: Data,
    weights: Tensor,
    targets: Tensor,
    ball: str,
    worst: Worst,
    config: PerturbationConfig,
    sample: Sample[Data] | None,
) -> Tensor:
    """The changes that a stronger search finds at the radii of the smallest and the largest threshold, ``[P, L]``.

    It runs on the replicas of the first ``SEEDS_OF`` of each ``stronger_every`` seeds; nan elsewhere.
    """
    found, every = torch.full_like(worst.crossings, torch.nan), config.stronger_every
    rows = [row for row, replica in enumerate(ensemble.replicas) if every and replica.seed % every < SEEDS_OF]
    if config.method != "worst_case" or not rows:
        return found
    ends = [0, len(THRESHOLDS) - 1]
    size = ensemble.rows if ensemble.rows == 1 or sample is not None else max(1, ensemble.rows // _PARTS)
    for own, taken in in_groups(rows, size):
        part, numbers = ensemble.part(own, size), (data, weights[taken], targets[taken], ball, config)
        radii, known = worst.crossings[taken][:, ends], worst.at_crossings[taken][:, ends]
        changes = stronger_change(part, task_loss, *numbers, radii, known, sample)
        found[torch.tensor(own).unsqueeze(1), torch.tensor(ends)] = changes[: len(own)]
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
    size = rows_together(ensemble, config)
    for seed, rows in rows_by_seed(ensemble).items():
        data = task_loss.data(stream, seed, size_of_all)
        sample = None
        if not config.has_closed_form:
            few, more = (task_loss.data(stream, seed, min(count, size_of_all)) for count in (FEW, MORE))
            sample = Sample(few, more)
        for own, taken in in_groups(rows, size):
            yield taken, ensemble.part(own, size), data, sample


def _sequences(data: object, ensemble: Ensemble, like: Tensor) -> Tensor:
    """Sequences for gradient norms; where errors are exact, the model is linear and its Jacobians do not depend on
    them.

    Returns:
        ``[B, T, I]``, or symbols ``[B, T]``.
    """
    return data.inputs if isinstance(data, Batch) else like.new_zeros(1, ensemble.model.signature.horizon, 1)
