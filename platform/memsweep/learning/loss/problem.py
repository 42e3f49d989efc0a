"""The loss of an ensemble on a task: exactly, through the impulse response, or over sampled sequences.

A problem turns a stream's batch into data once, and the data into losses for every ensemble of a pack. Sequences are
drawn on the processor, where their stream is the same whatever the device, and prepared on torch's default device.

Letters: N leading dimensions (replicas, then copies).
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from memsweep.data import symbols
from memsweep.data.api import Batch, CarriedTask, LinearFunctionalTask, Stream, Task
from memsweep.learning.loss.gradient_accumulation import Accumulated
from memsweep.models.base import Model, Weights, as_layer, as_linear, leading_shape, repeated
from memsweep.recurrence.layer_outputs import squared_loss
from memsweep.recurrence.linear.gram import Gram
from memsweep.recurrence.padding import aligned

Parts = list[tuple[float, Any]]
"""Parts of a batch: the share of its sequences that each holds, and what ``Problem.loss`` needs of them."""

CHUNK = 256
"""Sequences that are computed at a time unless somebody says otherwise."""


class Problem(ABC):
    """Losses of models of one program; ``targets`` is what differs between the replicas' tasks."""

    @abstractmethod
    def sequences(self, stream: Stream, index: int, size: int) -> Any:
        """The sequences of a batch, as they were drawn."""

    @abstractmethod
    def chosen(self, sequences: Any, rows: Tensor) -> Any:
        """Some of these sequences, by position."""

    @abstractmethod
    def prepared(self, sequences: Any) -> Any:
        """What ``loss`` needs of a batch."""

    def data(self, stream: Stream, index: int, size: int) -> Any:
        """A batch, drawn and prepared."""
        return self.prepared(self.sequences(stream, index, size))

    def metrics(self, model: Model, weights: Weights, data: Any) -> dict[str, Tensor]:
        """What the task reports beside its loss, ``[N]`` each; nothing by default."""
        del model, weights, data
        return {}

    def splits(self, model: Model) -> bool:
        """Whether losses of such a model are computed some sequences at a time."""
        del model
        return False

    def in_chunks(self, size: int) -> Self:
        """The same problem, where it splits batches with so many sequences at a time."""
        del size
        return self

    def sample(self, stream: Stream, size: int, count: int) -> Any:
        """As many sequences as asked, prepared, to measure work on; asked of problems that split.

        Args:
            stream, size: of the batch that they come from, the first of the stream.
            count: how many; one may come twice where there are no more.
        """
        raise NotImplementedError(f"please report this: {type(self).__name__} does not split batches")

    @abstractmethod
    def population(self) -> Any:
        """Data that stands for all sequences at once (raises TypeError where no closed form exists)."""

    @abstractmethod
    def target(self, trial: int) -> Tensor:
        """What tells the task of this trial of the pack from the others."""

    @abstractmethod
    def loss(self, model: Model, weights: Weights, data: Any, targets: Tensor, live: Tensor | None = None) -> Tensor:
        """Losses of stacked weights, differentiable once.

        Args:
            model: of all replicas.
            weights: ``[N, ..., *shape]``: replicas first, then any number of copies.
            data: from ``prepared``.
            targets: one per replica, broadcast over the copies.
            live: bool, one per replica: whose losses matter (None: all). The others' may be anything finite; where
                that saves work, they are passed over.

        Returns:
            ``[N, ...]``.
        """

    def first_states(self, model: Model, weights: Weights, size: int) -> Tensor | None:
        """What models hold before the first training step.

        Args:
            model, weights: as for ``loss``, without copies.
            size: sequences in a training batch.

        Returns:
            ``[N, size, M]``; None where every batch stands for itself: all problems but those of a ``CarriedTask``.
        """
        del model, weights, size
        return None

    def loss_from(
        self,
        model: Model,
        weights: Weights,
        data: Any,
        targets: Tensor,
        states: Tensor | None,
        live: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """``loss`` of models that go on from the batch before.

        Args:
            states: ``[N, ..., B, M]``, in which they ended it; None: where nothing is carried, and for zeros.

        Returns:
            The losses, and the states after this batch, without gradient; None where nothing is carried.
        """
        del states
        return self.loss(model, weights, data, targets, live), None

    def summed(
        self, data: Any, compute: Callable[[Any], Sequence[Tensor]], weights: Tensor, live: Tensor
    ) -> Sequence[Tensor]:
        """Means over a batch (losses, gradients) that are computed on it, or on its parts wherever these are.

        Args:
            data: from ``prepared``.
            compute: gives the means over data that ``loss`` can take.
            weights, live: ``[rows, size]`` and ``[rows]``, at which they are computed.
        """
        del weights, live
        return compute(data)


class QuadraticProblem(Problem):
    """Linear models on linear functionals: the loss is a quadratic form of the kernel error. Exact and cheap.

    The time axis is padded to an aligned size with steps of weight zero; the weights carry the change of length.
    """

    def __init__(self, tasks: Sequence[LinearFunctionalTask], dtype: torch.dtype) -> None:
        self.task = tasks[0]
        self.dtype = dtype
        self.steps = aligned(self.task.horizon)
        self.kernels = [self._padded(task.kernel()) for task in tasks]
        self.weights = self._padded(self.task.weights()) * math.sqrt(self.steps / self.task.horizon)

    def _padded(self, values: Tensor) -> Tensor:
        return pad(values, (0, self.steps - values.shape[-1])).to(torch.get_default_device(), self.dtype)

    def sequences(self, stream: Stream, index: int, size: int) -> Tensor:
        return self.task.white_noise(stream, index, size)

    def chosen(self, sequences: Tensor, rows: Tensor) -> Tensor:
        return sequences[rows]

    def prepared(self, sequences: Tensor) -> Gram:
        return Gram.of_batch(self._padded(sequences), self.weights)

    def population(self) -> Gram:
        return Gram.population(self.weights, self.task.variance)

    def target(self, trial: int) -> Tensor:
        return self.kernels[trial]

    def loss(self, model: Model, weights: Weights, data: Gram, targets: Tensor, live: Tensor | None = None) -> Tensor:
        linear = as_linear(model)
        assert linear is not None, "please report this: a nonlinear model reached the linear path"
        response = linear.response(weights, self.steps)
        error = response.kernel[..., 0, 0, :] - targets
        return data.loss(error, response.drift[..., 0, :])


class Chunk(NamedTuple):
    """Some sequences of a batch, one behind the other.

    Attributes:
        batch: the sequences as they were drawn: what the task understands.
        inputs: what a model reads of them, ``[B, T, I]``.
        share: of the sequences of the whole batch.
    """

    batch: Batch
    inputs: Tensor
    share: float


class SampledProblem(Problem):
    """Any model on any task: the model runs over the sequences.

    A squared error of a model that is one recurrent layer is computed with its gradient in one pass, in little memory.
    Otherwise memory is bounded by one chunk of sequences: gradients are accumulated chunk by chunk, and symbols become
    vectors in the chunk that they are in.

    Args:
        task: what is learnt.
        dtype: of weights and data.
        chunk: sequences that are computed at a time.
    """

    def __init__(self, task: Task, dtype: torch.dtype, chunk: int = CHUNK) -> None:
        self.task = task
        self.dtype = dtype
        self.chunk = chunk
        squares = task.squared_weights()
        self.squares = None if squares is None else squares.to(torch.get_default_device(), dtype)

    def sequences(self, stream: Stream, index: int, size: int) -> Batch:
        return self.task.draw(stream, index, size)

    def chosen(self, sequences: Batch, rows: Tensor) -> Batch:
        return Batch(sequences.inputs[rows], sequences.targets[rows])

    def prepared(self, sequences: Batch) -> Batch:
        name = getattr(self.task.config, "name", type(self.task).__name__)
        inputs = symbols.checked(sequences.inputs, self.task.inputs, name)
        # the kernels read both in their order, once for every slice of copies
        return Batch(self._here(inputs).contiguous(), self._here(sequences.targets).contiguous())

    def _here(self, values: Tensor) -> Tensor:
        device = torch.get_default_device()
        return values.to(device, self.dtype) if values.is_floating_point() else values.to(device)

    def splits(self, model: Model) -> bool:
        return not self._in_one_pass(model)

    def in_chunks(self, size: int) -> Self:
        if size == self.chunk:
            return self
        other = copy.copy(self)
        other.chunk = size
        return other

    def sample(self, stream: Stream, size: int, count: int) -> Batch:
        return self.prepared(self._repeated(self.sequences(stream, 0, size), count))

    def _repeated(self, sequences: Batch, count: int) -> Batch:
        """The first ``count`` sequences, from the beginning again where there are fewer."""
        return self.chosen(sequences, torch.arange(count, device="cpu") % len(sequences.inputs))

    @torch.no_grad()
    def metrics(self, model: Model, weights: Weights, data: Batch) -> dict[str, Tensor]:
        totals: dict[str, Tensor] = {}
        for part in self._chunks(model, data):
            for name, value in self.task.metrics(model.outputs(weights, part.inputs), part.batch).items():
                totals[name] = totals.get(name, torch.zeros_like(value)) + part.share * value
        return totals

    def _chunks(self, model: Model, data: Batch) -> Iterator[Chunk]:
        """The chunks of a batch, in order; the model knows which is its turn."""
        parts = zip(data.inputs.split(self.chunk), data.targets.split(self.chunk), strict=True)
        try:
            for place, (inputs, targets) in enumerate(parts):
                model.first_row = place * self.chunk
                share = inputs.shape[0] / data.inputs.shape[0]
                yield Chunk(Batch(inputs, targets), self._read(inputs), share)
        finally:
            model.first_row = 0

    def _in_one_pass(self, model: Model) -> bool:
        """Whether losses come, with their gradients, from kernels that keep no sequence's states."""
        return as_layer(model) is not None and self.squares is not None

    def _read(self, inputs: Tensor) -> Tensor:
        return symbols.as_read(inputs, self.task.inputs, self.dtype)

    def population(self) -> Batch:
        raise TypeError(f"the task {self.task.config.name!r} with this model has no closed form of its expected loss")

    def target(self, trial: int) -> Tensor:
        return torch.zeros(())

    def loss(self, model: Model, weights: Weights, data: Batch, targets: Tensor, live: Tensor | None = None) -> Tensor:
        in_one_pass = self._squared(model, weights, data, live)
        return in_one_pass if in_one_pass is not None else self._by_chunks(model, weights, data, live)

    def _squared(self, model: Model, weights: Weights, data: Batch, live: Tensor | None) -> Tensor | None:
        single = as_layer(model)
        if single is None or self.squares is None:
            return None
        leading, share = leading_shape(model, weights), 1.0 / data.inputs.shape[0]
        inputs, live = self._read(data.inputs), repeated(live, leading)
        loss = squared_loss(single.layer(weights), inputs, data.targets, share * self.squares, live)
        return None if loss is None else loss.unflatten(0, leading)

    def _by_chunks(self, model: Model, weights: Weights, data: Batch, live: Tensor | None) -> Tensor:
        found = Accumulated(model, weights)
        for part in self._chunks(model, data):
            found.add(self.task.loss(_outputs(model, found.own, part.inputs, live), part.batch) * part.share)
        return found.loss()


def _outputs(model: Model, weights: Weights, inputs: Tensor, live: Tensor | None) -> Tensor:
    single = as_layer(model)
    return model.outputs(weights, inputs) if single is None else single.outputs(weights, inputs, live)


def problem_for(tasks: Sequence[Task], exact: bool, dtype: torch.dtype) -> Problem:
    """The problem of trials of one program.

    Args:
        tasks: one per trial; all equal when not exact.
        exact: the expected loss has a closed form (``TrialConfig.has_closed_form``).
        dtype: of weights and data.
    """
    if exact:
        return QuadraticProblem([task for task in tasks if isinstance(task, LinearFunctionalTask)], dtype)
    if tasks[0].carries_states:
        assert isinstance(tasks[0], CarriedTask), "a task that carries states is a CarriedTask"
        from memsweep.learning.loss.carried_states import CarriedProblem  # which is a SampledProblem

        return CarriedProblem(tasks[0], dtype)
    return SampledProblem(tasks[0], dtype)
