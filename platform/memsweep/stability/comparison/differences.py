"""The difference between two means over seeds, with its 95 % interval: of slopes, and of log losses.

Replicas of both sides with the same seed are a pair, as in ``memsweep.stability.comparison.paired``. Where both sides
have enough seeds in common, the interval is Student's over the pairs' differences. Else the sides are independent
samples, and it is Welch's (Biometrika 34, 1947). Pairs of replicas that have nothing in common are independent draws,
for which Student's interval over pairs holds as well. Censored values are bounds, and the interval covers both. What
rounding alone makes of zero is zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from memsweep.stability.verdict.trend import CONFIDENCE, mean_interval

SMALLEST_PAIRS = 5
"""Seeds that both sides have in common, from which they are compared pair by pair: those of a verdict."""
Bounds = Mapping[int, tuple[float, float]]
"""Seed -> bounds of its value, equal where it is known."""
ROUNDING = 1e-9
"""A difference that is smaller than this, relative to the values compared, is none."""


def alike(left: float, right: float) -> bool:
    """Whether two values are equal, but for rounding; infinite ones are where they are the same."""
    return math.isclose(left, right, rel_tol=ROUNDING)


@dataclass(frozen=True)
class Difference:
    """Right minus left.

    Attributes:
        estimate: mean difference; nan without two seeds on each side, or where a bound is infinite.
        low, high: its 95 % interval; nan without two seeds on each side, open where bounds are infinite.
        paired: whether it is the mean over pairs of the same seed.
        seeds: how many of each side it was computed from.
    """

    estimate: float
    low: float
    high: float
    paired: bool
    seeds: tuple[int, int]

    @property
    def available(self) -> bool:
        """Whether there was enough data for an interval."""
        return not math.isnan(self.low)

    @property
    def apart(self) -> bool:
        """Whether the interval leaves zero out; an uncertainty shared by all seeds is in no such interval."""
        return self.available and (self.low > 0.0 or self.high < 0.0)

    @property
    def is_none(self) -> bool:
        """Whether both sides are equal, seed by seed, but for rounding."""
        return self.low == self.high == 0.0


def difference(left: Bounds, right: Bounds) -> Difference:
    """The difference of the means over seeds, right minus left.

    Args:
        left, right: of each side.

    Returns:
        Over the common seeds, where there are at least ``SMALLEST_PAIRS``; else over all seeds, as independent samples.
    """
    common = sorted(left.keys() & right.keys())
    paired = len(common) >= SMALLEST_PAIRS
    a, b = (np.array([side[seed] for seed in (common if paired else sorted(side))], float) for side in (left, right))
    seeds = (len(a), len(b))
    if min(seeds) < 2:
        return Difference(math.nan, math.nan, math.nan, False, seeds)
    if paired:
        with np.errstate(invalid="ignore"):
            lower, upper = b[:, 0] - a[:, 1], b[:, 1] - a[:, 0]
        # a seed that diverged says nothing of the size of a difference
        lower, upper = np.where(np.isfinite(lower), lower, -np.inf), np.where(np.isfinite(upper), upper, np.inf)
        return _rounded(Difference(*mean_interval(lower, upper), True, seeds), a, b)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return Difference(math.nan, -math.inf, math.inf, False, seeds)
    low, high = b[:, 0].mean() - a[:, 1].mean(), b[:, 1].mean() - a[:, 0].mean()
    half = max(_welch(a[:, end], b[:, other]) for end in (0, 1) for other in (0, 1))
    return _rounded(Difference(float(low + high) / 2.0, float(low - half), float(high + half), False, seeds), a, b)


def _rounded(found: Difference, a: np.ndarray, b: np.ndarray) -> Difference:
    """The difference, 0 where rounding made it or an end of its interval: of slopes and logs, which are of size 1."""
    least = ROUNDING * max(1.0, *(float(np.abs(side[np.isfinite(side)]).max(initial=0.0)) for side in (a, b)))
    estimate, low, high = (0.0 if abs(end) <= least else end for end in (found.estimate, found.low, found.high))
    return Difference(estimate, low, high, found.paired, found.seeds)


def _welch(a: np.ndarray, b: np.ndarray) -> float:
    """Half of Welch's interval for the difference of two means."""
    parts = np.array([a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)])
    total = float(parts.sum())
    if total == 0.0:
        return 0.0
    freedom = total**2 / float((parts**2 / np.array([len(a) - 1, len(b) - 1])).sum())
    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2.0)) * math.sqrt(total)
