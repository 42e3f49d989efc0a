"""The search for the worst shift of the weights at every radius, along the path that it takes as the radius grows.

Ascents from all starts run at a few radii. From there on, a radius begins where its neighbours have ended: each pass
takes the worst of its own shift and its neighbours' shifts, scaled to the radius, and climbs on from it.

Where the loss is a mean over sequences, the passes climb on few of them, and only at the radii from which a verdict is
read. At all other radii a neighbour's shift stands as it is.

Letters: P rows (replicas and dummies), R radii, C starts, N radii that are climbed, S size of the flat weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.stability.perturbation.ascent import FAR_STEP, FIRST_STEP, LAST_STEP, NEAR_STEP, Ascent

APART, CLOSED_APART = 4.2, 2.1
"""Ascents from all starts run at radii that are at most so many times as large as the one before: over sequences, and
where the loss costs little. A non-normal matrix has another worst push at 0.07 than at 0.02, and no path leads there.
"""
READ = 8
"""Radii around the crossings of the limits: the two beside each of three limits, and two more for a smaller radius."""
_SMALL = 0.5  # the growth of the error with width is read at this share of the smallest limit's radius


@dataclass(frozen=True)
class Search:
    """A search in balls of several radii.

    Attributes:
        radii: ``[R]``, increasing, in geometric progression.
        passes: the ascents along the path, in their order; the first of them also climbs from the starts.
        judge: of the loss that counts.
        steps: of an ascent from a start; one along the path takes half of them.
        limits: errors at whose crossings a radius is read; None: all radii are climbed, because the loss is a closed
            form.
    """

    radii: Tensor
    passes: Sequence[Ascent]
    judge: Ascent
    steps: int
    limits: Sequence[float] | None

    def worst(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        """The largest loss found at each radius, ``[P, R]``, and its shift, ``[P, R, S]``.

        Args:
            starts: ``[P, C, S]``, of norm 1.
        """
        units, first = self._from_starts(starts), FIRST_STEP
        for ascent in self.passes:
            units, climbed = self._along_the_path(ascent, units, first)
            first = NEAR_STEP
        radii = self.radii.expand(len(units), -1)
        worst, shifts = self.judge.climb(units * radii.unsqueeze(-1), radii, 0)
        radii = self.radii[climbed]
        values, opposite = self.judge.climb(-_at(units, climbed) * radii.unsqueeze(-1), radii, 0)
        larger = (values > worst.gather(1, climbed)).unsqueeze(-1)
        places = climbed.unsqueeze(-1).expand_as(opposite)
        shifts = shifts.scatter(1, places, torch.where(larger, opposite, shifts.gather(1, places)))
        return worst.scatter_reduce(1, climbed, values, "amax"), shifts

    def _from_starts(self, starts: Tensor) -> Tensor:
        """Shifts in units of the radius, ``[P, R, S]``, from the nearest radii at which all starts are climbed."""
        places = torch.arange(len(self.radii), device=starts.device)
        growth = float(self.radii[1] / self.radii[0])
        closed = self.limits is None
        anchors = torch.tensor(anchored(len(places), growth, closed), device=starts.device)
        radii = self.radii[anchors].repeat_interleave(starts.shape[1]).expand(len(starts), -1)
        tried = starts.repeat(1, len(anchors), 1) * radii.unsqueeze(-1)
        values, reached = self.passes[0].climb(tried, radii, self.steps, last_step=FAR_STEP if closed else LAST_STEP)
        units = (reached / radii.unsqueeze(-1)).unflatten(1, (len(anchors), -1))
        worst = _taken(units, values.unflatten(1, (len(anchors), -1)).argmax(2))
        below = torch.searchsorted(anchors, places, right=True) - 1
        above = (below + 1).clamp(max=len(anchors) - 1)
        return self._worse(self.passes[0], [worst[:, below], worst[:, above]])[1]

    def _along_the_path(self, ascent: Ascent, units: Tensor, first_step: float) -> tuple[Tensor, Tensor]:
        """Climb from the worst of each radius' own shift, the opposite one, and its neighbours'.

        Returns:
            The shifts, in units of the radius, and which radii were climbed, ``[P, N]``.
        """
        smaller, larger = torch.cat([units[:, :1], units[:, :-1]], 1), torch.cat([units[:, 1:], units[:, -1:]], 1)
        # few sequences may not tell a shift from the opposite one, which is as bad but for the unperturbed error
        values, units = self._worse(ascent, [units, -units, smaller, larger])
        climbed = self._climbed(values)
        radii = self.radii[climbed]
        start = _at(units, climbed) * radii.unsqueeze(-1)
        _, reached = ascent.climb(start, radii, (self.steps + 1) // 2, first_step)
        places = climbed.unsqueeze(-1).expand(-1, -1, units.shape[-1])
        return units.scatter(1, places, reached / radii.unsqueeze(-1)), climbed

    def _worse(self, ascent: Ascent, candidates: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The losses ``[P, R]`` and units ``[P, R, S]`` of the worst of some candidates, the first of equals."""
        radii = self.radii.expand(len(candidates[0]), -1)
        values = [ascent.climb(units * radii.unsqueeze(-1), radii, 0)[0] for units in candidates]
        worst, which = torch.stack(values, 2).max(2)
        return worst, _taken(torch.stack(list(candidates), 2), which)

    def _climbed(self, values: Tensor) -> Tensor:
        """Indices of the radii to climb, ``[P, N]``: those nearest to the crossings of the limits, in order."""
        count = self.radii.shape[0]
        places = torch.arange(count, device=values.device).expand_as(values)
        if self.limits is None or count <= READ:
            return places
        curves = values.cummax(1).values
        crossings = [(curves <= limit).sum(1, keepdim=True) - 0.5 for limit in self.limits]
        distances = [(places - crossing).abs() for crossing in crossings]
        step = float(self.radii[1] / self.radii[0])
        small = crossings[0] + math.log(_SMALL) / math.log(step)
        distances.append((places - small).abs() + 0.5)
        nearest = torch.stack(distances).amin(0).sort(dim=1, stable=True).indices[:, :READ]
        return nearest.sort(1).values


def anchored(count: int, growth: float, closed: bool) -> list[int]:
    """Which of ``count`` radii, each ``growth`` times the one before, all starts are climbed at.

    Args:
        count, growth: of the grid.
        closed: the loss is a closed form.
    """
    every = max(1, int(math.log(CLOSED_APART if closed else APART) / math.log(growth)))
    return sorted({*range(0, count, every), count - 1})


def _taken(values: Tensor, which: Tensor) -> Tensor:
    """Of each place the chosen one: ``[P, R, C, S]`` and ``[P, R]`` to ``[P, R, S]``."""
    places = which[..., None, None].expand(*which.shape, 1, values.shape[-1])
    return values.gather(2, places).squeeze(2)


def _at(units: Tensor, places: Tensor) -> Tensor:
    """Of each row its own radii: ``[P, R, S]`` and ``[P, N]`` to ``[P, N, S]``."""
    return units.gather(1, places.unsqueeze(-1).expand(-1, -1, units.shape[-1]))
