"""Sizes that matrix products treat alike.

A matrix product may sum the last columns of an odd size in another order than the rest, so that a row's last bit
depends on which row it is. Time axes are therefore padded with zeros to a multiple of ``ALIGNMENT``.
"""

from __future__ import annotations

ALIGNMENT = 16


def aligned(size: int) -> int:
    """The next multiple of ``ALIGNMENT``."""
    return -(-size // ALIGNMENT) * ALIGNMENT
