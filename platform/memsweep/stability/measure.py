"""Everything that is measured on a trained replica."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.config.schema.trial import TrialConfig
from memsweep.data.task import Batch
from memsweep.learning.ensemble.replicas import Ensemble, stability_margin
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.training.gradient_alignment import Comparison
from memsweep.learning.training.learner import Learner
from memsweep.models.base import Part
from memsweep.outcome import Outcome
from memsweep.stability.gradients import gradient_bounds, gradient_norms
from memsweep.stability.memory_function import memory_function
from memsweep.stability.perturbation.error import perturbation_error
from memsweep.stability.perturbation.projection import project
from memsweep.streams import TEST, Stream


@dataclass(frozen=True)
class Measurement:
    """What was measured on one replica; errors are inf, and figures of the trained weights nan, where it diverged.

    Of every lag: the memory function, the norm of the gradient of the last state by the one so many steps before it,
    and a bound of that norm; empty where the model does not say its matrices, or where no bound is known. Of a learning
    rule: how its gradients compared with those of backpropagation. ``micro_batch`` is the sequences of a batch that
    were computed at a time; None where batches were not split by number.
    """

    seed: int
    outcome: Outcome
    steps: int
    best_step: int
    validation_loss: float
    error: float
    errors: dict[str, list[float]]
    metrics: dict[str, float]
    memory: list[float]
    gradient: list[float]
    gradient_bound: list[float]
    margin: float
    encoder_norm: float
    readout_norm: float
    gradient_over_weight: dict[str, float]
    history: list[tuple[int, float, float]]
    alignment: list[Comparison]
    micro_batch: int | None


def evaluated_exactly(config: TrialConfig) -> bool:
    """Whether perturbation errors are expectations in closed form rather than means over the test set."""
    error = config.perturbation.error
    return error == "exact" or (error == "auto" and config.has_closed_form)


def evaluation_data(task_loss: TaskLoss[Data], config: TrialConfig) -> Data:
    """The data of a trial's perturbation errors: the expected loss, or the test set."""
    if evaluated_exactly(config):
        return task_loss.population()
    return task_loss.data(Stream(config.training.data_seed, TEST), 0, config.perturbation.test_size)


def measure(
    learner: Learner, task_loss: TaskLoss[Data], data: Data, config: TrialConfig
) -> list[tuple[int, Measurement]]:
    """Measure the real replicas of one ensemble at their best weights.

    Args:
        learner: after training.
        task_loss, data: of the errors, from ``evaluation_data``; training may have had another task loss.
        config: any trial of the pack: they share what matters here.

    Returns:
        For each replica, the position of its trial in the pack, and the measurement.
    """
    trained, kept, task_loss = learner.ensemble, learner.best_weights, learner.split(task_loss)
    ensemble, weights = project(trained, kept) if config.perturbation.projected else (trained, kept)
    targets = ensemble.spread([task_loss.target(replica.trial) for replica in ensemble.replicas])
    errors = {
        ball: perturbation_error(ensemble, task_loss, data, weights, targets, ball, config.perturbation)
        for ball in config.perturbation.balls
    }
    with torch.no_grad():
        named = ensemble.layout.named(weights)
        error = task_loss.loss(ensemble.model, named, data, targets)
        metrics = task_loss.metrics(ensemble.model, named, data)
        horizon = ensemble.model.signature.horizon
        memory = memory_function(ensemble.model, named, horizon)
        lost = [bool(diverged) for diverged in learner.diverged.tolist()]
        alive = [not lost[row] for row in range(len(ensemble.replicas))]
        gradients = gradient_norms(ensemble.model, named, _sequences(data, horizon, kept), alive)
        bounds = gradient_bounds(ensemble.model, named, horizon)
        margin = stability_margin(ensemble, weights)
        norms = {part: _norms(trained, kept, part) for part in (Part.ENCODER, Part.READOUT)}
        criterion = learner.criterion.summary()
    found = []
    for row, replica in enumerate(ensemble.replicas):
        diverged = lost[row]
        stopped = not diverged and int(learner.steps[row]) < config.training.steps
        measurement = Measurement(
            seed=replica.seed,
            outcome=Outcome.DIVERGED if diverged else Outcome.STOPPED_EARLY if stopped else Outcome.DONE,
            steps=int(learner.steps[row]),
            best_step=int(learner.best_step[row]),
            validation_loss=math.inf if diverged else float(learner.best_loss[row]),
            error=math.inf if diverged else _finite_or_inf(float(error[row])),
            # a diverged replica has no approximant: its error is infinite at every radius
            errors={ball: [math.inf if diverged else v for v in e[row].tolist()] for ball, e in errors.items()},
            metrics={name: math.nan if diverged else float(value[row]) for name, value in metrics.items()},
            memory=memory[row].tolist(),
            gradient=[] if gradients is None else gradients[row].tolist(),
            gradient_bound=[] if bounds is None or diverged else bounds[row].tolist(),
            margin=float(margin[row]),
            encoder_norm=float(norms[Part.ENCODER][row]),
            readout_norm=float(norms[Part.READOUT][row]),
            gradient_over_weight={name: float(value[row]) for name, value in criterion.items()},
            # others of the pack may train on after this replica has ended
            history=[
                (step, float(loss[row]), float(valid[row]))
                for step, loss, valid in learner.history
                if step <= int(learner.steps[row])
            ],
            alignment=learner.alignment.of(row, int(learner.steps[row])),
            micro_batch=learner.micro_batch,
        )
        found.append((replica.trial, measurement))
    return found


def _sequences(data: object, horizon: int, like: Tensor) -> Tensor:
    """Sequences to follow a gradient along; where errors are exact the model is linear, and one is as good as another.

    Returns:
        ``[B, T, I]``, or symbols ``[B, T]``.
    """
    return data.inputs if isinstance(data, Batch) else like.new_zeros(1, horizon, 1)


def _finite_or_inf(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _norms(ensemble: Ensemble, weights: Tensor, part: Part) -> Tensor:
    chosen = ensemble.select(part)
    return torch.where(chosen, weights, 0.0).norm(dim=-1)
