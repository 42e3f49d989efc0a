"""Projected gradient ascent of many perturbed copies of an ensemble, in slices.

Letters: P rows (replicas and dummies), K copies, S size of the flat weights.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.learning.memory import largest_count
from memsweep.stability.perturbation.ball import Ball

FIRST_STEP, LAST_STEP = 2.0, 0.05
"""Ascent steps in units of the radius: the first crosses the ball, the last ones converge."""
NEAR_STEP = 0.5
"""The first step from a shift that is near a maximum already."""
FAR_STEP = 0.3
"""The last step of an ascent from a start in closed form, of which those along the path take the small steps."""
BUDGETS = {"cpu": 16 << 20, "cuda": 1 << 30}
"""Bytes of tensors that a slice may hold, by type of device.

On a processor, a slice should stay in the cache: ``benchmarks/perturbation/budget.py`` measures the shortest time
between 8 and 32 MiB, and twice that time at 64 MiB for linear models of width 64. The budget of a GPU was not measured.
"""

Loss = Callable[[Tensor], Tensor]
"""Shifts of the weights ``[P, K, S]`` to losses ``[P, K]``, differentiable."""


@dataclass(frozen=True)
class Ascent:
    """Gradient ascent of the loss inside balls.

    Attributes:
        loss: to be maximized.
        ball: in which the shifts stay.
        size: copies of a slice, which are computed at a time.
    """

    loss: Loss
    ball: Ball
    size: int

    def climb(
        self, shifts: Tensor, radii: Tensor, steps: int, first_step: float = FIRST_STEP, last_step: float = LAST_STEP
    ) -> tuple[Tensor, Tensor]:
        """Ascend from shifts ``[P, K, S]`` in balls of the copies' radii ``[P, K]``; the steps are those of ``ascend``.

        Returns:
            The largest loss of each ascent, ``[P, K]``, and its shift, ``[P, K, S]``.
        """
        slices = zip(shifts.split(self.size, 1), radii.split(self.size, 1), strict=True)
        lengths = (first_step, last_step)
        ascents = [ascend(self.loss, self.ball, start, radius, steps, *lengths) for start, radius in slices]
        values, reached = zip(*ascents, strict=True)
        return torch.cat(values, 1), torch.cat(reached, 1)


def first_steps(loss: Loss, ball: Ball, weights: Tensor, radius: Tensor, steps: int) -> Callable[[int], object]:
    """The work of a slice of ``copies`` copies, to measure its memory; all steps from the second on take the same.

    Args:
        loss, ball: as of an ascent.
        weights: ``[P, S]``, of the unperturbed models.
        radius: any.
        steps: largest number of steps of an ascent.
    """

    def work(copies: int) -> object:
        start = weights.new_zeros(weights.shape[0], copies, weights.shape[1])
        return ascend(loss, ball, start, radius.expand(len(start), copies), min(steps, 2))

    return work


def slice_size(
    work: Callable[[int], object], device: torch.device, budget: int | None = None, alike: Hashable = None
) -> int:
    """Copies to compute at a time: as many as fit the budget, by a count of the bytes of a few copies.

    The bytes depend on shapes and code alone, never on the machine, and so does the slice: a product of matrices of
    another size may round its last bit differently (slices of 1, 3 and 8 copies of 2 models differed by 1e-14), and a
    trial must have the same bits on every machine.

    Args:
        work, alike: as of ``largest_count``.
        device: that the copies are on.
        budget: bytes; None: that of the type of device.
    """
    return largest_count(work, BUDGETS[device.type] if budget is None else budget, alike)


def ascend(
    loss: Loss,
    ball: Ball,
    shift: Tensor,
    radius: Tensor,
    steps: int,
    first_step: float = FIRST_STEP,
    last_step: float = LAST_STEP,
) -> tuple[Tensor, Tensor]:
    """Ascend from shifts ``[P, K, S]`` in balls of the copies' radii ``[P, K]``.

    Args:
        loss, ball: as of an ascent.
        shift, radius: of the copies.
        steps: of each ascent.
        first_step, last_step: in units of the radius; those between shrink geometrically.

    Returns:
        The largest loss of each ascent, ``[P, K]``, inf where one was not finite, and its shift, ``[P, K, S]``.
    """
    best, best_shift = shift.new_full(shift.shape[:2], -torch.inf), shift
    for step in range(steps + 1):
        climbing = step < steps
        with torch.set_grad_enabled(climbing):
            here = shift.detach().requires_grad_(climbing)
            value = loss(here)
        reached = finite_or_inf(value.detach())
        better = reached > best
        best, best_shift = torch.where(better, reached, best), torch.where(better.unsqueeze(-1), shift, best_shift)
        if climbing:
            (gradient,) = torch.autograd.grad(value.sum(), here)
            length = radius * first_step * (last_step / first_step) ** (step / max(1, steps - 1))
            shift = ball.project(shift + length.unsqueeze(-1) * ball.steepest(gradient), radius)
    return best, best_shift


def finite_or_inf(value: Tensor) -> Tensor:
    """The losses, with inf where they are not finite."""
    return torch.where(torch.isfinite(value), value, torch.inf)
