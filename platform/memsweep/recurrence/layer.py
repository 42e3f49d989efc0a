"""A recurrent layer with its affine maps in and out: its weights.

    h_t = leak h_{t-1} + gain sigma(u x_t + b + A h_{t-1}),   h_{-1} = 0,   y_t = c tau(h_t) + d

Letters: N models (replicas and copies), B batch, T time, M width, I inputs, O outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

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

    def picked(self, models: slice) -> Layer:
        """Some of the models."""
        return self.with_tensors(*(tensor[models] for tensor in self.tensors().values()))

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


@dataclass(frozen=True)
class FlatDiagonal:
    """Layers of independent units in flat weights: kernels read these where they lie, and write gradients alike.

    Torch neither cuts the weights nor joins their gradients. The state is carried over and its increment activated.

    Attributes:
        weights: ``[N, S]``: of each model M raw weights, then encoder ``[M, I]``, bias ``[M]``, readout ``[O, M]`` and
            offset ``[O]``.
        inputs, outputs: I and O.
        activation: sigma, by name.
        least: eigenvalues are 1 - max(raw, least).
        mapped: eigenvalues ``[N, M]``, and the function from gradients by them to gradients by raw weights; None where
            kernels know the map.
    """

    weights: Tensor
    inputs: int
    outputs: int
    activation: str
    least: float
    mapped: tuple[Tensor, Callable[[Tensor], Tensor]] | None = None

    @property
    def width(self) -> int:
        return width_in_flat(self.weights, self.inputs, self.outputs)

    def places(self, of: Tensor, prefix: str = "") -> dict[str, int]:
        """Where the first model's tensors lie in flat weights, or in a gradient of their shape, by their names."""
        assert of.is_contiguous(), "please report this: flat weights with gaps"
        width, size, start = self.width, of.element_size(), of.data_ptr()
        bias = width * (1 + self.inputs)
        readout = bias + width
        raw = {} if self.mapped else {f"{prefix}raw": start}
        return raw | {
            f"{prefix}encoder": start + size * width,
            f"{prefix}bias": start + size * bias,
            f"{prefix}readout": start + size * readout,
            f"{prefix}offset": start + size * (readout + width * self.outputs),
        }

    def finish(self, gradient: Tensor, of_eigenvalues: Tensor) -> None:
        """Set the gradient of mapped raw weights by that of their eigenvalues."""
        assert self.mapped is not None, "please report this: eigenvalues of no map"
        of_raw = self.mapped[1](of_eigenvalues)
        gradient[:, : of_raw.shape[-1]] = of_raw


def width_in_flat(weights: Tensor, inputs: int, outputs: int) -> int:
    """M of a ``FlatDiagonal``."""
    return (weights.shape[-1] - outputs) // (2 + inputs + outputs)


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


def repeated(live: Tensor | None, leading: tuple[int, ...]) -> Tensor | None:
    """Which replicas matter, for each of their copies: ``[product of the leading dimensions]``."""
    return None if live is None else live.repeat_interleave(math.prod(leading[1:]))


def affine(x_NBTK: Tensor, weight_NJK: Tensor, bias_NJ: Tensor) -> Tensor:
    """W x + b at every step of every sequence, in one product over all of them: ``[N, B, T, J]``."""
    flat = torch.baddbmm(bias_NJ.unsqueeze(1), x_NBTK.flatten(1, 2), weight_NJK.transpose(1, 2))
    y_NBTJ: Tensor = flat.unflatten(1, x_NBTK.shape[1:3])
    return y_NBTJ


def require_fit(dtype: torch.dtype, **given: tuple[Tensor | None, list[list[int]]]) -> None:
    """Refuse tensors that do not fit: compiled code reads them without another look.

    Args:
        dtype: that all must have.
        given: by its name, each tensor (None: left out) and the shapes that it may have.

    Raises:
        ValueError: a tensor has another shape or dtype.
    """
    for name, (tensor, allowed) in given.items():
        if tensor is not None and list(tensor.shape) not in allowed:
            shapes = " or ".join(map(str, allowed))
            raise ValueError(f"{name} must have the shape {shapes}, got {list(tensor.shape)}")
        if tensor is not None and tensor.dtype != dtype:
            raise ValueError(f"all tensors must have one dtype, {dtype}, but {name} is {tensor.dtype}")
