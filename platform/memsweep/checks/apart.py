"""How far two outputs that must be equal are apart, as an audit sees it: nan beside a number is a difference.

A study compares by ``memsweep.models.contracts`` before it trains, and leaves out values that are not finite: its code
is in the identity of trials. An audit must not: a step that is nan in one reading alone is what it looks for. Values
that are finite in neither are equal, whichever of nan and infinity they are: the order of operations decides that, and
the check of finite values reports both.

Letters: B batch, T time (length), O outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from memsweep.checks.finding import show
from memsweep.models import contracts


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
