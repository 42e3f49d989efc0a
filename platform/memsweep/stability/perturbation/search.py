"""The search for the smallest push of the weights that changes a model by so much, and for the worst at given radii.

A radius is the smallest at which the loss of a push crosses a limit. Ascents from all starts run at a guess of it. The
push that they find crosses the limit at a smaller radius (``memsweep.stability.perturbation.crossing``), from where all
starts are climbed once more, and the worst push is climbed on. So the ascents are spent where a radius is read.

The losses at the other radii of a study make a curve. Each begins with the pushes of the limits and of its neighbours,
and, where the curve itself is asked for, with those that all starts reach at radii near it.
Where the loss is a mean over sequences, the curve takes the worst of these pushes, and no ascents.

Letters: P rows (replicas and dummies), R radii, C starts, L limits, N radii that are climbed, S size of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.stability.perturbation.ascent import FAR_STEP, FIRST_STEP, LAST_STEP, NEAR_STEP, Ascent
from memsweep.stability.perturbation.crossing import COLD, WARM, Crossings, crossings

REACH = 64.0
"""A crossing is looked for up to so many times the largest radius of a study."""
_DOUBLINGS = int(math.log2(REACH))
PASSES = 2
"""Ascents along the curve of a closed form: the second one takes what its neighbours have found in the first."""


@dataclass(frozen=True)
class Pushes:
    """The worst pushes that were found.

    Attributes:
        losses: at the radii of the curve, ``[P, R]``.
        shifts: that have them, ``[P, R, S]``.
        radii: at which the limits are crossed, ``[P, L]``.
        found: whether a limit is crossed within reach, ``[P, L]``.
        units: the pushes that cross the limits, of norm 1, ``[P, L, S]``.
    """

    losses: Tensor
    shifts: Tensor
    radii: Tensor
    found: Tensor
    units: Tensor


@dataclass(frozen=True)
class Search:
    """A search in balls of several radii.

    Attributes:
        radii: ``[R]``, increasing.
        ascents: on few data, on more, and on all, which count; or on all alone, where the loss is a closed form.
        steps: of an ascent from a start; one that goes on takes half of them.
        anchors: places of the radii at which all starts are climbed for the curve.
    """

    radii: Tensor
    ascents: Sequence[Ascent]
    steps: int
    anchors: Sequence[int] = ()

    @property
    def closed(self) -> bool:
        """Whether the loss is a closed form."""
        return len(self.ascents) == 1

    def worst(self, starts: Tensor, limits: Tensor) -> Pushes:
        """The smallest pushes beyond the limits ``[P, L]``, and the worst ones at the radii of the curve.

        Args:
            starts: ``[P, C, S]``, of norm 1.
            limits: of the losses.
        """
        few, judge = self.ascents[0], self.ascents[-1]
        units, guess = self._scanned(starts, limits)
        pushes, at = self._climbed_from(starts, guess, limits, None, (self.steps + 1) // 2)
        pushes, at = self._climbed_from(starts, at.radii, limits, pushes, self.steps)
        for ascent in self.ascents[1:-1] or [few]:
            start = worse(ascent, [pushes, -pushes], at.radii)[1]
            pushes = self._onward(ascent, start, at.radii, NEAR_STEP)
            at = self._crossings(ascent, pushes, limits, at.radii, WARM)
        units = self._along_the_curve([units, *_to_all(pushes, len(self.radii)), *self._anchored(starts)])
        radii = self.radii.expand(len(units), -1)
        losses, shifts = judge.climb(units * radii.unsqueeze(-1), radii, 0)
        # the first radius of the curve beyond a limit may have a push that crosses it at a smaller radius
        beyond = (losses.unsqueeze(1) > limits.unsqueeze(-1)).to(torch.uint8).argmax(2)
        pushes = worse(judge, [pushes, -pushes, taken(units, beyond)], at.radii)[1]
        at = self._crossings(judge, pushes, limits, at.radii, COLD if self.closed else WARM)
        return Pushes(losses, shifts, at.radii, at.found, pushes)

    def at_radii(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        """The largest loss found at each radius, ``[P, R]``, and its shift, ``[P, R, S]``, by ascents from all starts.

        Args:
            starts: ``[P, C, S]``, of norm 1.
        """
        units = self._from_all(self.ascents[0], starts, self.radii.expand(len(starts), -1), self.steps)
        for ascent in self.ascents[1:-1] or self.ascents:
            smaller, larger = _neighbours(units)
            units = self._onward(ascent, *self._start([units, -units, smaller, larger], ascent), NEAR_STEP)
        radii = self.radii.expand(len(units), -1)
        units = worse(self.ascents[-1], [units, -units], radii)[1]
        return self.ascents[-1].climb(units * radii.unsqueeze(-1), radii, 0)

    def _scanned(self, starts: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """The worst starts at the radii of the curve, ``[P, R, S]``, and guesses of the crossings, ``[P, L]``."""
        beyond = self.radii[-1] * 2.0 ** torch.arange(1, _DOUBLINGS + 1, device=starts.device)
        radii = torch.cat([self.radii, beyond])
        count = starts.shape[1]
        copies = radii.repeat_interleave(count).expand(len(starts), -1)
        values, _ = self.ascents[0].climb(starts.repeat(1, len(radii), 1) * copies.unsqueeze(-1), copies, 0)
        values, which = values.unflatten(1, (-1, count)).max(2)
        return taken(starts, which[:, : len(self.radii)]), guessed(radii, values.cummax(1).values, limits)

    def _climbed_from(
        self, starts: Tensor, radii: Tensor, limits: Tensor, pushes: Tensor | None, steps: int
    ) -> tuple[Tensor, Crossings]:
        """The worst of the pushes from all starts at radii ``[P, L]`` and of those before, and where they cross."""
        few = self.ascents[0]
        found = [self._from_all(few, starts, radii, steps), *([] if pushes is None else [pushes])]
        units = worse(few, [each for part in found for each in _to_all(part, part.shape[1])], radii)[1]
        return units, self._crossings(few, units, limits, radii, COLD)

    def _from_all(self, ascent: Ascent, starts: Tensor, radii: Tensor, steps: int) -> Tensor:
        """The worst pushes, ``[P, N, S]``, that ascents from all starts reach at radii ``[P, N]``."""
        count = starts.shape[1]
        copies = radii.repeat_interleave(count, 1)
        tried = starts.repeat(1, radii.shape[1], 1) * copies.unsqueeze(-1)
        values, reached = ascent.climb(tried, copies, steps, last_step=FAR_STEP if self.closed else LAST_STEP)
        best = values.unflatten(1, (-1, count)).argmax(2) + count * torch.arange(radii.shape[1], device=values.device)
        return taken(reached / copies.unsqueeze(-1), best)

    def _anchored(self, starts: Tensor) -> Iterator[Tensor]:
        """What ascents from all starts reach at the anchors below and above each radius, ``[P, R, S]`` each."""
        if self.anchors:
            anchors = torch.tensor(self.anchors, device=starts.device)
            units = self._from_all(self.ascents[0], starts, self.radii[anchors].expand(len(starts), -1), self.steps)
            below = torch.searchsorted(anchors, torch.arange(len(self.radii), device=starts.device), right=True) - 1
            yield units[:, below]
            yield units[:, (below + 1).clamp(max=len(anchors) - 1)]

    def _along_the_curve(self, candidates: Sequence[Tensor]) -> Tensor:
        """The worst candidates at the radii of the curve, ``[P, R, S]``, climbed on where the loss is a closed form."""
        ascent = self.ascents[0] if self.closed else self.ascents[-2]
        units, radii = self._start(
            candidates if self.closed else [*candidates, *(-each for each in candidates)], ascent
        )
        for step in (FIRST_STEP, NEAR_STEP)[: PASSES if self.closed else 0]:
            units, radii = self._start([units, *_neighbours(units)], ascent)
            units = self._onward(ascent, units, radii, step)
        return units

    def _start(self, candidates: Sequence[Tensor], ascent: Ascent) -> tuple[Tensor, Tensor]:
        radii = self.radii.expand(len(candidates[0]), -1)
        return worse(ascent, candidates, radii)[1], radii

    def _onward(self, ascent: Ascent, units: Tensor, radii: Tensor, first_step: float) -> Tensor:
        """The pushes that ascents from ``units`` reach, of norm 1."""
        sizes = radii.unsqueeze(-1)
        return ascent.climb(units * sizes, radii, (self.steps + 1) // 2, first_step)[1] / sizes

    def _crossings(self, ascent: Ascent, units: Tensor, limits: Tensor, start: Tensor, steps: int) -> Crossings:
        def loss(radii: Tensor) -> Tensor:
            return ascent.climb(units * radii.unsqueeze(-1), radii, 0)[0]

        return crossings(loss, limits, start, float(self.radii[-1]) * REACH, steps)


def worse(ascent: Ascent, candidates: Sequence[Tensor], radii: Tensor) -> tuple[Tensor, Tensor]:
    """The losses ``[P, N]`` and units ``[P, N, S]`` of the worst of some candidates at radii, the first of equals."""
    values = [ascent.climb(units * radii.unsqueeze(-1), radii, 0)[0] for units in candidates]
    worst, which = torch.stack(values, 2).max(2)
    stacked = torch.stack(list(candidates), 2)
    places = which[..., None, None].expand(*which.shape, 1, stacked.shape[-1])
    return worst, stacked.gather(2, places).squeeze(2)


def taken(units: Tensor, places: Tensor) -> Tensor:
    """Of each row its own: ``[P, C, S]`` and ``[P, N]`` to ``[P, N, S]``."""
    return units.gather(1, places.unsqueeze(-1).expand(-1, -1, units.shape[-1]))


def guessed(radii: Tensor, losses: Tensor, limits: Tensor) -> Tensor:
    """Where curves ``[P, R]`` cross limits ``[P, L]``, interpolated; by the square of the radius below the curve."""
    within = (losses.unsqueeze(1) <= limits.unsqueeze(-1)).sum(2)  # [P, L] radii within the limit
    outer, inner = within.clamp(max=len(radii) - 1), (within - 1).clamp(min=0)
    high, low = losses.gather(1, outer), losses.gather(1, inner)
    share = ((limits / low).log() / (high / low).log()).nan_to_num(0.5, 0.5, 0.5).clamp(0.0, 1.0)
    between = radii[inner] * (radii[outer] / radii[inner]) ** share
    below = radii[0] * (limits / high).sqrt().nan_to_num(0.1, 0.1, 0.1).clamp(1e-3, 1.0)
    return torch.where(within == 0, below, between)


def _neighbours(units: Tensor) -> tuple[Tensor, Tensor]:
    """Of each radius, the push of the one before and of the one behind."""
    return torch.cat([units[:, :1], units[:, :-1]], 1), torch.cat([units[:, 1:], units[:, -1:]], 1)


def _to_all(pushes: Tensor, count: int) -> list[Tensor]:
    """Each of the pushes ``[P, L, S]`` at ``count`` radii: ``[P, count, S]`` each."""
    return [push.unsqueeze(1).expand(-1, count, -1) for push in pushes.unbind(1)]
