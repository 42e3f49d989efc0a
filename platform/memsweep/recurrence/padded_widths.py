"""Widths of dense matrices that matrix products treat alike.

Where rows of a matrix do not begin at whole vector registers, a matrix product may sum in another order for one
matrix of a stack than for the next, so that a model's bits depend on its place. Dense matrices are therefore padded
with zeros to a multiple of ``UNIT``; units without weights stay at rest.
"""

from __future__ import annotations

UNIT = 4


def missing(width: int) -> int:
    """How many units a width lacks."""
    return -width % UNIT
