"""The interval of a difference: Student's over pairs of seeds, Welch's for independent samples, open where unknown."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_ind, ttest_rel

from memsweep.stability.comparison.differences import Bounds, difference

LEFT, RIGHT = np.random.default_rng(0).normal([[0.0], [0.4]], [[1.0], [0.3]], (2, 6))


def known(values: np.ndarray, first: int = 0) -> Bounds:
    return {first + seed: (value, value) for seed, value in enumerate(values.tolist())}


def test_seeds_that_both_sides_have_are_pairs_and_others_are_left_out() -> None:
    found = difference(known(LEFT), known(RIGHT[:5]))
    interval = ttest_rel(RIGHT[:5], LEFT[:5]).confidence_interval()
    assert found.paired
    assert found.seeds == (5, 5)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.estimate == pytest.approx((RIGHT[:5] - LEFT[:5]).mean())


def test_with_too_few_common_seeds_the_sides_are_independent_samples() -> None:
    found = difference(known(LEFT), known(RIGHT, first=4))
    interval = ttest_ind(RIGHT, LEFT, equal_var=False).confidence_interval()
    assert not found.paired
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_an_interval_holds_both_bounds_of_censored_values_and_is_open_where_one_is_infinite() -> None:
    sharp = known(RIGHT)
    wide = sharp | {0: (sharp[0][0], sharp[0][1] + 5.0)}
    found, at_most = difference(known(LEFT), wide), difference(known(LEFT), sharp | {0: (wide[0][1],) * 2})
    assert found.low == pytest.approx(difference(known(LEFT), sharp).low)
    assert found.high == pytest.approx(at_most.high)
    for first in (0, 4):  # paired, independent
        lost = difference(known(LEFT), known(RIGHT, first) | {5: (math.inf, math.inf)})
        assert not lost.apart
        assert (lost.low, lost.high) == (-math.inf, math.inf)


def test_what_rounding_makes_of_zero_is_no_difference() -> None:
    rounded = RIGHT * (1 + 2e-16) + 1e-16
    paired = difference(known(RIGHT), known(rounded))
    independent = difference(known(np.full(6, 0.1)), known(np.full(6, 0.1 + 1e-16), first=4))
    for found in (paired, independent):
        assert (found.estimate, found.low, found.high) == (0.0, 0.0, 0.0)
    assert difference(known(np.full(6, 0.1)), known(np.full(6, 0.1 + 1e-6))).apart


def test_no_interval_without_two_seeds_on_each_side() -> None:
    assert not difference(known(LEFT[:1]), known(RIGHT)).available
    assert not difference({}, {}).available
