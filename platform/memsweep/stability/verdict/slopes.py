"""Slopes of log radius against log width or log horizon, with intervals, when some radii are censored.

Theil-Sen: the median of the slopes of all pairs of points. Interval: a cluster bootstrap over seeds. A censored
radius is a half-line, so a pair that contains one has an interval of slopes; the medians of the lower and of the
upper ends bound the slope that the uncensored data would have given, and the interval reported covers both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

BOOTSTRAPS = 2000
CONFIDENCE = 0.95
SMALLEST_CLUSTERS = 3
"""Smallest number of seeds with a valid point for an interval."""


@dataclass(frozen=True)
class Slope:
    """An estimate with a 95 % interval; nan with too little data, infinite where radii are censored."""

    estimate: float
    low: float
    high: float

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
class Points:
    """Points of a slope: x > 0; log y between ``low`` and ``high`` (equal unless censored); the seed is the cluster."""

    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seed: np.ndarray

    @staticmethod
    def of(x: np.ndarray, low: np.ndarray, high: np.ndarray, seed: np.ndarray) -> Points:
        """From bounds of y, 0 and inf included."""
        with np.errstate(divide="ignore"):
            return Points(np.asarray(x, float), np.log(low), np.log(high), np.asarray(seed))


def theil_sen(points: Points, seed: int = 0) -> Slope:
    """Slope of log y against log x.

    Args:
        points: with at least two different x and ``SMALLEST_CLUSTERS`` seeds; otherwise the slope is nan, because an
            interval from fewer seeds would be too narrow.
        seed: of the bootstrap; the same points and seed give the same interval.
    """
    if len(np.unique(points.x)) < 2 or len(np.unique(points.seed)) < SMALLEST_CLUSTERS:
        return NO_SLOPE
    first, second, lower, upper = _pairs(points)
    with np.errstate(invalid="ignore"):  # the median of -inf and inf is nan: censored
        estimate = _middle(float(np.median(lower)), float(np.median(upper)))
    clusters, member = np.unique(points.seed, return_inverse=True)
    draws = np.random.default_rng(seed).integers(len(clusters), size=(BOOTSTRAPS, len(clusters)))
    counts = np.stack([np.bincount(draw, minlength=len(clusters)) for draw in draws])
    weights = counts[:, member[first]] * counts[:, member[second]]
    tail = (1.0 - CONFIDENCE) / 2.0
    low = np.quantile(_weighted_medians(lower, weights), tail, method="lower")
    high = np.quantile(_weighted_medians(upper, weights), 1.0 - tail, method="higher")
    return Slope(estimate, float(low), float(high))


def _pairs(points: Points) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Indices and slope intervals of all pairs with different x."""
    order = np.argsort(points.x, kind="stable")
    first, second = np.triu_indices(len(order), 1)
    first, second = order[first], order[second]
    keep = points.x[first] < points.x[second]
    first, second = first[keep], second[keep]
    run = np.log(points.x[second]) - np.log(points.x[first])
    with np.errstate(invalid="ignore"):
        lower = (points.low[second] - points.high[first]) / run
        upper = (points.high[second] - points.low[first]) / run
    # two radii censored at the same end do not bound their slope
    return first, second, np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)


def _middle(low: float, high: float) -> float:
    if low == high:
        return float(low)
    return float((low + high) / 2.0) if math.isfinite(low + high) else math.nan


def _weighted_medians(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Median of ``values`` under each row of integer weights; nan rows (a resample without pairs) are left out."""
    order = np.argsort(values, kind="stable")
    totals = np.cumsum(weights[:, order], axis=1)
    weight = totals[:, -1]
    used = weight > 0
    totals, weight, ordered = totals[used], weight[used], values[order]
    below = ordered[np.argmax(totals >= np.ceil(weight / 2)[:, None], axis=1)]
    above = ordered[np.argmax(totals >= np.floor(weight / 2 + 1)[:, None], axis=1)]
    with np.errstate(invalid="ignore"):  # -inf and inf have no middle: take the lower
        middle = np.where(below == above, below, (below + above) / 2.0)
    return np.where(np.isnan(middle), below, middle)
