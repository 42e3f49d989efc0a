"""Numbers of few bits: fixed point with a scale, floating point with few significant bits, and the usual formats.

To nearest, the first two move a number by at most 2^-bits: of the largest one of its tensor or channel in fixed point
(``memsweep.stability.fixed_point``), of itself in floating point.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.measures.bits.kinds import FIXED, FORMAT, FORMATS
from memsweep.stability.fixed_point import fixed


def significant(values: Tensor, bits: Tensor | int) -> Tensor:
    """The nearest floating-point numbers with ``bits`` significant bits, the leading one included; no underflow."""
    mantissa, exponent = torch.frexp(values)  # 1/2 <= |mantissa| < 1
    scale = torch.exp2(torch.as_tensor(bits, dtype=values.dtype))
    return torch.ldexp(torch.round(mantissa * scale) / scale, exponent)


def as_format(values: Tensor, bits: Tensor | int, largest: Tensor) -> Tensor:
    """The nearest numbers of a format, its subnormal ones among them.

    A number beyond the range becomes inf, as in a cast. Where the format has a scale it becomes the largest number, as
    is usual in deployment: the scale is that of unrounded states, and rounded ones may be larger.

    Args:
        values: of any shape.
        bits: significant ones, which say the format; broadcast over it. Values stay at a number that no format has.
        largest: broadcast over it; with a scale, what is brought to the format's largest number.
    """
    bits, shown = torch.as_tensor(bits), values
    for each in FORMATS.values():
        scale = torch.where(largest > 0, largest / each.largest, 1.0) if each.scaled else torch.ones_like(largest)
        scaled = values.double() / scale  # float64 holds every power of two below
        _, exponent = torch.frexp(scaled)  # of a mantissa in [1/2, 1)
        step = exponent.clamp_min(each.exponent + 1) - each.significant
        few = torch.ldexp(torch.round(torch.ldexp(scaled, -step)), step)
        most = each.largest if each.scaled else torch.inf
        few = torch.where(few.abs() > each.largest, few.sign() * most, few) * scale
        shown = torch.where(bits == each.significant, few.to(values), shown)
    return shown


def rounded(values: Tensor, number: str, bits: Tensor | int, largest: Tensor, draws: Tensor | None = None) -> Tensor:
    """``fixed``, ``significant`` or ``as_format``, by name."""
    if number == FIXED:
        return fixed(values, bits, largest, draws)
    return as_format(values, bits, largest) if number == FORMAT else significant(values, bits)
