"""A recurrent layer with its affine maps in and out: the outputs of many models on the same sequences, and their loss.

    h_t = leak h_{t-1} + gain sigma(u x_t + b + A h_{t-1}),   h_{-1} = 0,   y_t = c tau(h_t) + d

One interface, several implementations, of which ``layer_outputs`` and ``squared_loss`` choose by device, type of
numbers and kind of layer:

- plain torch, a loop over time (``memsweep.recurrence.scan``): runs everything everywhere, and is what the others are
  tested against;
- compiled C++ (``memsweep.recurrence.compiled``): on a processor, states stay in its cache;
- Triton (``memsweep.recurrence.triton.layer``): on a GPU, states stay in registers.

``squared_loss`` is the fast way: outputs never leave the kernel, and loss and gradient come from one pass.

Letters: N models (replicas and copies), B batch, T time, M width, I inputs, O outputs.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.activations import activation_named
from memsweep.recurrence.scan import scan


@dataclass(frozen=True)
class Layer:
    """Layers of one kind with their weights, all real.

    Attributes:
        encoder: u, ``[N, M, I]``.
        bias: b, ``[N, M]``.
        matrix: A: ``[N, M]``, a diagonal, or ``[N, M, M]``.
        readout: c, ``[N, O, M]``.
        offset: d, ``[N, O]``.
        activation: sigma, by name (see memsweep.recurrence.activations).
        output: tau, by name: what the readout sees of the states.
        leak: share of the state that a step keeps.
        gain: scale of what a step adds.
    """

    encoder: Tensor
    bias: Tensor
    matrix: Tensor
    readout: Tensor
    offset: Tensor
    activation: str = "linear"
    output: str = "linear"
    leak: float = 0.0
    gain: float = 1.0

    @property
    def models(self) -> int:
        return self.encoder.shape[0]

    @property
    def width(self) -> int:
        return self.encoder.shape[1]

    @property
    def outputs(self) -> int:
        return self.readout.shape[1]

    def tensors(self) -> dict[str, Tensor]:
        """The weights by name, in the order of ``Gradients``."""
        return {name: getattr(self, name) for name in Gradients._fields}

    def with_tensors(self, *tensors: Tensor) -> Layer:
        """The same kind of layer with other weights."""
        encoder, bias, matrix, readout, offset = tensors
        return replace(self, encoder=encoder, bias=bias, matrix=matrix, readout=readout, offset=offset)

    def folded(self) -> Layer:
        """The same layer with gain 1, and a linear one with leak 0: states in units of the gain."""
        if self.activation == "linear":
            kept: Tensor | float = self.leak
            if self.matrix.ndim == 3 and self.leak:
                kept = self.leak * torch.eye(self.width, dtype=self.matrix.dtype, device=self.matrix.device)
            encoder, bias = self.gain * self.encoder, self.gain * self.bias
            return replace(self, encoder=encoder, bias=bias, matrix=kept + self.gain * self.matrix, leak=0.0, gain=1.0)
        if self.gain == 1.0 or self.output != "linear":
            return self
        return replace(self, matrix=self.gain * self.matrix, readout=self.gain * self.readout, gain=1.0)


class Gradients(NamedTuple):
    """Gradients by a layer's weights, in their shapes."""

    encoder: Tensor
    bias: Tensor
    matrix: Tensor
    readout: Tensor
    offset: Tensor

    @staticmethod
    def zeros_like(layer: Layer) -> Gradients:
        return Gradients(
            *(torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in layer.tensors().values())
        )


class Implementation(Protocol):
    """A layer's three operations, without autograd. Models that are not live are passed over: zeros."""

    def outputs(self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor) -> Tensor:
        """y, ``[N, B, T, O]``."""

    def pulled(self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, grad_NBTO: Tensor) -> Gradients:
        """The gradient by the weights, of that by the outputs; states are computed anew."""

    def squared(
        self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, targets_BTO: Tensor, weights_T: Tensor, wanted: bool
    ) -> tuple[Tensor, Gradients | None]:
        """sum_{b,t,o} w_t (y - target)^2, ``[N]``, and its gradient if it is wanted."""


def layer_outputs(layer: Layer, inputs_BTI: Tensor, live_N: Tensor | None = None) -> Tensor:
    """Outputs of all models, differentiable once by the weights.

    Args:
        layer: of N models.
        inputs_BTI: x, the same for all of them.
        live_N: bool, models whose outputs matter; those of the others may be anything finite. None: all.

    Returns:
        y, ``[N, B, T, O]``.

    Raises:
        ValueError: an unknown activation, or shapes or dtypes that do not fit.
    """
    _check(layer, inputs_BTI)
    folded = layer.folded()
    found = None if inputs_BTI.requires_grad else implementation(folded, inputs_BTI)
    if found is None:
        return plain_outputs(layer, inputs_BTI)
    y: Tensor = _Outputs.apply(found, folded, inputs_BTI, _all_live(layer, live_N), *folded.tensors().values())
    return y


def squared_loss(
    layer: Layer, inputs_BTI: Tensor, targets_BTO: Tensor, weights_T: Tensor, live_N: Tensor | None = None
) -> Tensor | None:
    """The loss sum_{b,t,o} w_t (y - target)^2 of all models, ``[N]``, differentiable once by the weights.

    Args:
        layer, inputs_BTI, live_N: as for ``layer_outputs``.
        targets_BTO, weights_T: the same for all models.

    Returns:
        None where no implementation computes it in one pass: use ``layer_outputs``, in chunks that fit the memory.
    """
    _check(layer, inputs_BTI)
    folded = layer.folded()
    found = implementation(folded, inputs_BTI)
    if found is None:
        return None
    tensors = folded.tensors().values()
    wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    data = (inputs_BTI, _all_live(layer, live_N), targets_BTO, weights_T)
    loss: Tensor = _Squared.apply(found, folded, wanted, data, *tensors)
    return loss


def implementation(folded: Layer, inputs_BTI: Tensor) -> Implementation | None:
    """What computes a folded layer; None for plain torch."""
    from memsweep.recurrence.compiled.layer_calls import compiled_layer, refusal
    from memsweep.recurrence.triton.layer import TritonLayer, layer_refusal

    if inputs_BTI.device.type == "cuda":
        return None if layer_refusal(folded, inputs_BTI) else TritonLayer()
    return None if refusal(folded, inputs_BTI) else compiled_layer(inputs_BTI.dtype)


def refused_kind(folded: Layer, dtype: torch.dtype) -> str:
    """Why no kernel computes such a layer in one pass; empty if the kernels know its kind."""
    if dtype not in (torch.float64, torch.float32):
        return f"the numbers are {dtype}"
    if folded.leak not in (0.0, 1.0) or folded.gain != 1.0:
        return "it wants a leak of 0 or 1 and a gain of 1"
    if folded.activation != "linear" and folded.output != "linear":
        return "it knows one activation, inside or outside the recurrence"
    if folded.activation == "linear" and folded.leak:
        return "a linear recurrence wants its leak within the matrix"
    return ""


def kernels(dtype: torch.dtype, device: str = "cpu") -> str:
    """What computes layers of this type of numbers here: ``compiled`` or ``plain``; ``triton`` or ``plain`` on a GPU.

    A driver without a GPU answers for its workers, so only what is installed counts.
    """
    if device == "cuda":
        return "plain" if importlib.util.find_spec("triton") is None else "triton"
    from memsweep.recurrence.compiled.library import library

    return "plain" if library(dtype) is None else "compiled"


def plain_outputs(layer: Layer, inputs_BTI: Tensor) -> Tensor:
    """What ``layer_outputs`` computes, by torch's own operations, one step of time after the other.

    Prefer it where the inputs need a gradient; it keeps several tensors of the states' size, ``[N, B, T, M]``.
    """
    drive_NBTM = torch.einsum("nmi,bti->nbtm", layer.encoder, inputs_BTI) + layer.bias[:, None, None]
    states_NBTM = scan(drive_NBTM, layer.matrix, layer.activation, leak=layer.leak, gain=layer.gain)
    if layer.output != "linear":
        states_NBTM = states_NBTM.clone()  # the activation acts in place, and the scan keeps its states
        activation_named(layer.output).apply_(states_NBTM)
    answers_NBTO = torch.einsum("nbtm,nom->nbto", states_NBTM, layer.readout)
    return answers_NBTO + layer.offset[:, None, None]


def _all_live(layer: Layer, live_N: Tensor | None) -> Tensor:
    return live_N if live_N is not None else torch.ones(layer.models, dtype=torch.bool)


def _check(layer: Layer, inputs_BTI: Tensor) -> None:
    activation_named(layer.activation)
    activation_named(layer.output)
    models, width, outputs = layer.models, layer.width, layer.outputs
    if inputs_BTI.ndim != 3 or layer.encoder.shape[-1] != inputs_BTI.shape[-1]:
        raise ValueError(f"inputs {list(inputs_BTI.shape)} do not fit an encoder {list(layer.encoder.shape)}")
    allowed = {
        "bias": [[models, width]],
        "matrix": [[models, width], [models, width, width]],
        "readout": [[models, outputs, width]],
        "offset": [[models, outputs]],
    }
    for name, shapes in allowed.items():
        found = list(getattr(layer, name).shape)
        if found not in shapes:
            raise ValueError(f"{name} has the shape {found}; allowed: {' or '.join(map(str, shapes))}")
    kinds = {tensor.dtype for tensor in (*layer.tensors().values(), inputs_BTI)}
    if len(kinds) > 1:
        raise ValueError(f"weights and inputs must have one dtype, got {', '.join(sorted(map(str, kinds)))}")


class _Outputs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, found: Implementation, kind: Layer, inputs_BTI: Tensor, live_N: Tensor, *weights: Tensor
    ) -> Tensor:
        ctx.found, ctx.kind = found, kind
        ctx.save_for_backward(inputs_BTI, live_N, *weights)
        return found.outputs(kind.with_tensors(*weights), inputs_BTI, live_N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        inputs_BTI, live_N, *weights = ctx.saved_tensors
        return None, None, None, None, *ctx.found.pulled(ctx.kind.with_tensors(*weights), inputs_BTI, live_N, grads[0])


class _Squared(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, found: Implementation, kind: Layer, wanted: bool, data: tuple[Tensor, ...], *weights: Tensor
    ) -> Tensor:
        inputs_BTI, live_N, targets_BTO, weights_T = data
        layer = kind.with_tensors(*weights)
        loss_N, gradients = found.squared(layer, inputs_BTI, live_N, targets_BTO, weights_T, wanted)
        ctx.save_for_backward(*(gradients or ()))
        return loss_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (grad_N,) = grads
        scaled = (tensor * grad_N.view(-1, *[1] * (tensor.ndim - 1)) for tensor in ctx.saved_tensors)
        return None, None, None, None, *scaled
