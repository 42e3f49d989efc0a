"""One ensemble in training: its weights, its optimizer, and what has become of each replica."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from memsweep.config.schema import TrainingConfig
from memsweep.learning.criterion import GradientOverWeight
from memsweep.learning.ensemble import Ensemble
from memsweep.learning.groups import GroupSettings
from memsweep.learning.optimizer import Optimizer, optimizer_for
from memsweep.learning.plateau import Plateau
from memsweep.learning.problem import Problem
from memsweep.models.base import Part
from memsweep.rules.batched import learning_by


@dataclass
class Learner:
    """One ensemble in training.

    Attributes:
        weights, best_weights: ``[rows, size]``, now and at the best validation.
        optimizer: its state.
        groups: settings of some weights that are not the training's.
        best: ``[rows]``, least validated objective: validation loss plus penalties (inf before the first). Without
            the penalties a state whose redundant modes are not pruned yet would win.
        best_loss: ``[rows]``, the validation loss of that state.
        best_step: ``[rows]``, the step of that validation.
        stale: ``[rows]``, validations since then.
        running: ``[rows]``, bool: neither diverged nor stopped early.
        diverged: ``[rows]``, bool.
        amplitudes: ``[size]``, bool: the weights of encoders and readouts, which pay the amplitude penalty.
        plateau: the learning rates' factors under the schedule ``plateau``.
        criterion: gradients over weights along the way.
        rule: name of the learning rule by which gradients are computed.
        carried: ``[rows, B, M]``, the states with which the next batch goes on; None where the task carries none.
        history: (step, train losses ``[rows]``, validation losses ``[rows]``).
    """

    ensemble: Ensemble
    targets: Tensor
    rates: Tensor
    weights: Tensor
    best_weights: Tensor
    optimizer: Optimizer
    groups: GroupSettings
    best: Tensor
    best_loss: Tensor
    best_step: Tensor
    stale: Tensor
    running: Tensor
    diverged: Tensor
    steps: Tensor
    loss: Tensor
    amplitudes: Tensor
    plateau: Plateau
    criterion: GradientOverWeight
    rule: str = "bptt"
    carried: Tensor | None = None
    history: list[tuple[int, Tensor, Tensor]] = field(default_factory=list)

    @staticmethod
    def start(ensemble: Ensemble, problem: Problem, training: TrainingConfig) -> Learner:
        rows, weights = ensemble.rows, ensemble.initial
        replicas = ensemble.replicas
        return Learner(
            ensemble=ensemble,
            targets=ensemble.spread([problem.target(replica.trial) for replica in replicas]),
            rates=ensemble.spread([replica.learning_rate for replica in replicas]).to(weights.dtype),
            weights=weights.clone(),
            best_weights=weights.clone(),
            optimizer=optimizer_for(weights, training),
            groups=GroupSettings.of(ensemble, training),
            best=torch.full((rows,), math.inf, dtype=weights.dtype),
            best_loss=torch.full((rows,), math.inf, dtype=weights.dtype),
            best_step=torch.zeros(rows, dtype=torch.long),
            stale=torch.zeros(rows, dtype=torch.long),
            running=torch.ones(rows, dtype=torch.bool),
            diverged=torch.zeros(rows, dtype=torch.bool),
            steps=torch.zeros(rows, dtype=torch.long),
            loss=torch.full((rows,), math.nan, dtype=weights.dtype),
            amplitudes=ensemble.select(Part.ENCODER, Part.READOUT),
            plateau=Plateau.start(rows, weights.dtype),
            criterion=GradientOverWeight.start(ensemble),
            rule=training.rule,
            carried=problem.first_states(ensemble.model, ensemble.layout.named(weights), training.batch_size),
        )

    @property
    def seeds(self) -> list[int]:
        """Seed of every row; the dummies repeat the first."""
        seeds = [replica.seed for replica in self.ensemble.replicas]
        return seeds + seeds[:1] * (self.ensemble.rows - len(seeds))

    @property
    def live(self) -> Tensor:
        """The replicas that are still in training: ``[rows]``, bool."""
        return self.running & self.ensemble.real

    def losses(self, problem: Problem, data: Any, weights: Tensor, live: Tensor) -> Tensor:
        """Losses ``[rows]`` of flat weights ``[rows, size]``; those of rows that are not live mean nothing."""
        named = self.ensemble.layout.named(weights)

        def loss(part: Any) -> list[Tensor]:
            return [problem.loss(self.ensemble.model, named, part, self.targets, live)]

        return problem.summed(data, loss, weights, live)[0]

    def descent(self, problem: Problem, data: Any) -> tuple[Tensor, Tensor]:
        """Losses ``[rows]`` of the weights as they are, and gradients by the rule, the caller's to change.

        What the models hold at the end of the batch is kept for the next one.

        The weights are differentiated name by name: through the flat tensor, every name would cost a gradient of
        the flat tensor's size.
        """
        named = {name: value.requires_grad_(True) for name, value in self.ensemble.layout.named(self.weights).items()}
        live = self.live

        def descent(part: Any) -> list[Tensor]:
            loss, self.carried = problem.loss_from(self.ensemble.model, named, part, self.targets, self.carried, live)
            # a model may leave a weight out of its output; its gradient is zero
            found = torch.autograd.grad(loss.sum(), list(named.values()), allow_unused=True, materialize_grads=True)
            return [loss.detach(), self.ensemble.layout.flat(dict(zip(named, found, strict=True)))]

        with learning_by(self.rule, self.ensemble.model):
            loss, gradient = problem.summed(data, descent, self.weights, live)
        return loss, gradient
