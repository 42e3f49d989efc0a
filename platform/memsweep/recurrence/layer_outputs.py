"""The outputs of recurrent layers of many models on the same sequences, and their loss.

``layer_outputs`` and ``squared_loss`` choose an implementation of ``memsweep.recurrence.layer`` by device, type of
numbers and kind of layer:

- plain torch, a loop over time (``memsweep.recurrence.scan``): runs everything everywhere, and is the oracle in the
  tests of the others;
- compiled C++ (``memsweep.recurrence.compiled``): on a processor, states stay in its cache;
- Triton (``memsweep.recurrence.triton.layer``): on a GPU, states stay in registers.

``squared_loss`` is the fast way: outputs never leave the kernel, and loss and gradient come from one pass.

Letters: see memsweep.recurrence.layer.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.activations import activation_named
from memsweep.recurrence.compiled.layer_calls import CompiledLayer
from memsweep.recurrence.compiled.library import library
from memsweep.recurrence.layer import Implementation, Layer, refused_layer
from memsweep.recurrence.scan import scan
from memsweep.recurrence.triton.layer import TritonLayer, triton_refusal


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
    chosen = None if inputs_BTI.requires_grad else implementation(folded, inputs_BTI)
    if chosen is None:
        return plain_outputs(layer, inputs_BTI)
    y: Tensor = _Outputs.apply(chosen, folded, inputs_BTI, _all_live(layer, live_N), *folded.tensors().values())
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
    chosen = implementation(folded, inputs_BTI)
    if chosen is None:
        return None
    tensors = folded.tensors().values()
    gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    data = (inputs_BTI, _all_live(layer, live_N), targets_BTO, weights_T)
    loss: Tensor = _Squared.apply(chosen, folded, gradient, data, *tensors)
    return loss


def implementation(folded: Layer, inputs_BTI: Tensor) -> Implementation | None:
    """The fused implementation of a folded layer; None where plain torch computes it."""
    if inputs_BTI.device.type == "cuda":
        return None if triton_refusal(folded, inputs_BTI) else TritonLayer()
    if inputs_BTI.device.type != "cpu" or refused_layer(folded, inputs_BTI.dtype):
        return None
    return CompiledLayer.load(inputs_BTI.dtype)


def kernels(dtype: torch.dtype, device: str = "cpu") -> str:
    """The implementation of layers on this machine: ``compiled`` or ``plain``; on a GPU, ``triton`` or ``plain``.

    A driver without a GPU answers for its workers, so only what is installed counts.
    """
    if device == "cuda":
        return "plain" if importlib.util.find_spec("triton") is None else "triton"
    return "plain" if library(dtype) is None else "compiled"


def plain_outputs(layer: Layer, inputs_BTI: Tensor) -> Tensor:
    """``layer_outputs`` by torch's own operations, one step of time after the other.

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
        shape = list(getattr(layer, name).shape)
        if shape not in shapes:
            raise ValueError(f"{name} has the shape {shape}; allowed: {' or '.join(map(str, shapes))}")
    kinds = {tensor.dtype for tensor in (*layer.tensors().values(), inputs_BTI)}
    if len(kinds) > 1:
        raise ValueError(f"weights and inputs must have one dtype, got {', '.join(sorted(map(str, kinds)))}")


class _Outputs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, chosen: Implementation, kind: Layer, inputs_BTI: Tensor, live_N: Tensor, *weights: Tensor
    ) -> Tensor:
        ctx.chosen, ctx.kind = chosen, kind
        ctx.save_for_backward(inputs_BTI, live_N, *weights)
        return chosen.outputs(kind.with_tensors(*weights), inputs_BTI, live_N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        inputs_BTI, live_N, *weights = ctx.saved_tensors
        layer = ctx.kind.with_tensors(*weights)
        return None, None, None, None, *ctx.chosen.gradients(layer, inputs_BTI, live_N, grads[0])


class _Squared(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, chosen: Implementation, kind: Layer, gradient: bool, data: tuple[Tensor, ...], *weights: Tensor
    ) -> Tensor:
        inputs_BTI, live_N, targets_BTO, weights_T = data
        layer = kind.with_tensors(*weights)
        loss_N, gradients = chosen.squared(layer, inputs_BTI, live_N, targets_BTO, weights_T, gradient)
        ctx.save_for_backward(*(gradients or ()))
        return loss_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (grad_N,) = grads
        scaled = (tensor * grad_N.view(-1, *[1] * (tensor.ndim - 1)) for tensor in ctx.saved_tensors)
        return None, None, None, None, *scaled
