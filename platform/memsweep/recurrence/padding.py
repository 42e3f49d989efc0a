"""Sizes that matrix products treat alike: time axes and widths are padded with zeros to them.

A matrix product may sum the last columns of an odd size in another order than the rest. So does a product of a stack of
matrices whose rows do not begin at whole vector registers. Then the last bits of a model depend on its place among the
others; at padded sizes they do not. Units and steps that are padding have no weights, and stay zero.
"""

from __future__ import annotations

ALIGNMENT = 16
"""Time axes are padded to a multiple of this."""
_WIDTH_UNIT = 4
"""Widths of dense matrices are padded to a multiple of this: 32 bytes of float64."""


def aligned(size: int) -> int:
    """The next multiple of ``ALIGNMENT``."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def missing_units(width: int) -> int:
    """How many units a width lacks to the next padded one."""
    return -width % _WIDTH_UNIT
