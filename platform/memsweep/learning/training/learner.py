"""One ensemble in training: its weights, its optimizer, and the state of each replica."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from memsweep.config.schema.training import TrainingConfig
from memsweep.learning.ensemble.frozen import freezes_weights, frozen_entries
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import CHUNK, Data, TaskLoss
from memsweep.learning.loss.batch_sharding import ShardedBatch
from memsweep.learning.memory import footprint
from memsweep.learning.training.gradient_over_weight import GradientOverWeight
from memsweep.learning.training.observer import Observer, observers_of
from memsweep.learning.training.optimizer import GroupSettings, Optimizer, Plateau, optimizer_for
from memsweep.models.base import Model, Part
from memsweep.rules.batched import learning_by
from memsweep.streams import TRAIN, Stream

BUDGETS = {"cpu": 1 << 30, "cuda": 16 << 30}
"""Bytes of tensors that the gradient of one micro-batch may hold, by type of device.

One GiB on a processor leaves memory for its other workers. 16 GiB leave half of a common GPU to the data and to the
workspaces of its libraries, which are not counted. Speed does not matter here: smaller micro-batches cost little.
"""


def micro_batch(
    model: Model,
    task_loss: TaskLoss[Data],
    training: TrainingConfig,
    device: str,
    rehearse: Callable[[Data], object],
) -> int | None:
    """Sequences whose losses and gradients are computed at a time; None where batches are not split.

    Args:
        model: of all replicas.
        task_loss: that the model trains on.
        training: ``micro_batch`` decides where it is set. Otherwise the number is a power of two, at most ``CHUNK``.
        device: type of the device that computes.
        rehearse: computes gradients on prepared sequences, all of them at a time, and leaves nothing behind.
    """
    if not task_loss.splits(model):
        return None
    if training.micro_batch:
        return training.micro_batch
    if model.traits(model.config).whole_batch:
        return max(CHUNK, training.batch_size)
    stream = Stream(training.data_seed, TRAIN)

    def work(sequences: int) -> None:
        rehearse(task_loss.sample(stream, training.batch_size, sequences))

    largest = footprint(work, BUDGETS[device]).largest_count(BUDGETS[device])
    return min(CHUNK, 1 << (largest.bit_length() - 1))


BPTT = "bptt"
WHOLE = 1 << 40
"""A chunk of more sequences than any batch has."""


@dataclass
class Learner:
    """One ensemble in training.

    Attributes:
        targets: ``[rows, ...]``, the difference between the replicas' tasks.
        rates: ``[rows]``, learning rates before any schedule.
        weights, best_weights: ``[rows, size]``, now and at the best validation.
        optimizer: its state.
        groups: learning rates and weight decays of groups of weights.
        best: ``[rows]``, smallest validated objective: validation loss plus penalties (inf before the first). Without
            the penalties, a state whose redundant modes are not pruned yet would win.
        best_loss: ``[rows]``, the validation loss of that state.
        best_step: ``[rows]``, the step of that validation.
        stale: ``[rows]``, validations since then.
        running: ``[rows]``, bool: neither diverged nor stopped early.
        diverged: ``[rows]``, bool.
        steps: ``[rows]``, steps done.
        loss: ``[rows]``, of the latest training batch.
        amplitudes: ``[size]``, bool: the weights of encoders and readouts, which pay the amplitude penalty.
        plateau: the learning rates' factors under the schedule ``plateau``.
        criterion: ratios of gradient to weight in training.
        observers: of the measures that are asked for in training.
        rule: name of the learning rule by which gradients are computed.
        micro_batch: sequences that are computed at a time; None: batches are not split.
        carried: ``[rows, B, M]``, the states from which the next batch continues; None where the task carries none.
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
    observers: list[Observer]
    rule: str = BPTT
    micro_batch: int | None = None
    carried: Tensor | None = None
    history: list[tuple[int, Tensor, Tensor]] = field(default_factory=list)

    @staticmethod
    def start(ensemble: Ensemble, task_loss: TaskLoss[Data], training: TrainingConfig) -> Learner:
        """The learner of an ensemble before its first step."""
        rows, weights = ensemble.rows, ensemble.initial
        replicas = ensemble.replicas
        learner = Learner(
            ensemble=ensemble,
            targets=ensemble.spread([task_loss.target(replica.trial) for replica in replicas]),
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
            observers=observers_of(ensemble, training),
            rule=training.rule,
            carried=task_loss.first_states(ensemble.model, ensemble.layout.named(weights), training.batch_size),
        )
        if freezes_weights(ensemble.model):
            learner.amplitudes &= ~frozen_entries(ensemble)
        device = weights.device.type
        learner.micro_batch = micro_batch(
            ensemble.model, task_loss, training, device, lambda data: learner.rehearse(task_loss, data)
        )
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

    def split(self, task_loss: TaskLoss[Data]) -> TaskLoss[Data]:
        """The task loss, computed in the learner's micro-batches."""
        return task_loss if self.micro_batch is None else task_loss.in_chunks(self.micro_batch)

    def losses(self, task_loss: TaskLoss[Data], batch: ShardedBatch[Data], weights: Tensor, live: Tensor) -> Tensor:
        """Losses ``[rows]`` of flat weights ``[rows, size]``; undefined for rows that are not live."""
        named, split = self.ensemble.layout.named(weights), self.split(task_loss)

        def loss(data: Data) -> list[Tensor]:
            return [split.loss(self.ensemble.model, named, data, self.targets, live)]

        return batch.mean(loss, weights, live)[0]

    def output_change(self, task_loss: TaskLoss[Data], batch: ShardedBatch[Data]) -> Tensor:
        """Root mean square of what the outputs changed by since the first step, ``[rows]``."""
        now, before = (self.ensemble.layout.named(weights) for weights in (self.weights, self.ensemble.initial))
        split = self.split(task_loss)

        def change(data: Data) -> list[Tensor]:
            return [split.squared_change(self.ensemble.model, now, before, data)]

        return batch.mean(change, self.weights, self.live)[0].sqrt()

    @contextmanager
    def in_training(self, step: int) -> Iterator[None]:
        """Put the models into training mode for the context, with the random numbers of this step."""
        model = self.ensemble.model
        model.train()
        model.start_step(self.seeds, step)
        try:
            yield
        finally:
            model.eval()

    def gradients(
        self, task_loss: TaskLoss[Data], batch: ShardedBatch[Data], rule: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Losses ``[rows]`` and gradients ``[rows, size]`` at the present weights; the caller may change them in place.

        The states at the end of the batch are kept for the next one.

        Args:
            task_loss: that is learnt.
            batch: of this step.
            rule: by which gradients are computed; None: the learner's own.
        """
        live, split = self.live, self.split(task_loss)

        def gradient(data: Data) -> list[Tensor]:
            return self._gradient(split, data, rule or self.rule, live)

        loss, gradients = batch.mean(gradient, self.weights, live)
        return loss, gradients

    def gradients_at(self, task_loss: TaskLoss[Data], batch: ShardedBatch[Data], weights: Tensor) -> Tensor:
        """Gradients ``[rows, size]`` of the loss by backpropagation at other weights; the learner does not change."""
        live, split = self.live, self.split(task_loss)

        def gradient(data: Data) -> list[Tensor]:
            named = self._leaves(weights)
            return self._differentiated(named, split.loss(self.ensemble.model, named, data, self.targets, live))

        return batch.mean(gradient, weights, live)[1]

    def rehearse(self, task_loss: TaskLoss[Data], data: Data) -> None:
        """Compute gradients on some sequences at a time, to measure their memory; the learner does not change.

        No row is live: that takes as much memory, and no time where kernels skip rows. The gradient of backpropagation
        comes after a rule's, whether or not the two will be compared: so comparing them changes no bit.
        """
        carried = self.carried
        whole = task_loss.in_chunks(WHOLE)
        for rule in dict.fromkeys((self.rule, BPTT)):
            with self.in_training(0):
                self._gradient(whole, data, rule, torch.zeros_like(self.running))
            self.carried = carried

    def _gradient(self, task_loss: TaskLoss[Data], data: Data, rule: str, live: Tensor) -> list[Tensor]:
        """Losses and gradients by a rule."""
        model = self.ensemble.model
        with learning_by(rule, model):
            if self.carried is None:
                known = task_loss.flat_gradient(model, self.weights, data, self.targets, live)
                known = known or task_loss.gradient(model, self.weights, data, live)
                if known is not None:
                    return list(known)
            named = self._leaves(self.weights)
            loss, self.carried = task_loss.loss_from(model, named, data, self.targets, self.carried, live)
            return self._differentiated(named, loss)

    def _leaves(self, weights: Tensor) -> dict[str, Tensor]:
        """The weights by name, to be differentiated: through the flat tensor, every name would cost a gradient of the
        flat tensor's size.
        """
        return {name: value.requires_grad_(True) for name, value in self.ensemble.layout.named(weights).items()}

    def _differentiated(self, named: dict[str, Tensor], loss: Tensor) -> list[Tensor]:
        """Losses and their gradients, ``[rows]`` and ``[rows, size]``."""
        # a model may leave a weight out of its output; its gradient is zero
        leaves, ones = list(named.values()), torch.ones_like(loss)
        gradients = torch.autograd.grad(loss, leaves, ones, allow_unused=True, materialize_grads=True)
        return [loss.detach(), self.ensemble.layout.flat(dict(zip(named, gradients, strict=True)))]
