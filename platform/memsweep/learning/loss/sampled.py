"""Losses of any model on any task: the model runs over the sequences of a batch.

Letters: N leading dimensions (replicas, then copies), B sequences, T time, I inputs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from memsweep.data.task import Batch, Task, as_ids, as_read, checked_symbols, on_processor
from memsweep.learning.loss.base import CHUNK, TaskLoss
from memsweep.models.base import Model, Weights, as_layer, leading_shape
from memsweep.recurrence.layer import repeated
from memsweep.recurrence.layer_outputs import flat_squared_loss, layer_outputs, squared_loss
from memsweep.streams import Stream

KEPT = 16 << 20
"""Bytes of a model's own outputs that are kept, from which distances are taken; more are computed anew each time."""


class AccumulatedLoss:
    """The sum of the losses of pieces of data, with the sum of their gradients if the weights require them.

    Args:
        model: of all replicas.
        weights: ``[N, *shape]``, at which the losses are computed.

    Attributes:
        own: copies of the weights; every piece's loss must be computed from them.
    """

    def __init__(self, model: Model, weights: Weights) -> None:
        self.weights = weights
        self.required = torch.is_grad_enabled() and any(value.requires_grad for value in weights.values())
        self.own = {name: value.detach().requires_grad_(self.required) for name, value in weights.items()}
        self.total = next(iter(weights.values())).new_zeros(leading_shape(model, weights))
        self.gradients = [torch.zeros_like(value) for value in self.own.values()] if self.required else []

    def add(self, loss: Tensor) -> None:
        """Add the loss of a piece, ``[N]``, and its gradient; the piece's graph is freed."""
        self.total += loss.detach()
        if not self.required:
            return
        # a model may leave a weight out of its output; its gradient is zero
        gradients = torch.autograd.grad(loss.sum(), list(self.own.values()), allow_unused=True)
        for total, gradient in zip(self.gradients, gradients, strict=True):
            if gradient is not None:
                total += gradient

    def loss(self) -> Tensor:
        """The sum, ``[N]``; differentiable once by the weights if they require gradients."""
        if not self.required:
            return self.total
        loss: Tensor = _KnownGradient.apply(self.total, *self.gradients, *self.weights.values())
        return loss


class _KnownGradient(torch.autograd.Function):
    """A loss ``[N, ...]`` whose gradient by stacked weights was computed with it.

    ``forward`` takes the loss, then the gradients, then as many weights, through which autograd reaches ``backward``.
    """

    @staticmethod
    def forward(ctx: Any, loss: Tensor, *gradients_and_weights: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients_and_weights[: len(gradients_and_weights) // 2])
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (grad_N,) = grads
        scaled = [
            # grad_N with a dimension of 1 for each dimension of the weight: [N, 1, ..., 1] * [N, *shape]
            gradient * grad_N.view(*grad_N.shape, *[1] * (gradient.ndim - grad_N.ndim))
            for gradient in ctx.saved_tensors
        ]
        return None, *[None] * len(scaled), *scaled


class Chunk(NamedTuple):
    """Some consecutive sequences of a batch.

    Attributes:
        batch: the sequences as they were drawn, for the task.
        inputs: ``[B, T, I]``, for the model.
        share: of the sequences of the whole batch.
    """

    batch: Batch
    inputs: Tensor
    share: float


class SampledLoss(TaskLoss[Batch]):
    """The mean loss over the sequences of a batch.

    Where the model is one recurrent layer and the loss a squared error, kernels compute the loss and its gradient in
    one pass and keep no states. Otherwise gradients are accumulated chunk by chunk, so that memory is bounded by one
    chunk of sequences; symbols become one-hot vectors in their chunk.

    Args:
        task: that is learnt.
        dtype: of weights and data.
        chunk: sequences that are computed at a time.
    """

    def __init__(self, task: Task, dtype: torch.dtype, chunk: int = CHUNK) -> None:
        self.task = task
        self.dtype = dtype
        self.chunk = chunk
        squares = task.squared_weights()
        self.squares = None if squares is None else squares.to(torch.get_default_device(), dtype)

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        with on_processor():
            return self.task.draw(stream, index, size)

    def prepare(self, batch: Batch) -> Batch:
        name = getattr(self.task.config, "name", type(self.task).__name__)
        inputs = checked_symbols(batch.inputs, self.task.inputs, name)
        # contiguous: the kernels read both in memory order, once for every slice of copies
        return Batch(self._on_device(inputs).contiguous(), self._on_device(batch.targets).contiguous())

    def _on_device(self, values: Tensor) -> Tensor:
        device = torch.get_default_device()
        return values.to(device, self.dtype) if values.is_floating_point() else values.to(device)

    def splits(self, model: Model) -> bool:
        return as_layer(model) is None or self.squares is None

    def in_chunks(self, size: int) -> Self:
        if size == self.chunk:
            return self
        other = copy.copy(self)
        other.chunk = size
        return other

    def population(self) -> Batch:
        raise TypeError(f"the task {self.task.config.name!r} with this model has no closed form of its expected loss")

    def target(self, trial: int) -> Tensor:
        return torch.zeros(())  # all trials of the pack have one task

    @torch.no_grad()
    def metrics(self, model: Model, weights: Weights, data: Batch) -> dict[str, Tensor]:
        totals: dict[str, Tensor] = {}
        for chunk in self._chunks(model, data):
            for name, value in self.task.metrics(model.outputs(weights, chunk.inputs), chunk.batch).items():
                totals[name] = totals.get(name, torch.zeros_like(value)) + chunk.share * value
        return totals

    @torch.no_grad()
    def squared_change(self, model: Model, weights: Weights, start: Weights, data: Batch) -> Tensor:
        return sum(
            (
                chunk.share
                * (model.outputs(weights, chunk.inputs) - model.outputs(start, chunk.inputs))
                .square()
                .mean((-3, -2, -1))
                for chunk in self._chunks(model, data)
            ),
            start=torch.zeros(()),
        )

    @property
    def has_distance(self) -> bool:
        return self.squares is not None

    @torch.no_grad()
    def own_outputs(self, model: Model, start: Weights, data: Batch) -> list[Tensor] | None:
        """What ``distance`` takes as ``own``: outputs of the chunks of sequences, ``[N, 1, B, T, O]`` each.

        None where a kernel computes them, where they take more than ``KEPT`` bytes, and where bytes are counted: slices
        of copies, on which last bits depend, are as large as without them.
        """
        size = math.prod(leading_shape(model, start)) * math.prod(data.inputs.shape[:2]) * self.task.outputs
        if as_layer(model) is not None or size * self.dtype.itemsize > KEPT or is_in_torch_dispatch_mode():
            return None
        return [model.outputs(start, chunk.inputs) for chunk in self._chunks(model, data)]

    def distance(
        self,
        model: Model,
        weights: Weights,
        start: Weights,
        data: Batch,
        live: Tensor | None = None,
        own: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """See ``TaskLoss.distance``. Without ``own`` outputs, they are computed chunk by chunk, which bounds memory."""
        by_kernels = self._distance_by_kernels(model, weights, start, data, live)
        if by_kernels is not None:
            return by_kernels
        assert self.squares is not None, "please report this: a distance without a squared error"
        squares = self.squares.unsqueeze(-1) / data.inputs.shape[0]
        total = AccumulatedLoss(model, weights)
        for place, chunk in enumerate(self._chunks(model, data)):
            with torch.no_grad():
                before = model.outputs(start, chunk.inputs) if own is None else own[place]
            change = model.outputs(total.own, chunk.inputs) - before
            total.add((change.square() * squares).sum((-3, -2, -1)))
        return total.loss()

    def of_outputs(self, data: Batch) -> Self:
        """The same with a ``distance`` of outputs: itself, or their mean squared difference over steps and outputs."""
        if self.squares is not None:
            return self
        other, steps = copy.copy(self), data.inputs.shape[1]
        other.squares = torch.full((steps,), 1.0 / (steps * self.task.outputs), dtype=self.dtype)
        return other

    @torch.no_grad()
    def own_variance(self, model: Model, weights: Weights, data: Batch) -> Tensor:
        """Variance of the outputs over the sequences, ``[N]``, in the norm of ``distance``."""
        assert self.squares is not None, "please report this: a variance without a squared error"
        mean: Tensor | None = None
        for chunk in self._chunks(model, data):
            part = chunk.share * model.outputs(weights, chunk.inputs).mean(-3)
            mean = part if mean is None else mean + part
        assert mean is not None, "please report this: no sequences"
        total, squares = mean.new_zeros(mean.shape[:-2]), self.squares.unsqueeze(-1) / data.inputs.shape[0]
        for chunk in self._chunks(model, data):
            total += ((model.outputs(weights, chunk.inputs) - mean.unsqueeze(-3)).square() * squares).sum((-3, -2, -1))
        return total

    def _distance_by_kernels(
        self, model: Model, weights: Weights, start: Weights, data: Batch, live: Tensor | None
    ) -> Tensor | None:
        """``distance`` of each replica, because the layer kernels take one target; None where they do not know it."""
        single, leading = as_layer(model), leading_shape(model, weights)
        if single is None or self.squares is None or leading_shape(model, start) != (leading[0], 1):
            return None
        inputs, squares = self._read(model, data.inputs), self.squares / data.inputs.shape[0]
        layer, own, copies = single.layer(weights), single.layer(start), math.prod(leading[1:])
        losses = [
            *(0.0 * layer.offset.sum(-1)).split(copies)
        ]  # those of replicas that are not live, which nobody needs
        for row in range(leading[0]) if live is None else live.nonzero().flatten().tolist():
            with torch.no_grad():
                (target,) = layer_outputs(own.picked(slice(row, row + 1)), inputs)
            loss = squared_loss(layer.picked(slice(row * copies, (row + 1) * copies)), inputs, target, squares)
            if loss is None:
                return None
            losses[row] = loss
        return torch.cat(losses).unflatten(0, leading)

    def loss(self, model: Model, weights: Weights, data: Batch, targets: Tensor, live: Tensor | None = None) -> Tensor:
        in_one_pass = self._one_pass_loss(model, weights, data, live)
        return in_one_pass if in_one_pass is not None else self._accumulated_loss(model, weights, data, live)

    def flat_gradient(
        self, model: Model, weights: Tensor, data: Batch, targets: Tensor, live: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        layer = as_layer(model) if self.squares is not None and weights.is_cpu else None
        flat = None if layer is None else layer.flat_diagonal(weights)
        if flat is None or self.squares is None:
            return None
        inputs, squares = self._read(model, data.inputs), self.squares * (1.0 / data.inputs.shape[0])
        return flat_squared_loss(flat, inputs, data.targets, squares, live)

    def gradient(self, model: Model, weights: Tensor, data: Batch, live: Tensor) -> tuple[Tensor, Tensor] | None:
        if self.squares is None or type(model).squared_gradient is Model.squared_gradient:
            return None
        total: tuple[Tensor, Tensor] | None = None
        squares = self.squares / data.inputs.shape[0]
        for chunk in self._chunks(model, data):
            found = model.squared_gradient(weights, chunk.inputs, chunk.batch.targets, squares, live)
            if found is None:
                return None
            total = found if total is None else (total[0] + found[0], total[1] + found[1])
        return total

    def _one_pass_loss(self, model: Model, weights: Weights, data: Batch, live: Tensor | None) -> Tensor | None:
        """The loss by the layer kernels; None where model, task or kernels do not allow it."""
        single = as_layer(model)
        if single is None or self.squares is None:
            return None
        leading, share = leading_shape(model, weights), 1.0 / data.inputs.shape[0]
        inputs, live = self._read(model, data.inputs), repeated(live, leading)
        # the kernels know one leading dimension: replicas and copies are flattened to [N] and unflattened after
        loss = squared_loss(single.layer(weights), inputs, data.targets, share * self.squares, live)
        return None if loss is None else loss.unflatten(0, leading)

    def _accumulated_loss(self, model: Model, weights: Weights, data: Batch, live: Tensor | None) -> Tensor:
        total = AccumulatedLoss(model, weights)
        single = as_layer(model)
        for chunk in self._chunks(model, data):
            if single is None:
                outputs = model.outputs(total.own, chunk.inputs)
            else:
                outputs = single.outputs(total.own, chunk.inputs, live)
            total.add(self.task.loss(outputs, chunk.batch) * chunk.share)
        return total.loss()

    def _chunks(self, model: Model, data: Batch) -> Iterator[Chunk]:
        """The chunks of a batch, in order. The model is told the position of each: dropout masks depend on it."""
        pieces = zip(data.inputs.split(self.chunk), data.targets.split(self.chunk), strict=True)
        try:
            for index, (inputs, targets) in enumerate(pieces):
                model.first_row = index * self.chunk
                share = inputs.shape[0] / data.inputs.shape[0]
                yield Chunk(Batch(inputs, targets), self._read(model, inputs), share)
        finally:
            model.first_row = 0

    def _read(self, model: Model, inputs: Tensor) -> Tensor:
        if model.traits(model.config).reads_ids:
            return as_ids(inputs, self.task.inputs)
        return as_read(inputs, self.task.inputs, self.dtype)
