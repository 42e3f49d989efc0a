"""The layer on a GPU: outputs, squared error and gradients of many models by Triton kernels.

Prefer it for layers that are run over many sequences at once: next to the plain form with Triton's scan, the drive is
never in memory, and the states are written once and read once, for a gradient, or not at all. Triton comes with torch's
CUDA builds and is imported when it is needed.

A model's bits depend neither on the other models nor on how many of them are live: the work is cut by shapes alone, and
sums are taken in a fixed order.

To check it: ``pytest tests/test_triton_layer.py``. On a machine with a GPU its tests run there; elsewhere Triton's
interpreter runs the kernels, if ``pip install triton`` has been, and the tests say that they were skipped if not.

Letters: see memsweep.recurrence.layer; L live models, S sequences of a launch.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from memsweep.recurrence.layer import Gradients, Layer

_CODES = {"linear": 0, "hardtanh": 1, "tanh": 2, "relu": 3}
_ELEMENTS = 1024
"""States that one program holds: eight for each of the 128 threads of Triton's four warps."""
_WIDEST, _WIDEST_DENSE = 1024, 128
"""A dense matrix is held by each program: at 128 units in float64, 128 KiB of shared memory."""
_COLUMNS = 64
"""Inputs or outputs beyond which a loop over them is worse than a large product."""
_MODEL_BYTES, _BYTES = 1 << 28, 1 << 31
"""Bounds of the states that are kept for a gradient: of one model, and of all in a launch."""


class TritonLayer:
    """The three operations of a layer (see ``memsweep.recurrence.layer.Implementation``), where the tensors are."""

    def outputs(self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor) -> Tensor:
        found_NBTO = inputs_BTI.new_zeros(layer.models, *inputs_BTI.shape[:2], layer.outputs)
        live_L = _live(live_N, layer)
        if len(live_L) and found_NBTO.numel():
            launch = _Launch(_chosen(layer, live_L), inputs_BTI)
            y_LBTO = found_NBTO[live_L]
            launch.forward(y_LBTO, answers=True)
            found_NBTO[live_L] = y_LBTO
        return found_NBTO

    def pulled(self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, grad_NBTO: Tensor) -> Gradients:
        found, live_L = Gradients.zeros_like(layer), _live(live_N, layer)
        if len(live_L) and inputs_BTI.shape[:2].numel():
            launch = _Launch(_chosen(layer, live_L), inputs_BTI)
            launch.gradients(grad_NBTO.detach()[live_L].contiguous())
            _scatter(launch.found()[1], found, live_L)
        return found

    def squared(
        self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, targets_BTO: Tensor, weights_T: Tensor, wanted: bool
    ) -> tuple[Tensor, Gradients | None]:
        loss_N, live_L = inputs_BTI.new_zeros(layer.models), _live(live_N, layer)
        found = Gradients.zeros_like(layer) if wanted else None
        if not len(live_L) or not inputs_BTI.shape[:2].numel():
            return loss_N, found
        launch = _Launch(_chosen(layer, live_L), inputs_BTI)
        targets = targets_BTO.detach().contiguous(), weights_T.detach().contiguous()
        if found is None:
            launch.forward(None, targets=targets)
        else:
            launch.gradients(inputs_BTI.new_empty(len(live_L), *inputs_BTI.shape[:2], layer.outputs), targets)
        loss_L, of_weights = launch.found()
        loss_N[live_L] = loss_L
        if found is not None:
            _scatter(of_weights, found, live_L)
        return loss_N, found


def layer_refusal(layer: Layer, inputs: Tensor) -> str:
    """Why the kernels cannot compute this layer; empty if they can."""
    if inputs.device.type != "cuda":
        return f"the numbers are on {inputs.device}"
    return refusal_of_kind(layer, inputs)


def refusal_of_kind(layer: Layer, inputs: Tensor) -> str:
    """The same, wherever the numbers are."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if inputs.dtype not in (torch.float64, torch.float32):
        return f"the numbers are {inputs.dtype}"
    if layer.leak not in (0.0, 1.0) or layer.gain != 1.0:
        return "it wants a leak of 0 or 1 and a gain of 1"
    if layer.activation != "linear" and layer.output != "linear":
        return "it knows one activation, inside or outside the recurrence"
    if layer.activation == "linear" and layer.leak:
        return "a linear recurrence wants its leak within the matrix"
    widest = _WIDEST_DENSE if layer.matrix.ndim == 3 else _WIDEST
    if layer.width > widest:
        return f"a width of {layer.width} does not fit a program: at most {widest}"
    if max(inputs.shape[-1], layer.outputs) > _COLUMNS:
        return f"it loops over inputs and outputs: at most {_COLUMNS}"
    return ""


class _Launch:
    """Live models on one batch, cut into launches; ``partial`` has what every program found."""

    def __init__(self, layer: Layer, inputs_BTI: Tensor) -> None:
        self.layer, self.x = layer, inputs_BTI.detach().contiguous()
        self.batch, self.horizon, inputs = self.x.shape
        width, self.dense = layer.width, layer.matrix.ndim == 3
        units = _power(width, 16 if self.dense else 1)
        self.each = max(16 if self.dense else 1, _ELEMENTS // units)
        self.blocks = -(-self.batch // self.each)
        self.lengths = [1, layer.outputs, width, inputs * width, layer.outputs * width, 0 if self.dense else width]
        self.partial = self.x.new_zeros(layer.models, self.blocks, sum(self.lengths))
        # a matrix of partial sums by launch, in their order: of one shape, whatever else is live
        self.of_dense = torch.zeros_like(layer.matrix) if self.dense else None
        self.constants: dict[str, Any] = {
            "WIDTH": width, "INPUTS": inputs, "OUTPUTS": layer.outputs, "UNITS": units, "SEQUENCES": self.each,
            "PADDED_INPUTS": _power(inputs), "PADDED_OUTPUTS": _power(layer.outputs), "DENSE": self.dense,
            "SIGMA": _CODES[layer.activation], "TAU": _CODES[layer.output], "CARRIED": layer.leak == 1.0,
            "num_warps": 8 if self.dense and units > 64 else 4,
        }  # fmt: skip

    def forward(self, y: Tensor | None, answers: bool = False, targets: tuple[Tensor, Tensor] | None = None) -> None:
        """All models and sequences at once, keeping no states."""
        self._forward(slice(0, self.layer.models), 0, self.batch, y, None, answers, targets)

    def gradients(self, grad_LBTO: Tensor, targets: tuple[Tensor, Tensor] | None = None) -> None:
        """Pulls back the gradient by the outputs or, with targets, that of their squared error, which it writes."""
        for models, first, sequences in self._cuts():
            count = models.stop - models.start
            states = self.x.new_empty(count, self.horizon + 1, sequences, self.layer.width)
            self._forward(models, first, sequences, grad_LBTO, states, False, targets)
            errors = torch.empty_like(states[:, 1:]) if self.dense else states
            grid = (count, -(-sequences // self.each))
            weights = self.layer.matrix[models], self.layer.readout[models]
            tensors = (self.x, *weights, grad_LBTO[models], states, errors, self.partial[models])
            _kernels().backward[grid](*tensors, *self._counts(first, sequences), **self.constants)
            if self.of_dense is not None:
                for total, e, h in zip(self.of_dense[models], errors, states[:, :-1], strict=True):
                    total.addmm_(e.flatten(0, 1).mT, h.flatten(0, 1))

    def found(self) -> tuple[Tensor, Gradients]:
        """The loss, ``[L]``, and the gradients."""
        found = self.partial.new_empty(self.layer.models, sum(self.lengths))
        grid = (self.layer.models, -(-found.shape[1] // 256))
        _kernels().summed[grid](self.partial, found, self.blocks, found.shape[1], COLUMNS=256)
        loss, offset, bias, encoder, readout, diagonal = found.split(self.lengths, dim=1)
        layer = self.layer
        of_encoder = encoder.unflatten(1, (-1, layer.width)).mT
        matrix = diagonal if self.of_dense is None else self.of_dense
        return loss[:, 0], Gradients(of_encoder, bias, matrix, readout.view_as(layer.readout), offset)

    def _forward(
        self,
        models: slice,
        first: int,
        sequences: int,
        y: Tensor | None,
        states: Tensor | None,
        answers: bool,
        targets: tuple[Tensor, Tensor] | None,
    ) -> None:
        weights = [tensor[models] for tensor in self.layer.tensors().values()]
        kept = {"KEEP": states is not None, "ANSWERS": answers, "JUDGED": targets is not None}
        # where a kernel has no use for a tensor, any will do
        tensors = (
            *(self.x, *weights, *(targets or (self.x, self.x))),
            *(self.x if y is None else y[models], self.x if states is None else states, self.partial[models]),
        )
        grid = (models.stop - models.start, -(-sequences // self.each))
        _kernels().forward[grid](*tensors, *self._counts(first, sequences), **self.constants, **kept)

    def _counts(self, first: int, sequences: int) -> tuple[int, ...]:
        return first, sequences, self.batch, self.horizon, self.blocks, self.partial.shape[2]

    def _cuts(self) -> Iterator[tuple[slice, int, int]]:
        """Models, first sequence and number of sequences of each launch that keeps states."""
        of_sequence = (self.horizon + 1) * self.layer.width * self.x.element_size() * (2 if self.dense else 1)
        # by shapes alone: a dense matrix's gradient is summed by launch
        sequences = min(self.batch, max(1, _MODEL_BYTES // (of_sequence * self.each)) * self.each)
        models = max(1, _BYTES // (of_sequence * sequences))
        for start in range(0, self.layer.models, models):
            for first in range(0, self.batch, sequences):
                stop = min(start + models, self.layer.models)
                yield slice(start, stop), first, min(sequences, self.batch - first)


def _live(live_N: Tensor, layer: Layer) -> Tensor:
    return torch.nonzero(live_N).flatten().to(layer.encoder.device)


def _chosen(layer: Layer, live_L: Tensor) -> Layer:
    return layer.with_tensors(*(tensor.detach()[live_L].contiguous() for tensor in layer.tensors().values()))


def _scatter(found: Gradients, into: Gradients, live_L: Tensor) -> None:
    for one, other in zip(found, into, strict=True):
        other[live_L] = one


def _power(count: int, least: int = 1) -> int:
    """The next power of two."""
    return max(least, 1 << (count - 1).bit_length())


@functools.cache
def _kernels() -> Any:
    from memsweep.recurrence import triton_layer_kernels

    return triton_layer_kernels
