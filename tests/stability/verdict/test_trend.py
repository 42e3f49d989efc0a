"""Limit slopes and their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memsweep.stability.verdict.trend import NO_TREND, Slope, seeds_needed, slope_weights, trend

X = np.array([50.0, 100.0, 200.0, 400.0])


def test_power_laws_with_a_transient_that_halves_have_the_limit_slope_of_the_power():
    y = 3.0 * X**-0.7 * np.exp(2.0 * X[0] / X)
    found = trend(X, np.tile(y, (5, 1)), np.tile(y, (5, 1)))
    assert found.limit.estimate == pytest.approx(-0.7)
    assert found.local == pytest.approx(-0.7 - np.array([1.0, 0.5, 0.25]) / math.log(2.0))
    assert found.over_range.estimate < -1.2


def test_the_slope_over_the_range_is_the_least_squares_one():
    y = np.exp(np.random.default_rng(0).standard_normal((6, 4)))
    slopes = np.polyfit(np.log(X), np.log(y).T, 1)[0]
    found = trend(X, y, y).over_range
    half = 2.5705818 * slopes.std(ddof=1) / math.sqrt(6)  # Student's quantile of 5 degrees of freedom
    assert (found.estimate, found.high - found.estimate) == pytest.approx((slopes.mean(), half))


def test_a_short_range_few_values_or_one_seed_have_no_limit_slope():
    y = np.ones((5, 4))
    assert not trend(np.array([50.0, 80.0, 120.0, 200.0]), y, y).limit.available
    assert not trend(X[:3], y[:, :3], y[:, :3]).limit.available
    assert trend(X, y[:1], y[:1]) is NO_TREND
    assert trend(X[:1], y[:, :1], y[:, :1]) is NO_TREND


def test_a_censored_radius_widens_the_interval_to_the_side_that_it_hides():
    y = np.tile(np.minimum(X / 50.0, 3.0), (5, 1))
    high = np.where(y == 3.0, math.inf, y)
    slope = trend(X, y, high).over_range
    assert slope.low <= 1.0
    assert slope.high == math.inf
    assert trend(X, y, y).over_range.estimate < 0.9  # what dropping the mark would have claimed
    hidden = trend(X, np.full((5, 4), 3.0), np.full((5, 4), math.inf))
    assert hidden.outside
    assert (hidden.limit.low, hidden.limit.high) == (-math.inf, math.inf)


def test_the_number_of_seeds_that_would_decide():
    slope = Slope(-0.1, -0.25, 0.05)
    count = seeds_needed(slope, -0.2, 5)
    deviation = 0.15 * math.sqrt(5) / 2.7764451
    assert count == next(n for n in range(6, 99) if _student(n) * deviation / math.sqrt(n) < 0.1)
    assert seeds_needed(Slope(-0.2, -0.3, -0.1), -0.2, 5) is None
    assert seeds_needed(Slope(0.0, -math.inf, 1.0), -0.2, 5) is None


def _student(count: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, count - 1))


def test_noise_of_one_radius_is_amplified_as_documented():
    assert np.linalg.norm(slope_weights(X, transient=True)) == pytest.approx(2.28, abs=0.01)
    assert np.linalg.norm(slope_weights(X, transient=False)) == pytest.approx(0.65, abs=0.01)
