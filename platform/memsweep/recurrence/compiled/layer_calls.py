"""Calls of the compiled layer: tensors in, tensors out.

Letters: see memsweep.recurrence.layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.recurrence.activations import CODES
from memsweep.recurrence.compiled.library import Kernel, readable
from memsweep.recurrence.layer import Gradients, Layer

_OUTPUTS, _GRADIENTS, _LOSS, _LOSS_AND_GRADIENTS = range(4)


class CompiledLayer(Kernel):
    """The three operations of a layer (see ``memsweep.recurrence.layer.Implementation``), on the processor.

    Every model is computed by itself, sequence block by sequence block, in the thread that has it: its bits do not
    depend on the others, nor on the number of threads.
    """

    function = "layer"  # LayerCall of kernels.cpp
    numbers = ("mode", "dense", "sigma", "tau", "carried", "models", "batch", "horizon", "width", "inputs", "outputs")
    tensors = (
        *("live", "x", "target", "weight", "encoder", "bias", "matrix", "readout", "offset", "y", "loss"),
        *("of_encoder", "of_bias", "of_matrix", "of_readout", "of_offset"),
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

    def _run(self, mode: int, layer: Layer, inputs_BTI: Tensor, live_N: Tensor, more: dict[str, Tensor]) -> None:
        batch, horizon, inputs = inputs_BTI.shape
        masks = _masks(live_N)
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


def _masks(live_N: Tensor) -> list[Tensor]:
    """Divides the live models among torch's threads: masks, ``[N]`` uint8."""
    rows = torch.nonzero(live_N).flatten()
    threads = min(torch.get_num_threads(), len(rows))
    masks = [torch.zeros(len(live_N), dtype=torch.uint8) for _ in range(threads)]
    for index, mask in enumerate(masks):
        mask[rows[index::threads]] = 1
    return masks


def _fields(gradients: Gradients) -> dict[str, Tensor]:
    """The gradients by the names of the C++ structure."""
    return {f"of_{name}": tensor for name, tensor in gradients._asdict().items()}
