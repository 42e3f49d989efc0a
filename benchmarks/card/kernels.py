"""The Triton kernels against torch's loop on the processor: states, losses, gradients, packs, bits.

Without a GPU, Triton's interpreter runs them (``TRITON_INTERPRET=1``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from benchmarks.card import measuring
from benchmarks.card.catalogue import Setting
from benchmarks.card.measuring import TOLERANCES, normal
from memsweep.recurrence.gated import gru, lstm
from memsweep.recurrence.layer import Layer
from memsweep.recurrence.layer_outputs import plain_outputs
from memsweep.recurrence.scan import linear_scan, scan
from memsweep.recurrence.triton.gated import triton_states
from memsweep.recurrence.triton.layer import TritonLayer
from memsweep.recurrence.triton.scan import TritonScan

Row = dict[str, Any]
QUICK = ((2, 3, 5, 3),)
SHAPES = {
    "diagonal": ((3, 5, 17, 3), (3, 64, 100, 8), (2, 1, 1000, 64), (1, 8, 100, 1024)),
    "complex": ((3, 5, 17, 3), (3, 64, 100, 8), (2, 1, 1000, 64), (1, 8, 100, 1024)),
    "dense": ((3, 5, 17, 3), (3, 64, 100, 8), (2, 1, 500, 64), (1, 3, 20, 512)),
}
"""Models, sequences, steps, width."""


def scans(setting: Setting, kind: str, real: str) -> Iterator[Row]:
    """States and gradients of recurrences that are driven unit by unit."""
    activations = [(name, leak) for name in ("hardtanh", "relu", "tanh") for leak in (0.0, 1.0)]
    kinds, dtype = [("linear", 0.0)] + (activations if kind != "complex" else []), getattr(torch, real)
    for shape, (activation, leak) in cases(setting, QUICK if setting.quick else SHAPES[kind], kinds):
        wide = [_rounded(each, dtype) for each in scan_data(kind, leak, shape)]

        def work(*given: Tensor, activation: str = activation, leak: float = leak) -> list[Tensor]:
            states = TritonScan().states(given[0], given[1], activation, leak)
            return [states, *TritonScan().gradients(given[2], states, given[1], activation, leak)]

        row: Row = {"kernel": f"scan {kind}", "activation": activation, "leak": leak, "shape": list(shape)}
        expected = scan_oracle(kind, activation, leak, *wide)
        yield row | compared(work, wide, expected, dtype, setting.device, bits=2)


def cases(setting: Setting, shapes: Any, kinds: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yields all kinds at the first shape, and the first and the last kind at the others: each is compiled anew."""
    yield from product(shapes[:1], kinds[:: len(kinds) - 1 or 1] if setting.quick else kinds)
    yield from product(shapes[1:], kinds[:: len(kinds) - 1 or 1])


def scan_data(kind: str, leak: float, shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Drive, matrix of a stable recurrence, and the gradient that arrives; float64."""
    models, _, _, width = shape
    dtype = torch.complex128 if kind == "complex" else torch.float64
    matrix = normal(models, *[width] * (2 if kind == "dense" else 1), seed=1, dtype=dtype)
    if kind == "complex":  # tanh has poles there
        matrix = 0.9 * matrix / (1.0 + matrix.abs())
    else:
        matrix = 0.4 * matrix / width**0.5 if kind == "dense" else 0.6 * torch.tanh(matrix)
    if leak:
        matrix = matrix - (0.8 * torch.eye(width, dtype=dtype) if kind == "dense" else 0.8)
    return normal(*shape, seed=2, dtype=dtype), matrix, normal(*shape, seed=3, dtype=dtype)


def scan_oracle(kind: str, activation: str, leak: float, drive: Tensor, matrix: Tensor, outer: Tensor) -> list[Tensor]:
    """States, and the gradients by drive and matrix, by torch's loop over time."""
    live = drive.clone().requires_grad_(), matrix.clone().requires_grad_()
    linear = activation == "linear" and kind != "dense"
    states = linear_scan(live[1], live[0]) if linear else scan(*live, activation, leak)
    return [states.detach(), *torch.autograd.grad(states, live, outer)]


def compared(
    work: Callable[..., list[Tensor]],
    wide: list[Tensor],
    expected: list[Tensor],
    dtype: torch.dtype,
    device: str,
    bits: int | None = None,
) -> Row:
    """Differences from the oracle, the same bits twice, and the last model of a pack as alone.

    Args:
        work: results from the given tensors, all with a leading axis of models.
        wide: the tensors, float64.
        expected: the oracle's results.
        dtype, device: of the work.
        bits: of how many results, the first ones, a model alone must have the bits of the pack (None: of all). Torch's
            sums and products choose their order by shape, so that the others have them in whole trials alone, whose
            packs have fixed shapes.
    """
    there = [_narrow(each, dtype).to(device) for each in wide]
    found, again = work(*there), work(*there)
    last = len(there[0]) - 1
    alone = work(*(each[last:].contiguous() for each in there))
    off = measuring.difference(found, expected)
    beside = [each[last:] for each in found]
    pack, near = measuring.same_bits(beside, alone), measuring.difference(alone, beside)
    twice = measuring.same_bits(found, again)
    placed = all(each.device.type == device for each in found)
    row: Row = {"dtype": measuring.named(dtype), "difference": off, "pack": pack, "pack_difference": near}
    packed = measuring.same_bits(beside[:bits], alone[:bits]) and near <= TOLERANCES[dtype]
    return row | {"twice": twice, "placed": placed, "right": off <= TOLERANCES[dtype] and packed and twice and placed}


def _narrow(values: Tensor, dtype: torch.dtype) -> Tensor:
    return (
        values.to(torch.complex64 if dtype == torch.float32 else torch.complex128)
        if values.is_complex()
        else values.to(dtype)
    )


def _rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Float64 of the numbers that the kernels get."""
    return _narrow(values, dtype).to(values.dtype)


GATED = ((3, 5, 17, 3), (3, 64, 100, 8), (2, 1, 1000, 64), (1, 8, 100, 512))
"""Models, sequences, steps, width."""


def gates(setting: Setting, cell: str, real: str) -> Iterator[Row]:
    """States and gradients of gated recurrences."""
    dtype, loop = getattr(torch, real), (gru._GatedScan if cell == "gru" else lstm._Scan).apply
    for shape in QUICK if setting.quick else GATED:
        wide = [_rounded(each, dtype) for each in gated_data(cell, shape)]

        def work(*given: Tensor) -> list[Tensor]:
            return pulled_back(triton_states, *given)

        row: Row = {"kernel": f"gate {cell}", "shape": list(shape)}
        yield row | compared(work, wide, pulled_back(loop, *wide), dtype, setting.device, bits=2)


def gated_data(cell: str, shape: tuple[int, ...]) -> list[Tensor]:
    """The gradient that arrives, drive, matrix and, of a GRU, what it recalls; float64."""
    models, batch, horizon, width = shape
    rows = width * (3 if cell == "gru" else 4)
    weights = [normal(models, batch, horizon, rows, seed=2), normal(models, rows, width, seed=1) / width**0.5]
    weights += [normal(models, width, seed=4)] if cell == "gru" else []
    return [normal(*shape, seed=3), *weights]


def pulled_back(states: Callable[..., Tensor], outer: Tensor, *weights: Tensor) -> list[Tensor]:
    """States, and the gradients by drive, matrix and what is recalled."""
    live = [each.clone().requires_grad_() for each in weights]
    found = states(*live)
    return [found.detach(), *torch.autograd.grad(found, live, outer)]


LAYERS = {
    "diagonal": ((2, 5, 3, 2, 20, 20), (64, 8, 1, 1, 64, 100), (2, 64, 1, 1, 1, 1000), (1, 1024, 1, 1, 4, 50)),
    "dense": ((2, 5, 3, 2, 20, 20), (16, 16, 1, 1, 64, 100), (2, 64, 1, 1, 1, 500), (2, 33, 3, 2, 20, 20)),
}
"""Models, width, inputs, outputs, sequences, steps."""


def layers(setting: Setting, kind: str, real: str) -> Iterator[Row]:
    """Outputs, losses and all gradients of whole layers."""
    kinds = [("linear", "linear", 0.0), ("linear", "tanh", 0.0)]
    kinds += [(name, "linear", leak) for name in ("hardtanh", "relu", "tanh") for leak in (0.0, 1.0)]
    shapes, dtype = ((2, 3, 2, 2, 3, 3),) if setting.quick else LAYERS[kind], getattr(torch, real)
    for shape, (activation, output, leak) in cases(setting, shapes, kinds):
        rounded = [_rounded(each, dtype) for each in layer_data(shape, kind == "dense", leak)]
        made = Layer(*rounded[:5], activation=activation, output=output, leak=leak)
        row: Row = {"kernel": f"layer {kind}", "activation": activation, "output": output, "leak": leak}
        yield row | {"shape": list(shape)} | layer_row(made, rounded[5:], dtype, setting.device)


def layer_data(shape: tuple[int, ...], dense: bool, leak: float) -> list[Tensor]:
    """The five weights, inputs, targets, weights of the loss, and the gradient by the outputs; float64."""
    models, width, inputs, outputs, batch, horizon = shape
    matrix = scan_data("dense" if dense else "diagonal", leak, (models, 1, 1, width))[1]
    encoder, bias = normal(models, width, inputs, seed=4), 0.3 * normal(models, width, seed=5)
    readout, offset = normal(models, outputs, width, seed=6) / width**0.5, normal(models, outputs, seed=7)
    series = normal(batch, horizon, inputs, seed=8), normal(batch, horizon, outputs, seed=9)
    return [encoder, bias, matrix, readout, offset, *series, normal(horizon, seed=10).abs(),
            normal(models, batch, horizon, outputs, seed=11)]  # fmt: skip


def layer_row(layer: Layer, data: list[Tensor], dtype: torch.dtype, device: str) -> Row:
    """One row."""
    there = [each.to(device, dtype) for each in data]

    def work(*weights: Tensor) -> list[Tensor]:
        moved, live = layer.with_tensors(*weights), torch.ones(len(weights[0]), dtype=torch.bool, device=device)
        first = len(layer.encoder) - len(weights[0])  # of a model alone: the last one
        loss, of_loss = TritonLayer().squared(moved, there[0], live, there[1], there[2], True)
        assert of_loss is not None
        outputs = TritonLayer().outputs(moved, there[0], live)
        pulled = TritonLayer().gradients(moved, there[0], live, there[3][first:])
        return [outputs, *pulled, loss, *of_loss]

    return compared(work, list(layer.tensors().values()), layer_oracle(layer, *data), dtype, device)


def layer_oracle(layer: Layer, x: Tensor, target: Tensor, weight: Tensor, outer: Tensor) -> list[Tensor]:
    """Outputs, their gradients, the loss and its gradients, by torch's loop over time."""
    live = [each.clone().requires_grad_() for each in layer.tensors().values()]
    y = plain_outputs(layer.with_tensors(*live), x)
    loss = (weight[:, None] * (y - target).square()).sum((1, 2, 3))
    pulled = torch.autograd.grad(y, live, outer, retain_graph=True)
    return [y.detach(), *pulled, loss.detach(), *torch.autograd.grad(loss.sum(), live)]
