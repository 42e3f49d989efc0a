"""How the memory of work grows with what it is done on, measured on a little of it.

Bytes are counted moment by moment (``memsweep.learning.memory.live_bytes``) on one unit of work and on a few, such as
copies of models or sequences of a batch, and a straight line goes through every moment: exact where tensors have one
dimension that counts these units, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from memsweep.learning.memory.live_bytes import LiveBytes, live_bytes

_FEW, _MORE = 2, 4


@dataclass(frozen=True)
class Footprint:
    """Bytes that work on some units holds, moment by moment: a fixed part, and a part for each unit.

    Attributes:
        fixed, each: ``[moments]``.
    """

    fixed: np.ndarray
    each: np.ndarray

    def peak(self, units: int) -> int:
        """The most bytes held at a time."""
        return int(np.max(self.fixed + units * self.each, initial=0.0))

    def fitting(self, budget: int) -> int:
        """The most units whose peak is within the budget, but at least one."""
        growing = self.each > 0
        rooms = (budget - self.fixed[growing]) // self.each[growing]
        return max(1, int(rooms.min(initial=np.inf))) if growing.any() else 1


def footprint(work: Callable[[int], object], budget: int) -> Footprint:
    """Measure work on one unit, and on a few where these fit the budget.

    Args:
        work: does on so many units what will be done on many, gradients included.
        budget: bytes that the measurement, too, keeps to if it can.
    """
    one = live_bytes(lambda: work(1)).peak
    if _MORE * one > budget:
        return Footprint(np.zeros(1), np.array([float(one)]))
    few, more = live_bytes(lambda: work(_FEW)), live_bytes(lambda: work(_MORE))
    return _through(few, more)


def _through(few: LiveBytes, more: LiveBytes) -> Footprint:
    if few.operations != more.operations:  # no moments to compare: all of it as the units' part, which is too much
        return Footprint(np.zeros(1), np.array([max(few.peak / _FEW, more.peak / _MORE)]))
    low, high = np.array(few.moments, dtype=float), np.array(more.moments, dtype=float)
    each = (high - low) / (_MORE - _FEW)
    return Footprint(low - _FEW * each, each)
