"""One ensemble in training: its weights, its optimizer, and what has become of each replica."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from memsweep.config.schema.trial import TrainingConfig
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.problem import Problem
from memsweep.learning.training.gradient_alignment import Alignment
from memsweep.learning.training.gradient_over_weight import GradientOverWeight
from memsweep.learning.training.lr_schedule import Plateau
from memsweep.learning.training.micro_batches import micro_batch
from memsweep.learning.training.optimizer import Optimizer, optimizer_for
from memsweep.learning.training.weight_groups import GroupSettings
from memsweep.models.base import Part
from memsweep.rules.batched import learning_by

BPTT = "bptt"


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
        alignment: how well they point where those of backpropagation do.
        micro_batch: sequences that are computed at a time; None: the problem does not split batches.
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
    alignment: Alignment
    rule: str = BPTT
    micro_batch: int | None = None
    carried: Tensor | None = None
    history: list[tuple[int, Tensor, Tensor]] = field(default_factory=list)

    @staticmethod
    def start(ensemble: Ensemble, problem: Problem, training: TrainingConfig) -> Learner:
        rows, weights = ensemble.rows, ensemble.initial
        replicas = ensemble.replicas
        learner = Learner(
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
            alignment=Alignment.start(ensemble, training),
            rule=training.rule,
            carried=problem.first_states(ensemble.model, ensemble.layout.named(weights), training.batch_size),
        )
        learner.micro_batch = micro_batch(learner, problem, training)
        return learner

    @property
    def seeds(self) -> list[int]:
        """Seed of every row; the dummies repeat the first."""
        seeds = [replica.seed for replica in self.ensemble.replicas]
        return seeds + seeds[:1] * (self.ensemble.rows - len(seeds))

    @property
    def live(self) -> Tensor:
        """The replicas that are still in training: ``[rows]``, bool."""
        return self.running & self.ensemble.real

    def split(self, problem: Problem) -> Problem:
        """The problem, with batches in pieces of the learner's size."""
        return problem if self.micro_batch is None else problem.in_chunks(self.micro_batch)

    def losses(self, problem: Problem, data: Any, weights: Tensor, live: Tensor) -> Tensor:
        """Losses ``[rows]`` of flat weights ``[rows, size]``; those of rows that are not live mean nothing."""
        named, split = self.ensemble.layout.named(weights), self.split(problem)

        def loss(part: Any) -> list[Tensor]:
            return [split.loss(self.ensemble.model, named, part, self.targets, live)]

        return problem.summed(data, loss, weights, live)[0]

    @contextmanager
    def in_training(self, step: int) -> Iterator[None]:
        """While the context lasts, the models compute as they do in this step of training."""
        model = self.ensemble.model
        model.train()
        model.stir(self.seeds, step)
        try:
            yield
        finally:
            model.eval()

    def descent(self, problem: Problem, data: Any, rule: str | None = None) -> tuple[Tensor, Tensor]:
        """Losses ``[rows]`` of the weights as they are, and gradients, the caller's to change.

        What the models hold at the end of the batch is kept for the next one.

        Args:
            problem: that is learnt.
            data: of a batch.
            rule: by which gradients are computed; None: the learner's own.
        """
        live, split = self.live, self.split(problem)

        def descent(part: Any) -> list[Tensor]:
            return self._gradient(split, part, rule or self.rule, live)

        loss, gradient = problem.summed(data, descent, self.weights, live)
        return loss, gradient

    def rehearse(self, problem: Problem, data: Any) -> None:
        """Compute gradients on a part of a batch, all of it at a time, for the sake of their memory; nothing stays.

        No row is live: that takes as much memory, and no time where rows are passed over. Beside a rule's gradient
        comes that of backpropagation, whether or not the two will be compared: so comparing moves no bit.
        """
        carried, count = self.carried, len(data.targets)
        for rule in dict.fromkeys((self.rule, BPTT)):
            with self.in_training(0):
                self._gradient(problem.in_chunks(count), data, rule, torch.zeros_like(self.running))
            self.carried = carried

    def _gradient(self, problem: Problem, part: Any, rule: str, live: Tensor) -> list[Tensor]:
        """Losses and gradients by a rule.

        The weights are differentiated name by name: through the flat tensor, every name would cost a gradient of
        the flat tensor's size.
        """
        model, layout = self.ensemble.model, self.ensemble.layout
        named = {name: value.requires_grad_(True) for name, value in layout.named(self.weights).items()}
        with learning_by(rule, model):
            loss, self.carried = problem.loss_from(model, named, part, self.targets, self.carried, live)
            # a model may leave a weight out of its output; its gradient is zero
            found = torch.autograd.grad(loss.sum(), list(named.values()), allow_unused=True, materialize_grads=True)
        return [loss.detach(), layout.flat(dict(zip(named, found, strict=True)))]
