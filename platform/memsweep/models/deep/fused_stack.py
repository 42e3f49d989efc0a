"""A whole residual stack as one compiled call: outputs, gradients, and the weighted squared error with its gradient.

In torch a step of a small stack is some two thousand operations, of which the recurrence is four, and takes as long
whatever its width. The compiled call (``recurrence/compiled/cpp/stack.h``) takes a block of sequences through
encoder, layers and readout and back. ``knows`` says which stacks it computes, and ``dropped_stack`` has those that drop
features: masks are drawn as torch's way draws them, and handed to the call as factors. In evaluation nothing is
dropped. Torch computes all other stacks, and is the oracle.

Letters: N models, B batch, T time, I inputs, O outputs, S size of a model's flat weights; R replicas, F features, P
places of all layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.models.deep.around_unit import BATCH, LAYER, MIXINGS, Dropout
from memsweep.models.deep.unit import has_layer_units
from memsweep.recurrence.activations import CODES
from memsweep.recurrence.compiled.library import Kernel, masks_of, readable

_UNITS = {"rnn": 0, "gru": 1, "lru": 2}
_OUTPUTS, _GRADIENT, _LOSS_AND_GRADIENT = range(3)

LARGEST = 1 << 18
"""Largest layers x (features + width) x steps: what a thread keeps of a block then takes about a quarter of a GiB."""


def knows(config: Any, horizon: int) -> bool:
    """Whether the compiled call computes stacks of this config over ``horizon`` steps, by backpropagation."""
    if has_layer_units(config):
        return False
    if config.layers * (config.features + config.width) * horizon > LARGEST:
        return False
    plain = config.prenorm and not config.dropout and not config.readout_width and config.pooling == "none"
    exact_gain = config.unit.name == "lru" and config.unit.normalize and config.unit.gamma != "trained"
    return bool(plain and config.norm != BATCH and config.unit.name in _UNITS and not exact_gain)


class CompiledStack(Kernel):
    """Stacks of one config; each model is computed by itself, block by block of sequences."""

    function = "stack"  # StackCall of stack.h
    numbers = (
        *("mode", "unit", "sigma", "normalized", "mixing", "norm", "residual", "models", "batch", "horizon", "inputs"),
        *("features", "width", "outputs", "layers", "size"),
    )
    tensors = ("live", "x", "target", "squares", "weights", "y", "loss", "gradient")

    def outputs(self, config: Any, outputs: int, weights_NS: Tensor, inputs_BTI: Tensor) -> Tensor:
        """``[N, B, T, O]``."""
        y_NBTO = weights_NS.new_empty(len(weights_NS), *inputs_BTI.shape[:2], outputs)
        self._run(_OUTPUTS, config, inputs_BTI, outputs, {"weights": weights_NS, "y": y_NBTO})
        return y_NBTO

    def gradient(self, config: Any, weights_NS: Tensor, inputs_BTI: Tensor, grad_NBTO: Tensor) -> Tensor:
        """By the weights, ``[N, S]``, from that by the outputs."""
        gradient_NS = torch.zeros_like(weights_NS)
        tensors = {"weights": weights_NS, "y": grad_NBTO, "gradient": gradient_NS}
        self._run(_GRADIENT, config, inputs_BTI, grad_NBTO.shape[-1], tensors)
        return gradient_NS

    def squared_gradient(
        self,
        config: Any,
        weights_NS: Tensor,
        inputs_BTI: Tensor,
        targets_BTO: Tensor,
        squares_T: Tensor,
        live_N: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """As of ``Model.squared_gradient``; zeros of models that are not live."""
        loss_N, gradient_NS = weights_NS.new_zeros(len(weights_NS)), torch.zeros_like(weights_NS)
        tensors = {"weights": weights_NS, "target": targets_BTO, "squares": squares_T}
        tensors |= {"loss": loss_N, "gradient": gradient_NS}
        self._run(_LOSS_AND_GRADIENT, config, inputs_BTI, targets_BTO.shape[-1], tensors, live_N)
        return loss_N, gradient_NS

    def _run(
        self,
        mode: int,
        config: Any,
        inputs_BTI: Tensor,
        outputs: int,
        tensors: Mapping[str, Tensor],
        live_N: Tensor | None = None,
    ) -> None:
        (models, size), unit = tensors["weights"].shape, config.unit
        batch, horizon, inputs = inputs_BTI.shape
        # held until the kernel has read them
        masks = masks_of(torch.ones(models, dtype=torch.bool) if live_N is None else live_N)
        self.run(
            readable({"x": inputs_BTI, **tensors}, inputs_BTI.dtype),
            [{"live": mask.data_ptr()} for mask in masks],
            mode=mode,
            unit=_UNITS[unit.name],
            sigma=CODES[unit.activation] if unit.name == "rnn" else 0,
            normalized=unit.name == "lru" and unit.normalize,
            mixing=MIXINGS.index(config.mixing),
            norm=config.norm == LAYER,
            residual=config.residual,
            models=models,
            batch=batch,
            horizon=horizon,
            inputs=inputs,
            features=config.features,
            width=config.width,
            outputs=outputs,
            layers=config.layers,
            size=size,
        )


def fused_outputs(kernel: CompiledStack, config: Any, outputs: int, weights_NS: Tensor, inputs_BTI: Tensor) -> Tensor:
    """Outputs ``[N, B, T, O]``, differentiable once by the flat weights."""
    y_NBTO: Tensor = _Outputs.apply(kernel, config, outputs, weights_NS, inputs_BTI)
    return y_NBTO


class _Outputs(torch.autograd.Function):
    """Backward runs forward once more, and keeps nothing but weights and inputs until then."""

    @staticmethod
    def forward(
        ctx: Any, kernel: CompiledStack, config: Any, outputs: int, weights_NS: Tensor, inputs_BTI: Tensor
    ) -> Tensor:
        ctx.kernel, ctx.config = kernel, config
        ctx.save_for_backward(weights_NS, inputs_BTI)
        return kernel.outputs(config, outputs, weights_NS, inputs_BTI)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        return None, None, None, ctx.kernel.gradient(ctx.config, *ctx.saved_tensors, outer[0]), None


def drops(config: Any) -> bool:
    """Whether models of this config drop features in training, and are otherwise known over few steps at least."""
    return bool(config.dropout) and knows(dataclasses.replace(config, dropout=0.0), 1)


class CompiledDroppedStack(CompiledStack):
    """A compiled stack whose features are multiplied by factors behind the gelu and behind the gate.

    Attributes:
        factors: ``[R, B, P, F]``; copies of a replica share them.
    """

    function = "dropped_stack"  # DroppedStackCall of stack.cpp
    tensors = (*CompiledStack.tensors, "factors")  # type: ignore[assignment]
    factors: Tensor

    def _run(
        self,
        mode: int,
        config: Any,
        inputs_BTI: Tensor,
        outputs: int,
        tensors: Mapping[str, Tensor],
        live_N: Tensor | None = None,
    ) -> None:
        copies = len(tensors["weights"]) // len(self.factors)
        factors_NBPF = self.factors.repeat_interleave(copies, 0)
        super()._run(mode, config, inputs_BTI, outputs, {**tensors, "factors": factors_NBPF}, live_N)


def dropped_stack(config: Any, inputs_BTI: Tensor, dropout: Dropout | None, first_row: int) -> CompiledStack | None:
    """The compiled call for stacks of a config with dropout; None where torch computes them.

    Args:
        config: of the stack.
        inputs_BTI: the sequences.
        dropout: of this step of training; None in evaluation.
        first_row: where in the batch the first sequence stands.
    """
    if not knows(dataclasses.replace(config, dropout=0.0), inputs_BTI.shape[1]):
        return None
    factors = None if dropout is None else dropout.factors_of_rows(first_row, inputs_BTI)
    if factors is None:
        return CompiledStack.load(inputs_BTI.dtype)
    kernel = CompiledDroppedStack.load(inputs_BTI.dtype)
    if kernel is not None:
        kernel.factors = factors
    return kernel
