"""The singular values of a trained model's maps from past inputs to future outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from memsweep.data.task import as_read
from memsweep.measures.capacity.linear import LinearSystem
from memsweep.measures.capacity.moved import PUSHED, Moved
from memsweep.measures.capacity.truncation import WIDEST, truncation_errors
from memsweep.models.base import Model, Weights, as_layer, as_linear
from memsweep.stability.block import STEPS, block_values, singular_values, steps_of

BLOCK, HANKEL = "block", "hankel"
"""Maps from the past to the future: over the horizon, of any model; over all time, of a linear layer that is stable."""
ROBUST = f"{BLOCK}_robust_{{:g}}"
"""By index the least share of the largest singular value within a radius: of the model as it was trained, of the one
moved by chance, and of the one with the worst push that a search finds. The size at any share is the least of theirs.
"""
TRUNCATION = "truncation"
"""In the place of singular values the errors of that layer's truncations, the first of which keeps no state."""


def map_rows(model: Model, weights: Weights, inputs: Tensor, moved: Moved) -> Iterator[dict[str, Any]]:
    """The rows of one replica: those singular values that are more than rounding, and the largest in any case.

    Args:
        model, weights, inputs: as of ``capacity_of``.
        moved: the replica's moved weights, at which the block is measured again.
    """

    def block(at: Weights) -> Tensor:
        return capacity_of(model, at, inputs)[BLOCK]

    maps = capacity_of(model, weights, inputs)
    maps |= {f"{BLOCK}_{how}": block(at) for how, at in moved.rounded.items()}
    for radius, (by_chance, worst) in moved.pushed.items():
        pushed = f"{BLOCK}_{PUSHED.format(radius)}"
        maps[pushed] = block(by_chance)
        maps[ROBUST.format(radius)] = lowest(maps[BLOCK], maps[pushed], block(worst))
    return _rows(maps)


def lowest(*blocks: Tensor) -> Tensor:
    """By index the least share of the largest singular value, ``[R]``; blocks that are not finite are left out.

    nan where the first block, the trained model's, is not finite.
    """
    first = _shares(blocks[0])
    return torch.stack([first, *(_shares(each) for each in blocks[1:] if bool(torch.isfinite(each).all()))]).amin(0)


def capacity_of(model: Model, weights: Weights, inputs: Tensor) -> dict[str, Tensor]:
    """The singular values of one model's maps from past inputs to future outputs.

    Args:
        model: any model that does not read ids.
        weights: stacked, ``[1, ...]``.
        inputs: sequences, ``[B, T, I]`` or symbols ``[B, T]``. A linear model does not depend on them.

    Returns:
        ``BLOCK`` -> those of the block at the middle of the horizon, in shares of the largest, medians over the
        sequences; of a linear model the values themselves. ``HANKEL`` -> in closed form, of a stable linear layer.
        ``TRUNCATION`` -> of such a layer of at most ``WIDEST`` states, the errors of its balanced truncations.
    """
    linear = as_linear(model)
    if linear is None:
        example = next(iter(weights.values()))
        read = as_read(inputs, model.signature.inputs, example.dtype).to(example)  # tasks draw numbers in float64
        blocks = [block_values(lambda given: model.outputs(weights, given)[0], one, STEPS) for one in read.split(1)]
        return {BLOCK: torch.stack([_shares(each) for each in blocks]).median(0).values}
    with torch.no_grad():
        before, after = steps_of(model.signature.horizon)
        kernel = linear.response(weights, model.signature.horizon).kernel[0].to("cpu", torch.float64)
        block = kernel[..., after.unsqueeze(1) - before].permute(2, 0, 3, 1)  # of [O, I, lag after, lag before]
        values = {BLOCK: singular_values(block.flatten(2).flatten(0, 1))}
        layer = as_layer(model)
        system = None if layer is None else LinearSystem.of(layer.layer(weights), 0)
        if system is not None and system.stable:
            values[HANKEL] = system.hankel
            if len(system.encoder) <= WIDEST:
                values[TRUNCATION] = truncation_errors(system)
    return values


def _shares(values: Tensor) -> Tensor:
    return values / values[0] if values[0] > 0 else values


def _rows(maps: Mapping[str, Tensor]) -> Iterator[dict[str, Any]]:
    """The singular values as rows of a table: those that are more than rounding, and the largest in any case."""
    for name, values in maps.items():
        least = torch.finfo(values.dtype).eps * float(values[0])
        for index, value in enumerate(values.tolist()):
            if index == 0 or value > least:
                yield {"map": name, "index": index + 1, "value": value}
