"""The optimism of a search: known where all suggestions are equally good, and intervals that hold what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from memsweep.stability.comparison.selection_bias import mean_gap, median_interval, optimism


@pytest.mark.parametrize("n", [1, 5, 6, 10, 17, 60])
def test_the_medians_interval_is_scipys(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    wanted = scipy.stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    ends = (-math.inf, math.inf) if math.isnan(wanted.low) else (wanted.low, wanted.high)
    assert median_interval(values) == ends


def test_the_gap_of_one_winner() -> None:
    gap = optimism([0.5, 0.4, 0.6], [0.55, 0.6, 0.65, 0.7, 0.5, 0.75, math.inf], "min")
    assert (gap.search, gap.confirmed) == (0.5, 0.65)
    assert (gap.low, gap.high) == (0.5, math.inf)  # the smallest and the largest of seven
    assert gap.gap == pytest.approx(0.15)
    assert gap.relative == pytest.approx(0.3)
    assert (gap.gap_low, gap.gap_high) == (0.0, math.inf)
    larger = optimism([2.0], [1.0, 1.5, 1.2, 1.4, 1.1, 1.3], "max")
    assert larger.gap == pytest.approx(0.75)
    assert (larger.gap_low, larger.gap_high) == (0.5, 1.0)
    assert optimism([2.0], [math.nan] * 3, "max").gap == math.inf  # diverged throughout
    assert optimism([math.inf], [math.inf], "min").gap == 0.0
    assert math.isnan(optimism([0.0], [1.0], "min").relative)
    assert optimism([-2.0], [-1.0], "min").relative == 0.5


def test_a_search_among_equals_is_as_optimistic_as_the_smallest_of_normal_numbers() -> None:
    """Twenty suggestions that are all alike: the winner's search value is the smallest of 20 medians of 3 seeds."""
    random, cells, suggestions, chosen_by = np.random.default_rng(0), 400, 20, 3

    def density(x: float) -> float:
        below = scipy.stats.norm.cdf(x)
        median = 6.0 * below * (1.0 - below) * scipy.stats.norm.pdf(x)  # of three
        tail = 1.0 - (3.0 * below**2 - 2.0 * below**3)
        return suggestions * median * tail ** (suggestions - 1)

    smallest = scipy.integrate.quad(lambda x: x * density(x), -8, 8)[0]
    gaps = []
    for _ in range(cells):
        told = np.median(random.normal(size=(suggestions, chosen_by)), axis=1)
        gaps.append(optimism([100.0 + told.min()], 100.0 + random.normal(size=10), "min"))
    assert np.mean([gap.gap for gap in gaps]) == pytest.approx(-smallest, abs=4 * np.std([g.gap for g in gaps]) / 20)
    found = mean_gap(gaps, range(cells))
    assert found.low < -smallest / 100.0 < found.high
    assert found.low > 0.0
    assert np.mean([gap.low <= 100.0 <= gap.high for gap in gaps]) > 0.95  # of ten: 97.9 %


def test_the_mean_gap_counts_cells_and_not_winners() -> None:
    gaps = [optimism([1.0], [1.0 + gap], "min") for gap in (0.1, 0.3, 0.2, 0.6, math.inf)]
    found = mean_gap(gaps, ["a", "a", "b", "c", "d"])
    assert (found.cells, found.left_out) == (3, 1)
    assert found.mean == pytest.approx(1.0 / 3)
    wanted = scipy.stats.t.interval(0.95, 2, loc=1 / 3, scale=scipy.stats.sem([0.2, 0.2, 0.6]))
    assert (found.low, found.high) == pytest.approx(wanted)
    few = mean_gap(gaps[:2], ["a", "b"])
    assert few.mean == pytest.approx(0.2)
    assert math.isnan(few.low)
    assert math.isnan(mean_gap([], []).mean)


def test_the_mean_gaps_interval_covers_the_mean() -> None:
    random = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        gaps = [optimism([1.0], [1.0 + gap], "min") for gap in random.gamma(4.0, 0.05, size=8)]
        found = mean_gap(gaps, range(8))
        held += found.low <= 0.2 <= found.high
    assert held >= scipy.stats.binom.ppf(0.001, 200, 0.93)  # skewed gaps of eight cells: a little below 95 %
