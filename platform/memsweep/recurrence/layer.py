"""A recurrent layer with its affine maps in and out: its weights, and what computes it in one pass.

    h_t = leak h_{t-1} + gain sigma(u x_t + b + A h_{t-1}),   h_{-1} = 0,   y_t = c tau(h_t) + d

``layer_outputs`` chooses between the implementations. Fused kernels (compiled C++, Triton) compute some kinds of layers
and scans only. The two ``refused`` functions say why they do not compute the others.

Letters: N models (replicas and copies), B batch, T time, M width, I inputs, O outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


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

    def gradients(self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, grad_NBTO: Tensor) -> Gradients:
        """Gradients by the weights, from the gradient by the outputs; states are computed again."""

    def squared(
        self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, targets_BTO: Tensor, weights_T: Tensor, gradient: bool
    ) -> tuple[Tensor, Gradients | None]:
        """sum_{b,t,o} w_t (y - target)^2, ``[N]``, and its gradient where ``gradient`` asks for it."""


def refused_layer(folded: Layer, dtype: torch.dtype) -> str:
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


def refused_scan(drive: Tensor, matrix: Tensor, activation: str, leak: float) -> str:
    """Why no kernel computes the states of such a recurrence (see ``scan``); empty if the kernels know its kind."""
    if leak not in (0.0, 1.0) or (activation == "linear" and leak):
        return "it wants a leak of 0 or 1 (0 where the recurrence is linear)"
    if drive.is_complex() and matrix.ndim == 3:
        return "it knows no dense complex matrix"
    return ""
