"""The optimism of a search: known where all suggestions are equally good, and intervals that hold what they say."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats

from memsweep.stability.comparison.selection_bias import median_interval, optimism, search_bias
from paths import ROOT


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
    assert gap.ratio == pytest.approx(1.3)
    assert (gap.gap_low, gap.gap_high) == (0.0, math.inf)
    larger = optimism([2.0], [1.0, 1.5, 1.2, 1.4, 1.1, 1.3], "max")
    assert larger.gap == pytest.approx(0.75)
    assert (larger.gap_low, larger.gap_high) == (0.5, 1.0)
    assert larger.ratio == pytest.approx(1.6)  # the less, the worse
    assert optimism([1.0], [2.0], "max").ratio == 0.5
    assert optimism([2.0], [math.nan] * 3, "max").gap == math.inf  # diverged throughout
    assert optimism([math.inf], [math.inf], "min").gap == 0.0
    for search, confirmed in ((0.0, 1.0), (1.0, 0.0), (-2.0, -1.0), (-1.0, 1.0), (1.0, math.inf)):
        assert math.isnan(optimism([search], [confirmed], "min").ratio)


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
    found = search_bias(gaps)
    assert found.low < 1.0 - smallest / (100.0 + smallest) < found.high
    assert found.low > 1.0
    assert found.p < 1e-6
    assert np.mean([gap.low <= 100.0 <= gap.high for gap in gaps]) > 0.95  # of ten: 97.9 %


def test_the_bias_of_a_search_is_a_mean_of_logarithms_over_the_cells_that_have_one() -> None:
    gaps = [optimism([1.0], [1.0 + gap], "min") for gap in (0.2, 0.25, 0.6, -0.2, math.inf, -1.0, 0.0)]
    found = search_bias(gaps)
    assert (found.cells, found.left_out) == (5, 2)  # without the infinite and the zero one
    assert (found.worse, found.better) == (4, 2)
    logs = np.log([1.2, 1.25, 1.6, 0.8, 1.0])
    assert found.ratio == pytest.approx(scipy.stats.gmean([1.2, 1.25, 1.6, 0.8, 1.0]))
    wanted = scipy.stats.t.interval(0.95, 4, loc=logs.mean(), scale=scipy.stats.sem(logs))
    assert np.log([found.low, found.high]) == pytest.approx(wanted)
    assert found.p == pytest.approx(scipy.stats.binomtest(4, 6).pvalue)
    few = search_bias(gaps[:2])
    assert few.ratio == pytest.approx(math.sqrt(1.5))
    assert math.isnan(few.low)
    none = search_bias([])
    assert (math.isnan(none.ratio), none.p) == (True, 1.0)


def test_ratios_that_are_as_often_above_as_below_one_show_no_bias() -> None:
    """Losses near zero, whose logarithms are symmetric: an arithmetic mean of the ratios says that they are worse."""
    random, held, arithmetic = np.random.default_rng(1), 0, []
    for _ in range(300):
        gaps = [optimism([1e-6], [1e-6 * math.exp(step)], "min") for step in random.normal(0.0, 1.5, size=40)]
        found = search_bias(gaps)
        held += found.low <= 1.0 <= found.high
        arithmetic.append(np.mean([gap.ratio for gap in gaps]))
    assert abs(held / 300 - 0.95) < 0.04
    assert np.median(arithmetic) > 2.0


def test_the_search_of_the_small_atlas_is_not_shown_to_flatter() -> None:
    """Its published table: 41 of 72 cells are worse, which an arithmetic mean of ratios makes +77 %."""
    table = pd.read_csv(ROOT / "docs" / "atlas" / "winners.csv")
    rows = table[["search", "confirmed"]].itertuples(index=False)
    found = search_bias([optimism([search], [confirmed], "min") for search, confirmed in rows])
    assert (found.worse, found.better, found.cells) == (41, 29, 69)
    assert [round(each, 2) for each in (found.ratio, found.low, found.high, found.p)] == [0.76, 0.5, 1.15, 0.19]
    said = (ROOT / "docs" / "atlas" / "README.md").read_text("utf-8")
    assert "geometric mean 0.76 [0.50, 1.15] of 69 cells; sign test p = .19" in said
