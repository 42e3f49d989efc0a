"""The measurement of trained replicas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from memsweep.config.schema.trial import TrialConfig, mixes_models, refers_elsewhere
from memsweep.learning.ensemble.replicas import Ensemble, stability_margin
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.state.trained import Trained, TrainedEnsemble
from memsweep.models.base import Model, Part, Weights
from memsweep.outcome import Outcome
from memsweep.stability.evaluation import Point, evaluate
from memsweep.stability.gradients import gradient_bounds
from memsweep.stability.memory_function import memory_function
from memsweep.stability.perturbation.error import project
from memsweep.stability.perturbation.moved import reading_of
from memsweep.stability.side import attempt


@dataclass(frozen=True)
class Measurement:
    """The measurement of one replica. Where it diverged, errors are inf, and metrics of the trained weights nan.

    Attributes:
        trained: what was measured, and how its training went.
        error: on the test data, without perturbation.
        curves: by ball, errors and changes at radius 0, along the radii of the grid, and at those of the thresholds.
        metrics: the task's, by name.
        memory: memory function by lag.
        gradient: norm of the gradient of the last state by the state ``lag`` steps before; empty without Jacobians.
        gradient_bound: upper bound of that norm by lag; empty where none is known.
        margin: 1 - max |eigenvalue|.
        encoder_norm, readout_norm: Euclidean norms of the weights.
        micro_batch: sequences of a batch that were computed at a time; None where batches were not split.
        reading: what the changes of the curves are.
        scale: what they are shares of, where that is not the zero predictor's loss.
        failures: measurements that failed, and why; their values are nan or empty.
        tables: further measurements that were asked for: name of a table of results -> its rows of this replica.
    """

    trained: Trained
    error: float
    curves: dict[str, list[Point]]
    metrics: dict[str, float]
    memory: list[float]
    gradient: list[float]
    gradient_bound: list[float]
    margin: float
    encoder_norm: float
    readout_norm: float
    micro_batch: int | None
    reading: str
    failures: tuple[str, ...] = ()
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    scale: float = math.nan


def measure(
    pack: TrainedEnsemble, task_loss: TaskLoss[Data], config: TrialConfig
) -> dict[int, tuple[int, Measurement]]:
    """Measure the real replicas of one ensemble at their best weights.

    Args:
        pack: the trained replicas.
        task_loss: of the errors; training may have had another one.
        config: any trial of the pack: they share all fields that are used here.

    Returns:
        Row of each real replica -> the position of its trial in the pack, and the measurement.
    """
    trained, kept = pack.ensemble, pack.weights
    ensemble, task_loss, weights, targets = errors_taken_of(pack, task_loss, config)
    diverged_rows = {row for row, replica in pack.replicas.items() if replica.outcome is Outcome.DIVERGED}
    alive = [row not in diverged_rows for row in range(len(ensemble.replicas))]
    failures: list[str] = []
    evaluations = evaluate(ensemble, task_loss, weights, targets, alive, config, failures)
    with torch.no_grad():
        named = ensemble.layout.named(weights)
        horizon = ensemble.model.signature.horizon
        memory = attempt("memory function", lambda: memory_function(ensemble.model, named, horizon), failures)
        bounds = attempt("gradient bound", lambda: gradient_bounds(ensemble.model, named, horizon), failures)
        margin = attempt("stability margin", lambda: stability_margin(ensemble, weights), failures)
        norms = {part: _norms(trained, kept, part) for part in (Part.ENCODER, Part.READOUT)}
    measurements = {}
    for row, evaluation in evaluations.items():
        diverged = row in diverged_rows
        measurement = Measurement(
            trained=pack.replicas[row],
            error=math.inf if diverged else evaluation.error,
            curves={ball: _lost(points) if diverged else points for ball, points in evaluation.curves.items()},
            metrics={name: math.nan if diverged else value for name, value in evaluation.metrics.items()},
            memory=[math.nan] * horizon if memory is None else memory[row].tolist(),
            gradient=evaluation.gradient,
            gradient_bound=[] if bounds is None or diverged else bounds[row].tolist(),
            margin=math.nan if margin is None else float(margin[row]),
            encoder_norm=float(norms[Part.ENCODER][row]),
            readout_norm=float(norms[Part.READOUT][row]),
            micro_batch=pack.micro_batch,
            reading=reading_of(config.perturbation, task_loss),
            failures=tuple(dict.fromkeys(failures)),
        )
        if refers_elsewhere(config.perturbation):
            measurement = replace(measurement, reading=config.perturbation.reference, scale=evaluation.scale)
        measurements[row] = (ensemble.replicas[row].trial, measurement)
    return measurements


def _lost(points: Sequence[Point]) -> list[Point]:
    """The curve of a diverged replica, which approximates nothing: inf at every radius, without those of thresholds."""
    return [Point(point.radius, math.inf, math.inf) for point in points if math.isnan(point.threshold)]


def errors_taken_of(
    pack: TrainedEnsemble, task_loss: TaskLoss[Data], config: TrialConfig
) -> tuple[Ensemble, TaskLoss[Data], Tensor, Tensor]:
    """The ensemble whose errors are measured, their loss in micro-batches, its weights ``[rows, size]``, the targets.

    Arguments as of ``measure``.
    """
    task_loss = pack.split(task_loss)
    projected = config.perturbation.projected
    ensemble, weights = project(pack.ensemble, pack.weights) if projected else (pack.ensemble, pack.weights)
    return ensemble, task_loss, weights, ensemble.spread([task_loss.target(each.trial) for each in ensemble.replicas])


def with_table(
    measured: dict[int, tuple[int, Measurement]],
    pack: TrainedEnsemble,
    table: str,
    rows: Callable[[Model, Weights, int], Iterable[Mapping[str, Any]]],
) -> dict[int, tuple[int, Measurement]]:
    """The measurements of an ensemble's replicas, with another table, or with more rows of one that they have.

    Computed replica by replica, so that no number depends on the other replicas. The model of a pack is one of all its
    rows, and means nothing for the weights of one: a replica comes with the model of its own config.

    Args:
        measured: as of ``measure``.
        pack: the trained replicas.
        table: its name; a failure is reported under it.
        rows: of one replica: from its model, that model's stacked weights ``[1, ...]``, and its row in the pack. It is
            not called for a replica that diverged.
    """
    named, found = pack.ensemble.layout.named(pack.weights), dict[int, tuple[int, Measurement]]()

    def of(own: Weights, row: int) -> list[Mapping[str, Any]]:
        if mixes_models(pack.ensemble.replicas[row].model):
            return list(rows(pack.ensemble.part([row], 1).model, own, row))
        # all rows have one config, and their model is that of each
        return list(rows(pack.ensemble.model, own, row))

    for row, (trial, measurement) in measured.items():
        failures, own = list[str](), {name: value[row : row + 1] for name, value in named.items()}
        asked = partial(of, own, row)
        made = attempt(table.replace("_", " "), asked, failures) if math.isfinite(measurement.error) else []
        kept = replace(
            measurement,
            tables={**measurement.tables, table: [*measurement.tables.get(table, ()), *(made or [])]},
            failures=(*measurement.failures, *failures),
        )
        found[row] = trial, kept
    return found


def _norms(ensemble: Ensemble, weights: Tensor, part: Part) -> Tensor:
    chosen = ensemble.select(part)
    return torch.where(chosen, weights, 0.0).norm(dim=-1)
