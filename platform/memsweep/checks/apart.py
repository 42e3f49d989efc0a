"""How far two outputs are apart, as an audit sees it: nan beside a number is a difference, and rounding is none.

A study compares by ``memsweep.models.contracts`` before it trains, and leaves out values that are not finite: its code
is in the identity of trials. An audit must not: a step that is nan in one reading alone is what it looks for. Values
that are finite in neither are equal, whichever of nan and infinity they are: the order of operations decides that, and
the check of finite values reports both.

Letters: B batch, T time (length), O outputs, R rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.checks.finding import show
from memsweep.models import contracts

_ROUNDINGS, _MOST = 32.0, 0.03
"""An effect is more than rounding from so many units in the last place on, and from this share on at any precision."""


def rounding(dtype: torch.dtype) -> float:
    """The size of an effect below which it may be rounding, over the size of the outputs."""
    return min(_ROUNDINGS * torch.finfo(dtype).eps, _MOST)


@dataclass(frozen=True)
class Effect:
    """The effect of a change of the inputs, over the size of the change.

    Attributes:
        rows: ``[R, T]``: zeros in the rows that rounding explains; rows that are not finite stay.
        floor: what is below may be rounding, ``[R]``.
    """

    rows: Tensor
    floor: Tensor

    def moved(self) -> tuple[int, int]:
        """How many rows moved, and of how many: rows that are not finite are in neither."""
        known = torch.isfinite(self.rows).all(1)
        return int((known & self.rows.any(1)).sum()), int(known.sum())


def effect_of(apart: Tensor, size: Tensor, dtype: torch.dtype, change: float | Tensor = 1.0) -> Effect:
    """The effect of a change by which outputs are ``[R, T]`` apart.

    Args:
        apart: the norm of the difference of two outputs.
        size: the largest norm of these outputs, ``[R]``.
        dtype: the lowest precision of the computation.
        change: the size of the change, one or ``[R]``.
    """
    floor = rounding(dtype) * size
    kept = (apart > floor.unsqueeze(1)).any(1) | ~torch.isfinite(apart).all(1)
    by = torch.as_tensor(change, dtype=apart.dtype).expand(len(apart))
    return Effect(torch.where(kept.unsqueeze(1), apart, 0.0) / by.unsqueeze(1), floor / by)


def difference(one: Tensor, other: Tensor) -> float:
    """The largest difference, over the largest value of ``other``; inf where a value is finite in one alone."""
    return contracts.difference(one, other) if alike(one, other) else math.inf


def alike(one: Tensor, other: Tensor) -> bool:
    """Whether the same values are finite in both."""
    return torch.equal(torch.isfinite(one), torch.isfinite(other))


def size_of(apart: float) -> str:
    """A difference in words, such as ``0.12 times their size``."""
    return f"{show(apart)} times their size" if math.isfinite(apart) else "nan or inf in one of the two"


class Marked:
    """A run whose outputs are all finite: zero where they were not, and as many outputs more that mark these.

    A rule of ``contracts`` then finds a value that is finite in one call alone, as a difference of the outputs' size.
    """

    def __init__(self, run: Callable[[Tensor], Tensor]) -> None:
        self._run = run
        self._size: Tensor | None = None

    def __call__(self, inputs: Tensor) -> Tensor:
        """``[B, T, 2 O]``; the marks have the size of the largest output of the first call."""
        outputs = self._run(inputs)
        finite = torch.nan_to_num(outputs, nan=0.0, posinf=0.0, neginf=0.0)
        if self._size is None:
            self._size = finite.abs().max() if bool(finite.any()) else torch.ones((), dtype=finite.dtype)
        return torch.cat([finite, self._size * ~torch.isfinite(outputs)], -1)
