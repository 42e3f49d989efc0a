"""The loss of models on a task: the interface that training and measurement use.

A task loss draws a stream's batch, prepares it once, and computes its loss for every ensemble of a pack. Sequences are
drawn on the processor, where a stream is the same for every device, and prepared on torch's default device.

Letters: N leading dimensions (replicas, then copies), B sequences, M numbers of a state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Self, TypeVar

import torch
from torch import Tensor

from memsweep.data.task import Batch
from memsweep.models.base import Model, Weights
from memsweep.streams import Stream

CHUNK = 256
"""Largest number of sequences that are computed at a time unless a caller sets another one."""

Data = TypeVar("Data")
"""A prepared batch: whatever the task loss that prepared it computes losses from."""


class TaskLoss(ABC, Generic[Data]):
    """Losses of models of one program. The trials' tasks may differ in their ``target`` alone."""

    @abstractmethod
    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """Batch ``index`` of a stream, on the processor."""

    def select(self, batch: Batch, rows: Tensor) -> Batch:
        """The sequences of a batch at these positions."""
        return Batch(batch.inputs[rows], batch.targets[rows])

    @abstractmethod
    def prepare(self, batch: Batch) -> Data:
        """The prepared form of a batch, from which ``loss`` is computed."""

    def data(self, stream: Stream, index: int, size: int) -> Data:
        """Batch ``index`` of a stream, drawn and prepared."""
        return self.prepare(self.draw(stream, index, size))

    def sample(self, stream: Stream, size: int, count: int) -> Data:
        """``count`` prepared sequences to measure memory on; sequences repeat where the batch has fewer.

        Args:
            stream, size: of the batch that they come from, the first of the stream.
            count: number of sequences.
        """
        batch = self.draw(stream, 0, size)
        return self.prepare(self.select(batch, torch.arange(count, device="cpu") % len(batch.inputs)))

    def splits(self, model: Model) -> bool:
        """Whether losses of this model are computed in chunks of sequences."""
        del model
        return False

    def in_chunks(self, size: int) -> Self:
        """The same task loss, with chunks of ``size`` sequences where it splits batches."""
        del size
        return self

    @abstractmethod
    def population(self) -> Data:
        """Data of the expected loss over all sequences (raises TypeError where it has no closed form)."""

    @abstractmethod
    def target(self, trial: int) -> Tensor:
        """The difference between the task of this trial of the pack and the others' tasks."""

    @abstractmethod
    def loss(self, model: Model, weights: Weights, data: Data, targets: Tensor, live: Tensor | None = None) -> Tensor:
        """Losses of stacked weights, differentiable once.

        Args:
            model: of all replicas.
            weights: ``[N, ..., *shape]``: replicas first, then any number of copies.
            data: from ``prepare``.
            targets: one per replica, broadcast over the copies.
            live: bool, one per replica: whose losses are needed (None: all). The other losses may be any finite
                numbers; kernels that can do so skip these replicas.

        Returns:
            ``[N, ...]``.
        """

    @abstractmethod
    def squared_change(self, model: Model, weights: Weights, start: Weights, data: Data) -> Tensor:
        """Mean squared difference of the outputs at two sets of weights, ``[N]``, in no graph.

        Args:
            model, data: as for ``loss``.
            weights, start: stacked, ``[N, *shape]``.
        """

    @property
    def has_distance(self) -> bool:
        """Whether the loss is a squared error, so that ``distance`` is one in the same norm."""
        return False

    def distance(
        self, model: Model, weights: Weights, start: Weights, data: Data, live: Tensor | None = None
    ) -> Tensor:
        """Losses with the outputs at other weights of the same models in the place of the targets.

        Args:
            model, weights, data, live: as for ``loss``.
            start: the other weights: ``[N, 1, *shape]``, or as many copies as ``weights`` has.

        Returns:
            ``[N, ...]``, differentiable once by ``weights``; raises TypeError without ``has_distance``.
        """
        raise TypeError("please report this: a loss that is no squared error was asked for a distance")

    def gradient(self, model: Model, weights: Tensor, data: Data, live: Tensor) -> tuple[Tensor, Tensor] | None:
        """Losses and their gradients at once, where one call of the model's gives both; for tasks without states.

        Args:
            model, data, live: as for ``loss``.
            weights: ``[N, S]``, flat, in the order of the model's roles.

        Returns:
            ``[N]`` and ``[N, S]``; None by default: differentiate ``loss``.
        """
        del model, weights, data, live
        return None

    def flat_gradient(
        self, model: Model, weights: Tensor, data: Data, targets: Tensor, live: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """``gradient`` by kernels that read flat weights where they lie, and may need the targets; None by default."""
        del model, weights, data, targets, live
        return None

    def metrics(self, model: Model, weights: Weights, data: Data) -> dict[str, Tensor]:
        """The task's metrics, ``[N]`` each; none by default."""
        del model, weights, data
        return {}

    def first_states(self, model: Model, weights: Weights, size: int) -> Tensor | None:
        """States of the models before the first training step.

        Args:
            model, weights: as for ``loss``, without copies.
            size: sequences in a training batch.

        Returns:
            ``[N, size, M]`` for a ``CarriedTask``; None for all other tasks, whose batches are independent.
        """
        del model, weights, size
        return None

    def loss_from(
        self,
        model: Model,
        weights: Weights,
        data: Data,
        targets: Tensor,
        states: Tensor | None,
        live: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """``loss`` of models that continue from the states of the batch before.

        Args:
            states: ``[N, ..., B, M]`` at the end of the batch before; None for zeros, or where no state is carried.

        Returns:
            The losses, and the states after this batch, without gradient; None where no state is carried.
        """
        del states
        return self.loss(model, weights, data, targets, live), None
