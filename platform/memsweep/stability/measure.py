"""The measurement of trained replicas."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.config.schema.trial import TrialConfig
from memsweep.learning.ensemble.replicas import Ensemble, stability_margin
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.training.gradient_alignment import Comparison
from memsweep.learning.training.learner import Learner
from memsweep.models.base import Part
from memsweep.outcome import Outcome
from memsweep.stability.evaluation import evaluate
from memsweep.stability.gradients import gradient_bounds
from memsweep.stability.memory_function import memory_function
from memsweep.stability.perturbation.error import project


@dataclass(frozen=True)
class Measurement:
    """The measurement of one replica. Where it diverged, errors are inf, and metrics of the trained weights nan.

    Attributes:
        seed: of the replica.
        outcome: done, diverged or stopped early.
        steps, best_step: training steps done, and the step of the best validation.
        validation_loss: at the best step.
        error: on the test data, without perturbation.
        errors: by ball, the perturbation error at radius 0 and at each radius of the grid.
        metrics: the task's, by name.
        memory: memory function by lag.
        gradient: norm of the gradient of the last state by the state ``lag`` steps before; empty without Jacobians.
        gradient_bound: upper bound of that norm by lag; empty where none is known.
        margin: 1 - max |eigenvalue|.
        encoder_norm, readout_norm: Euclidean norms of the weights.
        gradient_over_weight: maximum and quantiles of the ratios in training.
        history: step, training loss and validation loss of the kept validations.
        alignment: comparisons of the rule's gradients with those of backpropagation.
        micro_batch: sequences of a batch that were computed at a time; None where batches were not split.
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


def measure(learner: Learner, task_loss: TaskLoss[Data], config: TrialConfig) -> dict[int, tuple[int, Measurement]]:
    """Measure the real replicas of one ensemble at their best weights.

    Args:
        learner: after training.
        task_loss: of the errors; training may have had another one.
        config: any trial of the pack: they share all fields that are used here.

    Returns:
        Row of each real replica -> the position of its trial in the pack, and the measurement.
    """
    trained, kept, task_loss = learner.ensemble, learner.best_weights, learner.split(task_loss)
    ensemble, weights = project(trained, kept) if config.perturbation.projected else (trained, kept)
    targets = ensemble.spread([task_loss.target(replica.trial) for replica in ensemble.replicas])
    diverged_rows = learner.diverged.tolist()
    alive = [not diverged for diverged in diverged_rows[: len(ensemble.replicas)]]
    evaluations = evaluate(ensemble, task_loss, weights, targets, alive, config)
    with torch.no_grad():
        named = ensemble.layout.named(weights)
        horizon = ensemble.model.signature.horizon
        memory = memory_function(ensemble.model, named, horizon)
        bounds = gradient_bounds(ensemble.model, named, horizon)
        margin = stability_margin(ensemble, weights)
        norms = {part: _norms(trained, kept, part) for part in (Part.ENCODER, Part.READOUT)}
        criterion = learner.criterion.summary()
    measurements = {}
    for row, evaluation in evaluations.items():
        replica, diverged = ensemble.replicas[row], diverged_rows[row]
        stopped = not diverged and int(learner.steps[row]) < config.training.steps
        measurement = Measurement(
            seed=replica.seed,
            outcome=Outcome.DIVERGED if diverged else Outcome.STOPPED_EARLY if stopped else Outcome.DONE,
            steps=int(learner.steps[row]),
            best_step=int(learner.best_step[row]),
            validation_loss=math.inf if diverged else float(learner.best_loss[row]),
            error=math.inf if diverged else evaluation.error,
            # a diverged replica approximates nothing: its error is infinite at every radius
            errors={ball: [math.inf if diverged else v for v in e] for ball, e in evaluation.errors.items()},
            metrics={name: math.nan if diverged else value for name, value in evaluation.metrics.items()},
            memory=memory[row].tolist(),
            gradient=evaluation.gradient,
            gradient_bound=[] if bounds is None or diverged else bounds[row].tolist(),
            margin=float(margin[row]),
            encoder_norm=float(norms[Part.ENCODER][row]),
            readout_norm=float(norms[Part.READOUT][row]),
            gradient_over_weight={name: float(value[row]) for name, value in criterion.items()},
            # other replicas of the pack may have trained on after this one stopped
            history=[
                (step, float(loss[row]), float(valid[row]))
                for step, loss, valid in learner.history
                if step <= int(learner.steps[row])
            ],
            alignment=learner.alignment.of(row, int(learner.steps[row])),
            micro_batch=learner.micro_batch,
        )
        measurements[row] = (replica.trial, measurement)
    return measurements


def _norms(ensemble: Ensemble, weights: Tensor, part: Part) -> Tensor:
    chosen = ensemble.select(part)
    return torch.where(chosen, weights, 0.0).norm(dim=-1)
