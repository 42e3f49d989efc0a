"""What training made of replicas: their weights, in the shapes of the module itself, and how they were found.

A trained ensemble is all that is measured. It comes from a training that has just ended, or from weights that were
stored or given: both are measured by the same code, with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from memsweep.config.schema.training import TrainingConfig
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.training.learner import Learner
from memsweep.outcome import Outcome


@dataclass(frozen=True)
class Trained:
    """What training made of one replica.

    Attributes:
        seed: of the replica.
        outcome: done, diverged or stopped early.
        steps, best_step: training steps done, and the step of the best validation.
        validation_loss: at the best step; inf where the replica diverged.
        gradient_over_weight: maximum and quantiles of the ratios in training.
        history: step, training loss and validation loss of the kept validations.
        observed: what was measured in training: name of a table -> its rows.
        weights: at the best step, by name, without padding, on the processor.
    """

    seed: int
    outcome: Outcome
    steps: int
    best_step: int
    validation_loss: float
    gradient_over_weight: Mapping[str, float]
    history: Sequence[tuple[int, float, float]]
    observed: Mapping[str, Sequence[Mapping[str, Any]]]
    weights: Mapping[str, Tensor]


@dataclass(frozen=True)
class TrainedEnsemble:
    """An ensemble with the weights that are measured.

    Attributes:
        ensemble: of the models.
        weights: ``[rows, size]``.
        micro_batch: sequences that are computed at a time; None: batches are not split.
        replicas: row of each real replica -> what training made of it.
    """

    ensemble: Ensemble
    weights: Tensor
    micro_batch: int | None
    replicas: Mapping[int, Trained]

    def split(self, task_loss: TaskLoss[Data]) -> TaskLoss[Data]:
        """The task loss, computed in micro-batches."""
        return task_loss if self.micro_batch is None else task_loss.in_chunks(self.micro_batch)


@torch.no_grad()
def trained_ensemble(learner: Learner, training: TrainingConfig) -> TrainedEnsemble:
    """The ensemble of a training that has ended, at its best weights."""
    ensemble, weights = learner.ensemble, learner.best_weights
    real, diverged_rows, criterion = ensemble.real.tolist(), learner.diverged.tolist(), learner.criterion.summary()
    replicas = {}
    for row, replica in enumerate(ensemble.replicas):
        if not real[row]:
            continue
        diverged, steps = diverged_rows[row], int(learner.steps[row])
        stopped = not diverged and steps < training.steps
        replicas[row] = Trained(
            seed=replica.seed,
            outcome=Outcome.DIVERGED if diverged else Outcome.STOPPED_EARLY if stopped else Outcome.DONE,
            steps=steps,
            best_step=int(learner.best_step[row]),
            validation_loss=math.inf if diverged else float(learner.best_loss[row]),
            gradient_over_weight={name: float(value[row]) for name, value in criterion.items()},
            # other replicas of the pack may have trained on after this one stopped
            history=[
                (step, float(loss[row]), float(valid[row])) for step, loss, valid in learner.history if step <= steps
            ],
            observed={each.table: each.of(row, steps) for each in learner.observers},
            weights=ensemble.weights_of(weights, row),
        )
    return TrainedEnsemble(ensemble, weights, learner.micro_batch, replicas)


def restored(learner: Learner, trained: Sequence[Mapping[int, Trained]]) -> TrainedEnsemble:
    """The ensemble as it was when its training ended.

    Args:
        learner: of the ensemble, before its first step: it knows the micro-batches, and holds what is padding.
        trained: for each trial of the pack, seed -> what training made of it.

    Raises:
        ValueError: the stored weights are not those of this model.
    """
    ensemble, weights = learner.ensemble, learner.best_weights.clone()
    replicas = {row: trained[replica.trial][replica.seed] for row, replica in enumerate(ensemble.replicas)}
    for row, replica in replicas.items():
        weights[row] = ensemble.with_weights(weights[row], row, replica.weights)
    weights[len(replicas) :] = weights[0]  # the dummies repeat the first
    return TrainedEnsemble(ensemble, weights, learner.micro_batch, replicas)
