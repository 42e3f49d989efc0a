"""Fixed-point numbers with a scale: those of integers of few bits."""

from __future__ import annotations

import torch
from torch import Tensor


def fixed(values: Tensor, bits: Tensor | int, largest: Tensor, draws: Tensor | None = None) -> Tensor:
    """Points of a grid of 2^bits cells over [-largest, largest]; beyond it, its ends.

    With 8 bits this is int8 with a scale, up to the one value that int8 has more on its negative side.

    Args:
        values: of any shape.
        bits, largest: broadcast over it; where ``largest`` is 0, values stay.
        draws: uniform on [0, 1), broadcast over it: up where a draw lies in the share of the cell that is below the
            value, so that the mean is the value (stochastic rounding). None: to nearest.
    """
    step = 2.0 * largest * torch.exp2(-torch.as_tensor(bits, dtype=values.dtype))
    cells = values / torch.where(step > 0, step, 1.0)
    cells = (torch.round(cells) if draws is None else torch.floor(cells + draws)) * step
    return torch.where(step > 0, torch.minimum(torch.maximum(cells, -largest), largest), values)
