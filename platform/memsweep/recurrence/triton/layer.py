"""The layer on a GPU: outputs, squared error and gradients of many models by Triton kernels.

Next to the plain form with Triton's scan, the drive is never in memory, and the states are written once and read once,
for a gradient, or not at all; that it is faster was not measured yet. Triton comes with torch's
CUDA builds and is imported when it is needed.

A model's bits depend neither on the other models nor on how many of them are live: the work is cut by shapes alone, and
sums are taken in a fixed order.

To check it: ``pytest tests/recurrence/test_triton_layer.py``. On a machine with a GPU its tests run there;
elsewhere Triton's interpreter runs the kernels where triton is installed, and where it is not, the tests are skipped.

Letters: see memsweep.recurrence.layer; L live models, S sequences of a launch.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import torch
from torch import Tensor

from memsweep.recurrence.activations import CODES
from memsweep.recurrence.layer import Gradients, Layer

_ELEMENTS = 1024
"""States that one program holds: eight for each of the 128 threads of Triton's four warps."""
_WIDEST, _WIDEST_DENSE = 1024, 64
"""Each program holds a dense matrix and the gradient by it: of 128 units, they no longer fit a GPU's registers."""
_COLUMNS = 64
"""Inputs or outputs beyond which a loop over them is worse than a large product."""
_MODEL_BYTES, _BYTES = 1 << 28, 1 << 31
"""Bounds of the states that are kept for a gradient: of one model, and of all in a launch."""


class TritonLayer:
    """A layer's three operations where the tensors are: see ``memsweep.recurrence.layer_outputs.CompiledLayer``."""

    def outputs(self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor) -> Tensor:
        live_L, shape = _live(live_N, layer), (*inputs_BTI.shape[:2], layer.outputs)
        y_LBTO = inputs_BTI.new_empty(len(live_L), *shape)
        if y_LBTO.numel():
            _Launch(_chosen(layer, live_L), inputs_BTI).outputs(y_LBTO)
        if len(live_L) == layer.models:
            return y_LBTO
        return inputs_BTI.new_zeros(layer.models, *shape).index_copy_(0, live_L, y_LBTO)

    def gradients(self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, grad_NBTO: Tensor) -> Gradients:
        result, live_L = Gradients.zeros_like(layer), _live(live_N, layer)
        if len(live_L) and inputs_BTI.shape[:2].numel():
            grad_LBTO = grad_NBTO.detach()[live_L].contiguous()
            _scatter(_Launch(_chosen(layer, live_L), inputs_BTI).gradients(grad_LBTO)[1], result, live_L)
        return result

    def squared(
        self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, targets_BTO: Tensor, weights_T: Tensor, gradient: bool
    ) -> tuple[Tensor, Gradients | None]:
        loss_N, live_L = inputs_BTI.new_zeros(layer.models), _live(live_N, layer)
        result = Gradients.zeros_like(layer) if gradient else None
        if not len(live_L) or not inputs_BTI.shape[:2].numel():
            return loss_N, result
        launch = _Launch(_chosen(layer, live_L), inputs_BTI)
        targets = targets_BTO.detach().contiguous(), weights_T.detach().contiguous()
        if result is None:
            return loss_N.index_copy_(0, live_L, launch.loss(targets)), None
        grad_LBTO = inputs_BTI.new_empty(len(live_L), *targets[0].shape)
        loss_L, of_weights = launch.gradients(grad_LBTO, targets)
        _scatter(of_weights, result, live_L)
        return loss_N.index_copy_(0, live_L, loss_L), result


def triton_knows(layer: Layer, inputs: Tensor) -> bool:
    """Whether there is Triton, and a program holds so many units, inputs and outputs."""
    widest = _WIDEST_DENSE if layer.matrix.ndim == 3 else _WIDEST
    fits = layer.width <= widest and max(inputs.shape[-1], layer.outputs) <= _COLUMNS
    return fits and importlib.util.find_spec("triton") is not None


class _Launch:
    """Live models on one batch, in launches that fit the memory.

    ``sums_LK`` holds the sums of each model; the kernels' docstring names its columns.
    """

    def __init__(self, layer: Layer, inputs_BTI: Tensor) -> None:
        self.layer, self.x = layer, inputs_BTI.detach().contiguous()
        self.batch, self.horizon, inputs = self.x.shape
        width, outputs, dense = layer.width, layer.outputs, layer.matrix.ndim == 3
        units = _power(width, 16 if dense else 1)
        self.each = max(16 if dense else 1, _ELEMENTS // units)
        self.blocks = -(-self.batch // self.each)
        self.lengths = [1, outputs, width, inputs * width, outputs * width, layer.matrix[0].numel()]
        self.sums_LK = self.x.new_empty(layer.models, sum(self.lengths))
        self.constants: dict[str, Any] = {
            "WIDTH": width, "INPUTS": inputs, "OUTPUTS": outputs,
            "UNITS": units, "SEQUENCES": self.each, "PADDED_INPUTS": _power(inputs), "PADDED_OUTPUTS": _power(outputs),
            "DENSE": dense, "SIGMA": CODES[layer.activation], "TAU": CODES[layer.output],
            "CARRIED": layer.leak == 1.0, "num_warps": 8 if dense else 4,
        }  # fmt: skip

    def outputs(self, y_LBTO: Tensor) -> None:
        everything = slice(0, self.layer.models), slice(0, self.batch)
        self._forward(*everything, y_LBTO, None, None, self.sums_LK)

    def loss(self, targets: tuple[Tensor, Tensor]) -> Tensor:
        """``[L]``, without a gradient."""
        partial = self.x.new_empty(self.layer.models, self.blocks, 1)
        self._forward(slice(0, self.layer.models), slice(0, self.batch), None, None, targets, partial)
        return self._summed(partial)[:, 0]

    def gradients(self, grad_LBTO: Tensor, targets: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Gradients]:
        """Pulls back the gradient by the outputs or, with targets, that of their squared error, which it writes there;
        the loss is that of the targets."""
        of_model, of_sequences = self._slices()
        for models in of_model:
            count = models.stop - models.start
            partial = self.x.new_zeros(count, self.blocks, self.sums_LK.shape[1])
            for sequences in of_sequences:
                length = sequences.stop - sequences.start
                states = self.x.new_empty(count, self.horizon + 1, length, self.layer.width)
                self._forward(models, sequences, grad_LBTO, states, targets, partial)
                weights = self.layer.matrix[models], self.layer.readout[models]
                tensors = (self.x, *weights, grad_LBTO[models], states, partial)
                backward = _kernels().backward[self._grid(models, sequences)]
                backward(*tensors, *self._counts(sequences, partial), **self.constants)
            self.sums_LK[models] = self._summed(partial)
        return self._named()

    def _named(self) -> tuple[Tensor, Gradients]:
        loss, offset, bias, encoder, readout, matrix = self.sums_LK.split(self.lengths, dim=1)
        layer = self.layer
        of_encoder = encoder.unflatten(1, (-1, layer.width)).mT
        of_rest = matrix.reshape(layer.matrix.shape), readout.reshape(layer.readout.shape), offset
        return loss[:, 0], Gradients(of_encoder, bias, *of_rest)

    def _forward(
        self,
        models: slice,
        sequences: slice,
        y: Tensor | None,
        states: Tensor | None,
        targets: tuple[Tensor, Tensor] | None,
        partial: Tensor,
    ) -> None:
        weights = [tensor[models] for tensor in self.layer.tensors().values()]
        aims = {"KEEP": states is not None, "ANSWERS": states is None and y is not None, "JUDGED": targets is not None}
        # the kernel does not read a tensor that it has no use for: any other stands in its place
        tensors = (self.x, *weights, *(targets or (self.x, self.x)))
        series = self.x if y is None else y[models], self.x if states is None else states
        forward = _kernels().forward[self._grid(models, sequences)]
        forward(*tensors, *series, partial, *self._counts(sequences, partial), **self.constants, **aims)

    def _summed(self, partial: Tensor) -> Tensor:
        models, blocks, columns = partial.shape
        result = partial.new_empty(models, columns)
        _kernels().summed[models, -(-columns // 256)](partial, result, columns, BLOCKS=blocks, COLUMNS=256)
        return result

    def _grid(self, models: slice, sequences: slice) -> tuple[int, int]:
        return models.stop - models.start, -(-(sequences.stop - sequences.start) // self.each)

    def _counts(self, sequences: slice, partial: Tensor) -> tuple[int, ...]:
        return (
            sequences.start,
            sequences.stop - sequences.start,
            self.batch,
            self.blocks,
            partial.shape[-1],
            self.horizon,
        )

    def _slices(self) -> tuple[list[slice], list[slice]]:
        """Models, and sequences, of each launch that keeps states."""
        size = self.x.element_size()
        of_block = (self.horizon + 1) * self.layer.width * self.each * size
        blocks = min(self.blocks, max(1, _MODEL_BYTES // of_block))
        of_model = of_block * blocks + self.blocks * self.sums_LK.shape[1] * size
        sequences = _cut(self.batch, blocks * self.each)
        return _cut(self.layer.models, max(1, _BYTES // of_model)), sequences


def _cut(count: int, length: int) -> list[slice]:
    return [slice(start, min(start + length, count)) for start in range(0, count, length)]


def _live(live_N: Tensor, layer: Layer) -> Tensor:
    return torch.nonzero(live_N).flatten().to(layer.encoder.device)


def _chosen(layer: Layer, live_L: Tensor) -> Layer:
    return layer.with_tensors(*(tensor.detach()[live_L].contiguous() for tensor in layer.tensors().values()))


def _scatter(result: Gradients, into: Gradients, live_L: Tensor) -> None:
    for one, other in zip(result, into, strict=True):
        other[live_L] = one


def _power(count: int, least: int = 1) -> int:
    """The next power of two."""
    return max(least, 1 << (count - 1).bit_length())


@functools.cache
def _kernels() -> Any:
    from memsweep.recurrence.triton import layer_kernels

    return layer_kernels
