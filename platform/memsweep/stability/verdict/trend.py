"""How a radius changes with the horizon or the width: the slope at the end of the range, with an interval.

The question is about a limit, and a slope over a finite range mixes it with the range's start: radii fall at first even
where they level off later. So log y is fitted, for each seed, by

    log y = a + s log x + b (x_1 / x)^q

and the verdict rests on s, the limit slope. The last term takes up the fall at the start. The centre is q = 1: the
transients of exact optimal fits halve when x doubles. Two errors make the interval:

- the spread over seeds: Student's interval, wider on the side of their skewness. It covers what differs between seeds
  (initial weights, test sequences, search) and nothing that they share;
- the choice of the range and of the transient: the interval is stretched to the estimates of every q in EXPONENTS, over
  all x and over the last ones that span LONG_RANGE, four at least. Over fewer doublings a transient is no other than a
  slope, and x between others would make the interval wider.

A censored radius is a half-line. It turns a seed's slope into an interval of slopes, and the interval over seeds covers
both of its ends. Seeds that do not differ are no sample (``as_evidence``).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95
"""Of an interval that is printed."""
DECISION = 0.998
"""Of the interval that decides. A study is looked at again after every extension that its report advises, and the
errors of all looks add up: docs/verdict.md has what they come to at this level."""
LONG_RANGE = 8.0
"""Smallest ratio of the largest to the smallest x of a limit slope: three doublings, to see a transient fade."""
SMALLEST_FIT = 4
"""Smallest number of x of a limit slope."""
EXPONENTS = (0.5, 1.0, math.inf)
"""Of the transient. At infinity it is over after the first doubling of x."""
CENTRE = 1.0
RESOLUTION = 0.005
"""How far an interval reaches beyond the estimates of all fits: exact fits have transients that no exponent matches."""
SKEW, DECISION_SKEW = 6.0, 3.0
"""Half of an interval is stretched by this times the skewness over the number of seeds, on the side of the tail. So the
95 % interval covers slopes with a skewness of 1 to 2 (gamma, exponential) in 93 % of samples or more, of 5 to 40 seeds.
The interval that decides is wide enough for less."""
_SAME = 1e-9  # spread of values, relative to their size, below which they are one value


@dataclass(frozen=True)
class Slope:
    """An estimate with a 95 % interval; nan with too little data, infinite where radii are censored.

    Attributes:
        by_seed: the bounds of each seed's slope, equal unless a radius is censored.
        deciding: the ends of the interval over seeds that decides; None: those of the 95 % interval.
        between: the least and the largest estimate by range and transient, to which both intervals are stretched; None
            where there is one estimate alone.
    """

    estimate: float
    low: float
    high: float
    by_seed: Mapping[int, tuple[float, float]] = field(default_factory=dict, repr=False, compare=False)
    deciding: tuple[float, float] | None = field(default=None, repr=False, compare=False)
    between: tuple[float, float] | None = field(default=None, repr=False, compare=False)

    @property
    def available(self) -> bool:
        """Whether there was enough data for an interval."""
        return not math.isnan(self.low)

    @property
    def unbounded(self) -> bool:
        """Whether radii beyond those that were tried leave the slope of a seed without a lower bound."""
        return any(math.isinf(lower) for lower, _ in self.by_seed.values())

    @property
    def least(self) -> float:
        """The lower end that decides."""
        return min(each[0] for each in (self.deciding or (self.low, self.high), self.between) if each)

    @property
    def most(self) -> float:
        """The upper end that decides."""
        return max(each[1] for each in (self.deciding or (self.low, self.high), self.between) if each)

    def __str__(self) -> str:
        if not self.available:
            return "not available"
        interval = f"[{rounded(self.low)}, {rounded(self.high)}]"
        return f"{interval} (censored)" if math.isnan(self.estimate) else f"{rounded(self.estimate)} {interval}"


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
        limit: of the fit with a transient; NO_SLOPE where too few x are large enough, or span less than LONG_RANGE.
        outside: every y is known to be large alone, beyond the range that was searched: it has no slope.
        fitted: the x of the limit slope; those that would enter where it is not available.
    """

    x: tuple[float, ...]
    local: tuple[float, ...]
    over_range: Slope
    limit: Slope
    outside: bool
    fitted: tuple[float, ...] = ()


NO_TREND = Trend((), (), NO_SLOPE, NO_SLOPE, outside=False)


def trend(
    x: np.ndarray, low: np.ndarray, high: np.ndarray, seeds: Sequence[int] = (), *, since: float = 0.0, shares: int = 1
) -> Trend:
    """The slopes of one condition.

    Args:
        x: ``[X]``, positive, increasing; at least two for a slope, at least four for a limit slope.
        low, high: ``[S, X]``, bounds of y > 0 of each seed, equal unless censored (0 and inf are allowed).
        seeds: ``[S]``, their numbers; 0, 1, ... where they are not given.
        since: the least x of the limit slope.
        shares: among how many slopes the error of the upper end that decides is shared.

    Returns:
        The trend; intervals need at least two seeds.
    """
    if len(x) < 2 or len(low) < 2:
        return NO_TREND
    with np.errstate(divide="ignore"):
        low, high = np.log(low), np.log(high)
    numbers = list(seeds) or list(range(len(low)))
    late = x >= since
    fitted = x[late]
    long = len(fitted) >= SMALLEST_FIT and fitted[-1] >= LONG_RANGE * fitted[0]
    steps = np.diff(np.log(x))
    with np.errstate(invalid="ignore"):
        middle = np.where(low == high, low, np.nan)
        local = np.diff(middle, axis=1).mean(0) / steps
    return Trend(
        x=tuple(map(float, x)),
        local=tuple(map(float, local)),
        over_range=over_seeds(slope_weights(x), low, high, numbers, shares),
        limit=limit_slope(fitted, low[:, late], high[:, late], numbers, shares) if long else NO_SLOPE,
        outside=bool(np.isposinf(high).all()),
        fitted=tuple(map(float, fitted)),
    )


def slope_weights(x: np.ndarray, exponent: float | None = None) -> np.ndarray:
    """The weights ``[X]`` by which log y makes the least-squares slope in log x.

    Args:
        x: ``[X]``, positive.
        exponent: of the transient in the fit; None: there is none.
    """
    return _slope_weights(tuple(map(float, x)), exponent)


@functools.lru_cache(maxsize=1024)
def _slope_weights(x: tuple[float, ...], exponent: float | None) -> np.ndarray:
    if exponent == math.inf:  # a transient in the first values alone takes these values out of the fit
        first = min(max(1, sum(value < 2.0 * x[0] for value in x)), len(x) - SMALLEST_FIT + 1)
        return np.append(np.zeros(first), _slope_weights(x[first:], None))
    values = np.array(x)
    terms = [np.ones(len(x)), np.log(values)] + ([] if exponent is None else [(values[0] / values) ** exponent])
    weights: np.ndarray = np.linalg.pinv(np.column_stack(terms))[1]
    return weights


def limit_slope(x: np.ndarray, low: np.ndarray, high: np.ndarray, seeds: Sequence[int], shares: int = 1) -> Slope:
    """The slope at the end of the range, with the interval that holds the spread over seeds and the range.

    Args:
        x: ``[X]``, at least SMALLEST_FIT.
        low, high: ``[S, X]``, bounds of log y.
        seeds, shares: as in ``trend``.
    """
    slope = over_seeds(slope_weights(x, CENTRE), low, high, seeds, shares)
    weights = _every_fit(tuple(map(float, x)))
    if _known(low, high):
        least = most = weights @ low.mean(0)
    else:
        bounds = [_combined(each, low, high) for each in weights]
        least, most = (np.array([end[side].mean() for end in bounds]) for side in (0, 1))
    between = (float(least.min()) - RESOLUTION, float(most.max()) + RESOLUTION)
    return dataclasses.replace(slope, low=min(slope.low, between[0]), high=max(slope.high, between[1]), between=between)


@functools.lru_cache(maxsize=256)
def _every_fit(x: tuple[float, ...]) -> np.ndarray:
    """The weights ``[fits, X]`` of every exponent, over all x and over the fewest last ones that make a limit slope."""
    values = np.array(x)
    last = max(start for start in range(len(x) - SMALLEST_FIT + 1) if x[-1] >= LONG_RANGE * x[start] or not start)
    fits = [(start, exponent) for start in {0, last} for exponent in EXPONENTS]
    return np.stack([np.append(np.zeros(start), slope_weights(values[start:], q)) for start, q in fits])


def _known(low: np.ndarray, high: np.ndarray) -> bool:
    return bool(np.array_equal(low, high) and np.isfinite(low).all())


def over_seeds(weights: np.ndarray, low: np.ndarray, high: np.ndarray, seeds: Sequence[int], shares: int = 1) -> Slope:
    """The mean over seeds, and its interval, of a linear combination of values that lie between bounds.

    Args:
        weights: ``[X]``, of the combination.
        low, high: ``[S, X]``, bounds of the values of each of at least two seeds; infinite where there is none.
        seeds: ``[S]``, their numbers.
        shares: as in ``trend``.
    """
    lower, upper = _combined(weights, low, high)
    bounds = zip(lower.tolist(), upper.tolist(), strict=True)
    rare = 1.0 - (1.0 - DECISION) / shares
    levels = ((CONFIDENCE, SKEW), (DECISION, DECISION_SKEW), (rare, DECISION_SKEW))
    printed, least, most = _intervals(lower, upper, levels)
    return Slope(*printed, dict(zip(seeds, bounds, strict=True)), (least[1], most[2]))


def _combined(weights: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bounds ``[S]`` of each seed's combination."""
    if _known(low, high):
        lower = upper = low @ weights
        return lower, upper
    used = weights != 0  # a value that does not enter may be infinite
    weights, low, high = weights[used], low[:, used], high[:, used]
    lower = np.where(weights > 0, low, high) @ weights
    upper = np.where(weights > 0, high, low) @ weights
    # two radii censored at opposite ends, or at one end with weights of two signs, bound nothing
    return np.where(np.isfinite(lower), lower, -np.inf), np.where(np.isfinite(upper), upper, np.inf)


def mean_interval(lower: np.ndarray, upper: np.ndarray, skew: float = 0.0) -> tuple[float, float, float]:
    """The mean over seeds with Student's interval, of values that are known to lie between bounds ``[S]``.

    The estimate is nan where a bound is infinite. ``skew`` stretches the interval on the side of a tail, as SKEW does.
    """
    return _intervals(lower, upper, ((CONFIDENCE, skew),))[0]


def _intervals(
    lower: np.ndarray, upper: np.ndarray, levels: Sequence[tuple[float, float]]
) -> list[tuple[float, float, float]]:
    """``mean_interval`` at each confidence, with its factor of the skewness."""
    (low, below, left), (high, above, right) = _moments(lower.tolist(), -1), _moments(upper.tolist(), 1)
    estimate = (low + high) / 2.0 if math.isfinite(low + high) else math.nan
    found = []
    for confidence, skew in levels:
        t = _student(len(lower) - 1, confidence)
        found.append((estimate, low - t * below * (1.0 + skew * left), high + t * above * (1.0 + skew * right)))
    return found


@functools.lru_cache(maxsize=1024)
def _student(freedom: int, confidence: float) -> float:
    return float(stdtrit(freedom, 0.5 + confidence / 2.0))


def _moments(values: list[float], side: int) -> tuple[float, float, float]:
    """The mean, its standard error, and the skewness over the number of values where the tail is on the side.

    The error is 0 where a value is infinite, because the mean is, too, and where the values do not differ.

    Args:
        values: at least two.
        side: -1: below, 1: above.
    """
    count = len(values)
    mean = sum(values) / count
    if not math.isfinite(mean):
        return mean, 0.0, 0.0
    squares = math.fsum((value - mean) ** 2 for value in values)
    deviation = math.sqrt(squares / (count - 1))
    if deviation <= _SAME * max(1.0, *map(abs, values)):
        return mean, 0.0, 0.0
    skewness = math.fsum((value - mean) ** 3 for value in values) / count / (squares / count) ** 1.5
    return mean, deviation / math.sqrt(count), max(side * skewness, 0.0) / count


def as_evidence(slope: Slope) -> Slope:
    """The slope of a verdict: its interval is infinite where the seeds do not differ, because they are no sample."""
    if not alike(slope):
        return slope
    return dataclasses.replace(slope, low=-math.inf, high=math.inf, deciding=(-math.inf, math.inf))


def alike(slope: Slope) -> bool:
    """Whether the seeds do not differ. Infinite bounds, of censored radii, say nothing of that."""
    for side in (0, 1):
        ends = [bounds[side] for bounds in slope.by_seed.values() if math.isfinite(bounds[side])]
        if len(ends) > 1 and max(ends) - min(ends) <= _SAME * max(1.0, *map(abs, ends)):
            return True
    return False


def seeds_needed(slope: Slope, limit: float, seeds: int, most: int = 50) -> int | None:
    """How many seeds would part this slope from a limit, if their spread stays as it is; None beyond ``most``.

    None, too, where the limit lies between the estimates by range and transient, which no number of seeds moves.

    Args:
        slope: with a finite interval over ``seeds`` seeds.
        limit: the value to be parted from.
    """
    level = CONFIDENCE if slope.deciding is None else DECISION
    low, high = slope.deciding or (slope.low, slope.high)
    reach = (high if slope.estimate < limit else low) - slope.estimate
    between = slope.between or (slope.estimate, slope.estimate)
    if not (math.isfinite(reach) and seeds >= 2) or between[0] <= limit <= between[1]:
        return None
    deviation = abs(reach) * math.sqrt(seeds) / _student(seeds - 1, level)
    for count in range(seeds + 1, most + 1):
        if _student(count - 1, level) * deviation / math.sqrt(count) < abs(slope.estimate - limit):
            return count
    return None
