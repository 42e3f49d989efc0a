"""Calls of the compiled layer: tensors in, tensors out.

Letters: see memsweep.recurrence.layer.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from memsweep.recurrence.compiled.library import CODES, library, pointers, run
from memsweep.recurrence.layer import Gradients, Layer, refused_kind

_OUTPUTS, _PULL, _LOSS, _LOSS_AND_GRADIENT = range(4)
_NUMBERS = ("mode", "dense", "sigma", "tau", "carried", "models", "batch", "horizon", "width", "inputs", "outputs")
_TENSORS = (
    *("x", "target", "weight", "encoder", "bias", "matrix", "readout", "offset", "y", "loss"),
    *("of_encoder", "of_bias", "of_matrix", "of_readout", "of_offset"),
)


class _Call(ctypes.Structure):
    """The structure ``LayerCall`` of kernels.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _NUMBERS),
        ("live", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in _TENSORS),
    )


class Compiled:
    """The three operations of a layer (see ``memsweep.recurrence.layer.Implementation``), on the processor.

    Every model is computed by itself, sequence block by sequence block, in the thread that has it: its bits do not
    depend on the others, nor on the number of threads.
    """

    def __init__(self, loaded: Any) -> None:
        self._function = loaded.memsweep_layer

    def outputs(self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor) -> Tensor:
        y_NBTO = inputs_BTI.new_zeros(layer.models, *inputs_BTI.shape[:2], layer.outputs)
        self._run(_OUTPUTS, layer, inputs_BTI, live_N, {"y": y_NBTO})
        return y_NBTO

    def pulled(self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, grad_NBTO: Tensor) -> Gradients:
        found = Gradients.zeros_like(layer)
        self._run(_PULL, layer, inputs_BTI, live_N, {"y": grad_NBTO} | _named(found))
        return found

    def squared(
        self, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, targets_BTO: Tensor, weights_T: Tensor, wanted: bool
    ) -> tuple[Tensor, Gradients | None]:
        loss_N = inputs_BTI.new_zeros(layer.models)
        found = Gradients.zeros_like(layer) if wanted else None
        tensors = {"target": targets_BTO, "weight": weights_T, "loss": loss_N} | (_named(found) if found else {})
        self._run(_LOSS_AND_GRADIENT if wanted else _LOSS, layer, inputs_BTI, live_N, tensors)
        return loss_N, found

    def _run(self, mode: int, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, more: dict[str, Tensor]) -> None:
        batch, horizon, inputs = inputs_BTI.shape
        # what is written to is contiguous already, and stays itself
        tensors = {
            name: tensor.detach().contiguous() for name, tensor in ({"x": inputs_BTI} | layer.tensors() | more).items()
        }
        call = _Call(
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
            **pointers(tensors, inputs_BTI.dtype),
        )
        masks = _shares(live_N)
        run(self._function, [_with_mask(call, mask) for mask in masks])


def _shares(live_N: Tensor) -> list[Tensor]:
    """The live models dealt out to torch's threads: masks, ``[N]`` uint8."""
    rows = torch.nonzero(live_N).flatten()
    threads = min(torch.get_num_threads(), len(rows))
    masks = [torch.zeros(len(live_N), dtype=torch.uint8) for _ in range(threads)]
    for index, mask in enumerate(masks):
        mask[rows[index::threads]] = 1
    return masks


def _with_mask(call: _Call, mask: Tensor) -> _Call:
    own = _Call.from_buffer_copy(call)
    own.live = mask.data_ptr()
    return own


def _named(gradients: Gradients) -> dict[str, Tensor]:
    return {f"of_{name}": tensor for name, tensor in gradients._asdict().items()}


def refusal(layer: Layer, inputs: Tensor) -> str:
    """Why the compiled code cannot compute this layer; empty if it can."""
    if inputs.device.type != "cpu":
        return f"the numbers are on {inputs.device}"
    return refused_kind(layer, inputs.dtype)


def compiled_layer(dtype: torch.dtype) -> Compiled | None:
    """The compiled layer for numbers of this type; None where plain torch is to run (raises as ``library``)."""
    found = library(dtype)
    return Compiled(found) if found is not None else None
