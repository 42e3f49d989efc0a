"""How a radius changes with the horizon or the width: the slope at the end of the range, with an interval over seeds.

The question is about a limit, and a slope over a finite range mixes it with the range's start: radii fall at first even
where they level off later. So log y is fitted, for each seed, by

    log y = a + s log x + b x_1 / x

and the verdict rests on s, the limit slope. The last term halves when x doubles, as the transients of exact optimal
fits do (docs/verdict.md compares estimates). The fit is a linear combination of the seed's log radii. Its interval is
Student's t over seeds, so it covers what differs between seeds (initial weights, test sequences, search) and nothing
that they share.

A censored radius is a half-line. It turns a seed's slope into an interval of slopes, and the interval over seeds covers
both of its ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95
LONG_RANGE = 8.0
"""Smallest ratio of the largest to the smallest x of a limit slope: three doublings, to see a transient fade."""


@dataclass(frozen=True)
class Slope:
    """An estimate with a 95 % interval over seeds; nan with too little data, infinite where radii are censored.

    Attributes:
        by_seed: the bounds of each seed's slope, equal unless a radius is censored.
    """

    estimate: float
    low: float
    high: float
    by_seed: Mapping[int, tuple[float, float]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def available(self) -> bool:
        """Whether there was enough data for an interval."""
        return not math.isnan(self.low)

    def __str__(self) -> str:
        if not self.available:
            return "not available"
        return f"{rounded(self.estimate)} [{rounded(self.low)}, {rounded(self.high)}]"


def rounded(value: float) -> str:
    """A slope with two digits and its sign; zero has none."""
    text = f"{value:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text


NO_SLOPE = Slope(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Trend:
    """Slopes of log y against log x.

    Attributes:
        x: the values of x, increasing.
        local: between neighbours, mean over seeds; nan where a radius is censored.
        over_range: least squares over all x.
        limit: of the fit with a transient; NO_SLOPE where x spans less than LONG_RANGE.
        outside: every y is known to be large alone, beyond the range that was searched: it has no slope.
    """

    x: tuple[float, ...]
    local: tuple[float, ...]
    over_range: Slope
    limit: Slope
    outside: bool


NO_TREND = Trend((), (), NO_SLOPE, NO_SLOPE, outside=False)


def trend(x: np.ndarray, low: np.ndarray, high: np.ndarray, seeds: Sequence[int] = ()) -> Trend:
    """The slopes of one condition.

    Args:
        x: ``[X]``, positive, increasing; at least two for a slope, at least four for a limit slope.
        low, high: ``[S, X]``, bounds of y > 0 of each seed, equal unless censored (0 and inf are allowed).
        seeds: ``[S]``, their numbers; 0, 1, ... where they are not given.

    Returns:
        The trend; intervals need at least two seeds.
    """
    if len(x) < 2 or len(low) < 2:
        return NO_TREND
    with np.errstate(divide="ignore"):
        low, high = np.log(low), np.log(high)
    numbers = list(seeds) or list(range(len(low)))
    long = len(x) >= 4 and x[-1] >= LONG_RANGE * x[0]
    steps = np.diff(np.log(x))
    with np.errstate(invalid="ignore"):
        middle = np.where(low == high, low, np.nan)
        local = np.diff(middle, axis=1).mean(0) / steps
    return Trend(
        x=tuple(map(float, x)),
        local=tuple(map(float, local)),
        over_range=over_seeds(slope_weights(x, transient=False), low, high, numbers),
        limit=over_seeds(slope_weights(x, transient=True), low, high, numbers) if long else NO_SLOPE,
        outside=bool(np.isposinf(high).all()),
    )


def slope_weights(x: np.ndarray, transient: bool) -> np.ndarray:
    """The weights ``[X]`` by which log y makes the least-squares slope in log x.

    Args:
        x: ``[X]``, positive.
        transient: with the term 1 / x in the fit.
    """
    terms = [np.ones(len(x)), np.log(x)] + ([x[0] / x] if transient else [])
    weights: np.ndarray = np.linalg.pinv(np.column_stack(terms))[1]
    return weights


def over_seeds(weights: np.ndarray, low: np.ndarray, high: np.ndarray, seeds: Sequence[int]) -> Slope:
    """The mean over seeds, and its interval, of a linear combination of values that lie between bounds.

    Args:
        weights: ``[X]``, of the combination.
        low, high: ``[S, X]``, bounds of the values of each of at least two seeds; infinite where there is none.
        seeds: ``[S]``, their numbers.
    """
    lower = np.where(weights > 0, low, high) @ weights
    upper = np.where(weights > 0, high, low) @ weights
    # two radii censored at opposite ends, or at one end with weights of two signs, bound nothing
    lower, upper = np.where(np.isfinite(lower), lower, -np.inf), np.where(np.isfinite(upper), upper, np.inf)
    bounds = zip(map(float, lower), map(float, upper), strict=True)
    return Slope(*mean_interval(lower, upper), dict(zip(seeds, bounds, strict=True)))


def mean_interval(lower: np.ndarray, upper: np.ndarray) -> tuple[float, float, float]:
    """The mean over seeds with the ends of its 95 % interval, of values that are known to lie between bounds ``[S]``.

    The estimate is nan where a bound is infinite.
    """
    ends = float(lower.mean()), float(upper.mean())
    estimate = (ends[0] + ends[1]) / 2.0 if math.isfinite(ends[0] + ends[1]) else math.nan
    return estimate, ends[0] - _half_width(lower), ends[1] + _half_width(upper)


def _half_width(values: np.ndarray) -> float:
    """Half of Student's interval for the mean; 0 where a value is infinite, because the mean is, too."""
    count = len(values)
    if not np.isfinite(values).all():
        return 0.0
    return float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2.0) * values.std(ddof=1) / math.sqrt(count))


def seeds_needed(slope: Slope, limit: float, seeds: int, most: int = 50) -> int | None:
    """How many seeds would part this slope from a limit, if their spread stays as it is; None beyond ``most``.

    Args:
        slope: with a finite interval over ``seeds`` seeds.
        limit: the value to be parted from.
    """
    half = (slope.high - slope.low) / 2.0
    if not (math.isfinite(half) and seeds >= 2):
        return None
    deviation = half * math.sqrt(seeds) / stdtrit(seeds - 1, 0.5 + CONFIDENCE / 2.0)
    for count in range(seeds + 1, most + 1):
        if stdtrit(count - 1, 0.5 + CONFIDENCE / 2.0) * deviation / math.sqrt(count) < abs(slope.estimate - limit):
            return count
    return None
