"""Numbers of few bits: fixed point with a scale for each tensor, and floating point with few significant bits.

Both move a number by at most 2^-bits: of the largest one of its tensor in fixed point, of itself in floating point.
"""

from __future__ import annotations

import torch
from torch import Tensor

FIXED, FLOAT = "fixed", "float"
SIGNIFICANT = {"float16": 11, "bfloat16": 8, "float8_e4m3": 4, "float8_e5m2": 3}
"""Significant bits of the usual formats, the leading one included. Their ranges of exponents are not modelled."""


def fixed(values: Tensor, bits: Tensor | int, largest: Tensor) -> Tensor:
    """The nearest points of a grid of 2^bits cells over [-largest, largest]; beyond it, its ends.

    With 8 bits this is int8 with a scale, up to the one value that int8 has more on its negative side.

    Args:
        values: of any shape.
        bits, largest: broadcast over it; where ``largest`` is 0, values stay.
    """
    step = 2.0 * largest * torch.exp2(-torch.as_tensor(bits, dtype=values.dtype))
    cells = torch.round(values / torch.where(step > 0, step, 1.0)) * step
    return torch.where(step > 0, torch.minimum(torch.maximum(cells, -largest), largest), values)


def significant(values: Tensor, bits: Tensor | int) -> Tensor:
    """The nearest floating-point numbers with ``bits`` significant bits, the leading one included; no underflow."""
    mantissa, exponent = torch.frexp(values)  # 1/2 <= |mantissa| < 1
    scale = torch.exp2(torch.as_tensor(bits, dtype=values.dtype))
    return torch.ldexp(torch.round(mantissa * scale) / scale, exponent)


def rounded(values: Tensor, number: str, bits: Tensor | int, largest: Tensor) -> Tensor:
    """``fixed`` or ``significant``, by name."""
    return fixed(values, bits, largest) if number == FIXED else significant(values, bits)
