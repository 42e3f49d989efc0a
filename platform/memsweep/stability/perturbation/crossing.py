"""Where losses that grow with the radius cross their limits: a bracketing root finder on the log radius.

Each crossing is found from its own values alone, in a fixed number of steps, so that a replica has the same bits alone
and in a pack. Steps are secants of the log loss over the log radius that stay in the bracket, by the Illinois rule: an
end that stays twice counts half. A small nudge to the other side closes the bracket around the crossing. Where a
bracket is still open after these steps, as where the loss jumps to infinity, more of them close it.

Letters: P rows (replicas and dummies), L limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

COLD, WARM = 12, 6
"""Steps from a start that is a factor of 2 away, and from one that is a few percent away."""
MORE = 12
"""Steps more, at most, in brackets that are open."""
_NUDGE = 0.0008
_CLOSED = 0.05
"""A bracket of this width in log radius, between finite losses: interpolation in it is right to 0.0003."""
_FAR = 30.0  # stands for the logarithm of a loss of zero or infinity over its limit
_GROWTH = 2.0  # a squared distance grows with the square of a small radius
_LONGEST = math.log(8.0)


@dataclass(frozen=True)
class Crossings:
    """Radii of crossings, ``[P, L]`` each.

    Attributes:
        radii: of the crossings, the last within the limit before a jump; where there is none, the last radius that was
            tried.
        found: whether there is one.
    """

    radii: Tensor
    found: Tensor


@dataclass
class _Side:
    """An end of brackets: log radius, log loss over limit, and that logarithm as the Illinois rule counts it."""

    place: Tensor
    value: Tensor
    counted: Tensor
    last: Tensor

    @staticmethod
    def none(like: Tensor, place: float) -> _Side:
        unknown = torch.full_like(like, place)
        return _Side(unknown, torch.zeros_like(like), torch.zeros_like(like), torch.zeros_like(like, dtype=torch.bool))

    def move(self, here: Tensor, place: Tensor, value: Tensor) -> None:
        """Where ``here``, to a new place; elsewhere the end stays, and counts half where it stayed before."""
        stays = ~here & ~self.last & self.known
        self.counted = torch.where(here, value, torch.where(stays, self.counted / 2, self.counted))
        self.place, self.value = torch.where(here, place, self.place), torch.where(here, value, self.value)
        self.last = here

    @property
    def known(self) -> Tensor:
        return torch.isfinite(self.place)


def crossings(
    loss: Callable[[Tensor], Tensor], limits: Tensor, start: Tensor, largest: float, steps: int = COLD
) -> Crossings:
    """The radii at which losses cross their limits.

    Args:
        loss: radii ``[P, L]`` to losses ``[P, L]``, inf where one is not finite; one below 0 is within every limit.
        limits: ``[P, L]``, above 0.
        start: radii near the crossings.
        largest: radius that is tried.
        steps: evaluations of the loss; up to MORE where a bracket is open after them.
    """
    place, most = start.log(), math.log(largest)
    low, high = _Side.none(place, -math.inf), _Side.none(place, math.inf)
    stride = torch.full_like(place, _NUDGE)
    for step in range(steps + MORE):
        here = torch.ones_like(place, dtype=torch.bool) if step < steps else _open(low, high)
        if not here.any():
            break
        value = (loss(place.exp()) / limits).clamp(min=0.0).log().nan_to_num(_FAR, _FAR, -_FAR).clamp(-_FAR, _FAR)
        beyond = value > 0.0
        high.move(here & beyond, place, value)
        low.move(here & ~beyond, place, value)
        # outward, as a power law asks for, and at least twice as far as before
        stride = torch.maximum(value.abs() / _GROWTH + _NUDGE, 2.0 * stride).clamp(max=_LONGEST)
        outward = place - value.sign() * stride
        place = torch.where(low.known & high.known, _inward(value, low, high), outward).clamp(max=most)
    inside = torch.where(low.known & high.known, _between(low, high, low.value, high.value), place)
    inside = torch.where(high.value < _FAR, inside, low.place)
    found = _closed(low, high)
    edge = torch.where(low.known, low.place, high.place)
    return Crossings(torch.where(found, inside, edge).exp(), found)


def _closed(low: _Side, high: _Side) -> Tensor:
    """Where the crossing can be read from a bracket."""
    width, finite = high.place - low.place, (low.value > -_FAR) & (high.value < _FAR)
    return (width <= 2 * _NUDGE) | ((width <= _CLOSED) & finite)


def _open(low: _Side, high: _Side) -> Tensor:
    return low.known & high.known & ~_closed(low, high)


def _between(low: _Side, high: _Side, low_value: Tensor, high_value: Tensor) -> Tensor:
    share = -low_value / torch.where(high_value > low_value, high_value - low_value, 1.0)
    return low.place + share * (high.place - low.place)


def _inward(value: Tensor, low: _Side, high: _Side) -> Tensor:
    """The places to try in brackets: secants, and halves where the loss is zero or infinite at an end."""
    width = high.place - low.place
    nudge = torch.where(value > 0.0, -_NUDGE, _NUDGE)
    room = torch.minimum(width / 4, torch.full_like(width, _NUDGE / 2))
    secant = _between(low, high, low.counted, high.counted) + nudge
    secant = torch.minimum(torch.maximum(secant, low.place + room), high.place - room)
    far = (low.value <= -_FAR) | (high.value >= _FAR)
    return torch.where(far, (low.place + high.place) / 2, secant)
