"""The verdict's error rates, simulated on exact radii, and the tables of docs/verdict.md."""

from __future__ import annotations

import error_rates
import pytest

from memsweep.stability.verdict.judgement import SMALLEST_RANGE, Verdict
from paths import ROOT


@pytest.mark.more
def test_the_limit_slope_of_exact_radii_is_on_the_right_side_more_often_than_the_slope_over_the_range():
    limit, over_range = (error_rates.wrong_slopes(transient, 0.0) for transient in (True, False))
    assert limit[Verdict.STABLE][0] == 0 < over_range[Verdict.STABLE][0]
    in_range = error_rates.wrong_slopes(True, SMALLEST_RANGE)
    assert in_range[Verdict.STABLE][0] == 0
    assert in_range[Verdict.UNSTABLE][0] <= 5  # of exponent 2, whose limit slope at 1 % is the limit of the rule
    text = (ROOT / "docs/verdict.md").read_text()
    assert [line for line in error_rates.table_of_slopes() if line not in text] == []


@pytest.mark.parametrize("noise", ["normal", "heavy tails", "a tilt by seed"])
def test_the_interval_covers_and_no_stable_memory_is_called_unstable(noise):
    found = error_rates.rates(noise, seeds=5, sigma=0.03, repeats=3)
    assert found.coverage >= 0.93
    assert found.stable[Verdict.UNSTABLE] == 0.0
    assert found.stable[Verdict.STABLE] > 0.9
    assert found.unstable[Verdict.UNSTABLE] > 0.85


def test_noise_that_seeds_share_is_in_no_interval():
    assert error_rates.rates("shared by seeds", seeds=5, sigma=0.03, repeats=3).coverage < 0.5


@pytest.mark.more
def test_the_table_of_the_page_is_what_the_simulation_gives():
    text = (ROOT / "docs/verdict.md").read_text()
    assert [line for line in error_rates.lines() if line not in text] == []
