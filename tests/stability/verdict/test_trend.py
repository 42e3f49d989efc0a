"""Limit slopes and their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memsweep.stability.verdict.trend import (
    NO_TREND,
    SKEW,
    Slope,
    as_evidence,
    over_seeds,
    seeds_needed,
    slope_weights,
    trend,
)

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
    skewness = ((slopes - slopes.mean()) ** 3).mean() / slopes.std() ** 3
    low, high = (half * (1 + SKEW / 6 * max(0.0, side * skewness)) for side in (-1, 1))
    assert (found.estimate, found.low, found.high) == pytest.approx(
        (slopes.mean(), slopes.mean() - low, slopes.mean() + high)
    )


@pytest.mark.parametrize("exponent", [0.5, 1.0, math.inf])
def test_the_interval_holds_the_limit_whatever_the_transient_of_a_power_law_is(exponent):
    """With next to no noise: one fit of one transient would give an interval beside the truth."""
    rng, y = np.random.default_rng(0), X**-0.5 * np.exp(0.2 * (X[0] / X) ** exponent)
    noisy = y * np.exp(1e-5 * rng.standard_normal((5, 4)))
    limit = trend(X, noisy, noisy).limit
    assert limit.low <= -0.5 <= limit.high
    assert limit.high - limit.low < 1.0
    alone = over_seeds(slope_weights(X, 1.0), np.log(noisy), np.log(noisy), range(5))
    assert (alone.low <= -0.5 <= alone.high) == (exponent == 1.0)


DOUBLED = 3.0 * 2.0 ** np.arange(6)
BETWEEN = np.array([4.0, 5.0, 8.0, 10.0, 17.0, 34.0, 57.0, 68.0])
"""Horizons that rounds of ``decide`` put between those that double."""


@pytest.mark.parametrize("slope", [0.0, -0.2])
def test_values_between_others_narrow_the_interval_and_keep_its_errors(slope):
    """The last four of a dense axis span too little to tell a transient from a slope: they had [-1.8, +0.3] at 0."""
    rng, x, wrong, widths = np.random.default_rng(1), np.sort([*DOUBLED, *BETWEEN]), [0, 0], []
    doubled = np.isin(x, DOUBLED)
    for _ in range(200):
        seeds = 0.2 * rng.standard_normal((13, 1)) + 0.15 * rng.standard_normal((13, len(x)))
        y = x**slope * np.exp(2.0 * x[0] / x + seeds)
        found = [trend(x[axis], y[:, axis], y[:, axis]).limit for axis in (doubled, np.full(len(x), True))]
        wrong = [count + (not each.least <= slope <= each.most) for count, each in zip(wrong, found, strict=True)]
        widths.append([each.most - each.least for each in found])
    assert max(wrong) <= 2
    few, many = np.median(widths, axis=0)
    assert many < few


def test_the_last_part_of_a_doubled_axis_is_its_last_four_values():
    y = np.random.default_rng(0).lognormal(size=(5, 6))
    fits = [
        np.mean(np.log(y[:, start:]) @ slope_weights(DOUBLED[start:], q))
        for start in (0, 2)
        for q in (0.5, 1, math.inf)
    ]
    between = trend(DOUBLED, y, y).limit.between
    assert between == pytest.approx((min(fits) - 0.005, max(fits) + 0.005))


def test_horizons_before_the_memory_has_passed_enter_no_limit_slope():
    x = np.array([5.0, 10.0, 20.0, 40.0, 80.0])
    y = np.where(x < 10, 9.0, 1.0) * np.exp(1e-4 * np.random.default_rng(0).standard_normal((5, 5)))
    assert trend(x, y, y).limit.high > 1.0
    late = trend(x, y, y, since=10.0)
    assert late.fitted == (10.0, 20.0, 40.0, 80.0)
    assert late.limit.low > -0.01
    assert late.over_range.estimate < -0.5
    few = trend(x, y, y, since=20.0)
    assert (few.fitted, few.limit.available) == ((20.0, 40.0, 80.0), False)


def test_seeds_that_do_not_differ_are_no_evidence():
    y = np.tile(X**-0.6, (5, 1))
    for slope in map(as_evidence, (trend(X, y, y).limit, trend(X, y, y).over_range)):
        assert slope.estimate == pytest.approx(-0.6)
        assert (slope.low, slope.high, slope.least, slope.most) == (-math.inf, math.inf, -math.inf, math.inf)


def test_the_interval_that_decides_holds_the_one_that_is_printed():
    y = X**-0.6 * np.exp(0.02 * np.random.default_rng(0).standard_normal((5, 4)))
    one, shared = (trend(X, y, y, shares=shares).limit for shares in (1, 6))
    assert one.least < one.low < one.high < one.most < shared.most
    assert shared.least == one.least  # stable at every threshold is asked for: no error is shared
    assert Slope(0.0, -0.1, 0.1).least == -0.1


def test_a_short_range_few_values_or_one_seed_have_no_limit_slope():
    y = np.exp(0.01 * np.random.default_rng(0).standard_normal((5, 4)))
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


def test_one_censored_seed_leaves_the_interval_of_the_others_on_the_side_that_is_known():
    y = X**-0.1 * np.exp(0.01 * np.random.default_rng(0).standard_normal((5, 4)))
    high = y.copy()
    high[2, -1] = math.inf
    raw = trend(X, y, high).limit
    found = as_evidence(raw)
    assert found == raw
    assert -0.3 < found.least < found.low < 0.0
    assert (found.high, found.most) == (math.inf, math.inf)
    assert str(found) == f"[{found.low:+.2f}, +inf] (censored)"
    # the others are no sample where they do not differ
    same = np.tile(X**-0.1, (5, 1))
    assert as_evidence(trend(X, same, np.where(np.isinf(high), high, same)).limit).low == -math.inf


def test_the_number_of_seeds_that_would_decide():
    slope = Slope(-0.1, -0.25, 0.05)
    count = seeds_needed(slope, -0.2, 5)
    deviation = 0.15 * math.sqrt(5) / 2.7764451
    assert count == next(n for n in range(6, 99) if _student(n) * deviation / math.sqrt(n) < 0.1)
    assert seeds_needed(Slope(-0.2, -0.3, -0.1), -0.2, 5) is None
    assert seeds_needed(Slope(0.0, -math.inf, 1.0), -0.2, 5) is None
    # no number of seeds moves the estimates by other ranges and transients
    assert seeds_needed(Slope(-0.1, -0.25, 0.05, between=(-0.25, 0.0)), -0.2, 5) is None


def _student(count: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, count - 1))


def test_noise_of_one_radius_is_amplified_as_documented():
    assert np.linalg.norm(slope_weights(X, 1.0)) == pytest.approx(2.28, abs=0.01)
    assert np.linalg.norm(slope_weights(X)) == pytest.approx(0.65, abs=0.01)
