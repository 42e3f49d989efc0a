"""The map from past inputs to future outputs of any model: its rank is how many numbers of the past the model keeps.

The map is the block of derivatives of outputs after the middle of a sequence by inputs before it. All that it passes on
goes through the states at the middle, so its rank is at most their number. Of a linear model it is the Hankel matrix,
at any sequence.

Letters: B sequences, T time (length), I inputs, O outputs, R rows or columns of a block, the fewer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

STEPS = 128
"""Steps before the middle, and after it, of a block. Of a longer sequence as many are taken, evenly spaced."""
OUTPUTS = 4
"""Of more outputs, the first so many are looked at: the rank is then a lower bound."""


def steps_of(length: int) -> tuple[Tensor, Tensor]:
    """The steps of a block: before the middle of a sequence, and from it on."""
    middle = length // 2
    before, after = (np.unique(np.linspace(*ends, STEPS).round()) for ends in ((0, middle - 1), (middle, length - 1)))
    return torch.from_numpy(before).long(), torch.from_numpy(after).long()


def block_values(run: Callable[[Tensor], Tensor], sequence: Tensor, together: int) -> Tensor:
    """The singular values of the block of a model at one sequence.

    Args:
        run: the model, ``[B, T, I]`` -> ``[B, T, O]``.
        sequence: ``[1, T, I]``.
        together: rows of the block that are computed at a time, each from a copy of the sequence.

    Returns:
        ``[R]``, decreasing, float64; nan where a derivative is not finite.
    """
    before, after = steps_of(sequence.shape[1])
    with torch.no_grad():
        outputs = run(sequence).shape[-1]
    parts = []
    rows = torch.cartesian_prod(after, torch.arange(min(outputs, OUTPUTS), device=after.device)).to(sequence.device)
    for some in rows.split(together):
        given = sequence.repeat(len(some), 1, 1).requires_grad_()
        with torch.enable_grad():
            answers = run(given)
            each = torch.arange(len(some), device=answers.device)
            (slope,) = torch.autograd.grad(answers[each, some[:, 0], some[:, 1]].sum(), given)
        parts.append(slope.to("cpu", torch.float64)[:, before].flatten(1))
    return singular_values(torch.cat(parts))


def singular_values(block: Tensor) -> Tensor:
    """The singular values of a block, ``[R]``, decreasing; nan where an entry is not finite."""
    if not bool(torch.isfinite(block).all()):
        return torch.full((min(block.shape),), torch.nan, dtype=block.dtype)
    return torch.linalg.svdvals(block)
