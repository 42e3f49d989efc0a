"""Fixed-point numbers with a scale: symmetric integers of few bits."""

from __future__ import annotations

import torch
from torch import Tensor


def fixed(values: Tensor, bits: Tensor | int, largest: Tensor, draws: Tensor | None = None) -> Tensor:
    """Integers from -(2^(bits - 1) - 1) to 2^(bits - 1) - 1, times the scale that brings the last one to ``largest``.

    These are 2^bits - 1 values. With 8 bits this is int8 from -127 to 127, as torch quantizes symmetrically.

    Args:
        values: of any shape; beyond the last integer, they become it.
        bits, largest: broadcast over it; at least 2 bits. Where ``largest`` is 0, values stay.
        draws: uniform on [0, 1), broadcast over it: up where a draw lies in the share of the step that is below the
            value, so that the mean is the value (stochastic rounding). None: to nearest.
    """
    last = torch.exp2(torch.as_tensor(bits, dtype=values.dtype) - 1.0) - 1.0
    step = largest / last
    steps = values / torch.where(step > 0, step, 1.0)
    steps = torch.round(steps) if draws is None else torch.floor(steps + draws)
    return torch.where(step > 0, torch.minimum(torch.maximum(steps, -last), last) * step, values)
