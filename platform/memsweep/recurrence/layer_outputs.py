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

from memsweep.recurrence.activations import CODES, activation_named
from memsweep.recurrence.compiled.expected import is_compiled
from memsweep.recurrence.compiled.library import Kernel, masks_of, readable
from memsweep.recurrence.layer import FlatDiagonal, Gradients, Layer, require_fit
from memsweep.recurrence.scan import scan
from memsweep.recurrence.triton.layer import TritonLayer, triton_knows

_OUTPUTS, _GRADIENTS, _LOSS, _LOSS_AND_GRADIENTS = range(4)


class CompiledLayer(Kernel):
    """A layer's three operations on the processor, without autograd; models that are not live are passed over: zeros.

    Every model is computed by itself, sequence block by sequence block, in the thread that has it: its bits do not
    depend on the others, nor on the number of threads.
    """

    function = "layer"  # LayerCall of kernels.cpp
    numbers = (
        *("mode", "dense", "sigma", "tau", "carried", "models", "batch", "horizon", "width", "inputs", "outputs"),
        "row",
    )
    reals = ("least",)
    tensors = (
        *("live", "x", "target", "weight", "encoder", "bias", "matrix", "readout", "offset", "y", "loss"),
        *("of_encoder", "of_bias", "of_matrix", "of_readout", "of_offset"),
        *("raw", "of_raw"),
    )

    def outputs(self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor) -> Tensor:
        y_NBTO = inputs_BTI.new_zeros(layer.models, *inputs_BTI.shape[:2], layer.outputs)
        self._run(_OUTPUTS, layer, inputs_BTI, live_N, {"y": y_NBTO})
        return y_NBTO

    def gradients(self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, grad_NBTO: Tensor) -> Gradients:
        result = Gradients.zeros_like(layer)
        self._run(_GRADIENTS, layer, inputs_BTI, live_N, {"y": grad_NBTO} | _fields(result))
        return result

    def squared(
        self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, targets_BTO: Tensor, weights_T: Tensor, gradient: bool
    ) -> tuple[Tensor, Gradients | None]:
        loss_N = inputs_BTI.new_zeros(layer.models)
        result = Gradients.zeros_like(layer) if gradient else None
        tensors = {"target": targets_BTO, "weight": weights_T, "loss": loss_N} | (_fields(result) if result else {})
        self._run(_LOSS_AND_GRADIENTS if gradient else _LOSS, layer, inputs_BTI, live_N, tensors)
        return loss_N, result

    def of_flat(
        self, flat: FlatDiagonal, inputs_BTI: Tensor, live_N: Tensor, targets_BTO: Tensor, weights_T: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Losses ``[N]`` and gradients ``[N, S]`` of layers in flat weights."""
        weights_NS, (batch, horizon, inputs) = flat.weights, inputs_BTI.shape
        linear = flat.activation == "linear"
        loss_N, gradient_NS = weights_NS.new_zeros(len(weights_NS)), torch.zeros_like(weights_NS)
        named = {"x": inputs_BTI, "target": targets_BTO, "weight": weights_T, "loss": loss_N}
        if flat.mapped:
            added_NM = flat.mapped[0] - 1.0
            matrix_NM = 1.0 + added_NM if linear else added_NM  # a linear layer has in it what its states keep
            of_matrix_NM = torch.zeros_like(matrix_NM)
            named |= {"matrix": matrix_NM, "of_matrix": of_matrix_NM}
        places = flat.places(weights_NS) | flat.places(gradient_NS, "of_")
        masks = masks_of(live_N)  # held until the kernel has read them
        self.run(
            readable(named, weights_NS.dtype),
            [{"live": mask.data_ptr(), **places} for mask in masks],
            mode=_LOSS_AND_GRADIENTS,
            sigma=CODES[flat.activation],
            tau=CODES["linear"],
            carried=not linear,
            models=len(weights_NS),
            batch=batch,
            horizon=horizon,
            width=flat.width,
            inputs=inputs,
            outputs=flat.outputs,
            row=weights_NS.shape[-1],
            least=flat.least,
        )
        if flat.mapped:
            flat.finish(gradient_NS, of_matrix_NM)
        return loss_N, gradient_NS

    def _run(self, mode: int, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, more: dict[str, Tensor]) -> None:
        batch, horizon, inputs = inputs_BTI.shape
        masks = masks_of(live_N)
        self.run(
            readable({"x": inputs_BTI} | layer.tensors() | more, inputs_BTI.dtype),
            [{"live": mask.data_ptr()} for mask in masks],
            mode=mode,
            dense=layer.matrix.ndim == 3,
            sigma=CODES[layer.activation],
            tau=CODES[layer.output],
            carried=layer.leak == 1.0,
            models=layer.models,
            batch=batch,
            horizon=horizon,
            width=layer.width,
            inputs=inputs,
            outputs=layer.outputs,
        )


def _fields(gradients: Gradients) -> dict[str, Tensor]:
    """The gradients by the names of the C++ structure."""
    return {f"of_{name}": tensor for name, tensor in gradients._asdict().items()}


Implementation = CompiledLayer | TritonLayer


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
    # the kernels differentiate by weights alone
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
    # decided here: inside of an autograd function gradients are switched off
    gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    data = (inputs_BTI, _all_live(layer, live_N), targets_BTO, weights_T)
    loss: Tensor = _Squared.apply(chosen, folded, gradient, data, *tensors)
    return loss


def flat_squared_loss(
    flat: FlatDiagonal, inputs_BTI: Tensor, targets_BTO: Tensor, weights_T: Tensor, live_N: Tensor
) -> tuple[Tensor, Tensor] | None:
    """``squared_loss`` of layers in flat weights, with its gradient: ``[N]`` and ``[N, S]``, without a graph.

    Args:
        flat: the layers, in the processor's memory.
        inputs_BTI, targets_BTO, weights_T, live_N: as for ``squared_loss``.

    Returns:
        None where no kernel computes it.

    Raises:
        ValueError: shapes or dtypes do not fit.
    """
    shapes = inputs_BTI.shape[2], targets_BTO.shape
    if shapes != (flat.inputs, (*inputs_BTI.shape[:2], flat.outputs)):
        raise ValueError(f"inputs and targets must have {flat.inputs} and {flat.outputs} numbers a step, got {shapes}")
    kernel = CompiledLayer.load(inputs_BTI.dtype)
    return None if kernel is None else kernel.of_flat(flat, inputs_BTI, live_N, targets_BTO, weights_T)


def implementation(folded: Layer, inputs_BTI: Tensor) -> Implementation | None:
    """The fused implementation of a folded layer; None where plain torch computes it."""
    dtype, device, linear = inputs_BTI.dtype, inputs_BTI.device.type, folded.activation == "linear"
    # a kernel has one activation, inside or outside of the recurrence; a linear layer has its leak in its matrix
    known = (
        dtype in (torch.float64, torch.float32)
        and folded.leak in (0.0, 1.0)
        and folded.gain == 1.0
        and (not folded.leak if linear else folded.output == "linear")
    )
    if known and device == "cuda":
        return TritonLayer() if triton_knows(folded, inputs_BTI) else None
    return CompiledLayer.load(dtype) if known and device == "cpu" else None


def kernels(dtype: torch.dtype, device: str = "cpu", *, over_time: bool = True) -> str:
    """The implementation of layers on this machine: ``compiled`` or ``plain``; on a GPU, ``triton`` or ``plain``.

    A driver without a GPU answers for its workers, so only what is installed counts.

    Args:
        dtype: of the numbers.
        device: type of the device.
        over_time: as of ``is_compiled``.
    """
    if device == "cuda":
        return "plain" if importlib.util.find_spec("triton") is None else "triton"
    return "compiled" if is_compiled(dtype, over_time=over_time) else "plain"


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
    models, width, inputs = layer.encoder.shape
    outputs = layer.outputs
    require_fit(
        inputs_BTI.dtype,
        inputs=(inputs_BTI, [[*inputs_BTI.shape[:2], inputs]]),
        encoder=(layer.encoder, [[models, width, inputs]]),
        bias=(layer.bias, [[models, width]]),
        matrix=(layer.matrix, [[models, width], [models, width, width]]),
        readout=(layer.readout, [[models, outputs, width]]),
        offset=(layer.offset, [[models, outputs]]),
    )


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
        # the gradient came with the loss in one pass: backward only scales it
        ctx.save_for_backward(*(gradients or ()))
        return loss_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (grad_N,) = grads
        scaled = (tensor * grad_N.view(-1, *[1] * (tensor.ndim - 1)) for tensor in ctx.saved_tensors)
        return None, None, None, None, *scaled
