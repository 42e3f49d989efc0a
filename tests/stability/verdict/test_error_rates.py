"""The verdict's error rates and power, simulated on the whole rule, and the table of docs/verdict.md.

With them, how the change at a small radius grows with the width, held against the limit of the radius.
"""

from __future__ import annotations

import math
from typing import Any

import error_rates
import numpy as np
import pytest
from error_rates import FLAT, LIMITS, SHRINKING, Case, Study, rates
from test_verdict import RADII, study

from memsweep.stability.verdict.judgement import DEFAULT, SLOPE_LIMIT, Criteria, Judgement, Missing, Verdict
from memsweep.stability.verdict.rule import judge
from paths import ROOT

WRONG = {
    error_rates.AT_LIMIT: Verdict.UNSTABLE,
    error_rates.ONE_AT_LIMIT: Verdict.STABLE,
    error_rates.GROWING: Verdict.STABLE,
}
HARSH = ("exponential", "-exponential")
"""Slopes of a skewness of 2: beyond what the levels were made for. The page says what they cost."""


@pytest.mark.parametrize("case", [LIMITS[0], LIMITS[1], LIMITS[6]])
def test_a_study_at_the_limit_stays_undecided_however_often_it_is_looked_at(case: Case) -> None:
    found = rates(case, studies=10)
    assert found.last[Verdict.INCONCLUSIVE] >= 0.9
    assert found.seeds > 30


def test_a_clear_study_is_decided_at_the_first_look_and_a_noisy_one_by_following_the_advice() -> None:
    assert rates(Case(FLAT, "normal", 0.01, horizons=5), studies=10).first[Verdict.STABLE] >= 0.9
    assert rates(Case(SHRINKING, "normal", 0.01), studies=10).first[Verdict.UNSTABLE] >= 0.9
    noisy = rates(Case(FLAT, "normal", 0.03), studies=10)
    assert noisy.first[Verdict.INCONCLUSIVE] >= 0.5
    assert noisy.last[Verdict.STABLE] >= 0.9


def test_the_simulation_judges_as_a_study_is_judged() -> None:
    """The radii of the simulation, as the curves of a study: the same slopes, growth and verdict."""
    import pandas as pd

    study = Study(Case(SHRINKING, "normal", 0.02), np.random.default_rng(0))
    simulated = study.weigh(6, 4)
    rows = []
    for seed, width, horizon in np.ndindex(6, len(error_rates.WIDTHS), 4):
        radius = study.radii[seed, width, horizon, 0]
        error = 1e-9 + 0.01 * (RADII / radius) ** 2 if study.valid[seed, width, horizon] else np.ones(len(RADII))
        place = {"seed": seed, "width": error_rates.WIDTHS[width], "horizon": study.horizons[horizon]}
        rows.append(pd.DataFrame({**place, "radius": RADII, "error": error, "zero_loss": 1.0}))
    curves = pd.concat(rows)
    replicas = curves[["width", "horizon", "seed"]].drop_duplicates().assign(slowest_rate=1.0)
    judged = judge(curves, replicas)
    assert judged.verdict is simulated.verdict is Verdict.UNSTABLE
    assert judged.width == simulated.width
    pairs = (
        (judged.growth, simulated.growth),
        (judged.by_threshold[0.01].horizon.limit, simulated.by_threshold[0.01].horizon.limit),
        (judged.by_threshold[0.01].step, simulated.by_threshold[0.01].step),
    )
    for found, expected in pairs:
        assert (found.estimate, found.low, found.high) == pytest.approx(
            (expected.estimate, expected.low, expected.high), abs=1e-3
        )


def bent(power: float, **options: Any) -> Judgement:
    """Radii are alike at all thresholds; below them the change grows about as this power of the width."""
    curves, replicas = study(**options)
    inside = (curves["radius"] > 0) & (curves["error"] < 2.0 * 0.009)
    less = 0.5 * power * np.log2(curves["width"] / 2)
    lower = curves["error"] * (2.0 * 0.009 / curves["error"]) ** less
    return judge(curves.assign(error=curves["error"].where(~inside, lower)), replicas)


def test_growing_error_below_the_radii_is_not_stable():
    judgement = bent(0.6)
    assert all(trends.along_width.least > SLOPE_LIMIT for trends in judgement.by_threshold.values())
    assert judgement.growth.least > DEFAULT.growth_limit
    assert (judgement.verdict, [lack.what for lack in judgement.lacks]) == (Verdict.INCONCLUSIVE, [Missing.GROWTH])
    assert any("grows faster than m^0.4 with width: slope at least" in reason for reason in judgement.reasons)


def test_growth_is_decided_by_the_interval_that_decides():
    judgement = bent(0.36, noise=0.016)
    assert judgement.growth.high < DEFAULT.growth_limit < judgement.growth.most
    assert (judgement.verdict, [lack.what for lack in judgement.lacks]) == (Verdict.INCONCLUSIVE, [Missing.GROWTH])
    assert judgement.extend == ("training.seeds=6",)
    assert any("m^0.4 with width: its slope lies between" in reason for reason in judgement.reasons)


def test_no_seeds_are_advised_for_growth_beyond_its_limit():
    """They would show that it grows, which is no verdict."""
    judgement = bent(0.5, noise=0.03)
    assert judgement.growth.least < DEFAULT.growth_limit < judgement.growth.estimate
    (growth,) = (lack for lack in judgement.lacks if lack.what is Missing.GROWTH)
    assert (growth.overrides, math.isnan(growth.need)) == ((), True)


def test_growth_that_fades_as_a_radius_may_is_stable():
    """Where widths are many, both have the slope at their end; the narrow models alone have smaller radii."""
    curves, replicas = study(widths=(4, 8, 16, 32, 64), noise=0.003)
    fall = np.exp(-0.9 * 4 / curves["width"]) / math.exp(-0.9)
    scaled = 2.0 * 1e-4 + (curves["error"] - 2.0 * 1e-4) * fall**2
    judgement = judge(curves.assign(error=scaled), replicas)
    assert judgement.slope_width.estimate == pytest.approx(0.0, abs=0.05)
    assert judgement.growth.estimate == pytest.approx(0.0, abs=0.1)
    assert judgement.verdict is Verdict.STABLE


@pytest.mark.parametrize("criteria", [DEFAULT, Criteria(slope_limit=-0.5)], ids=["rule", "other limit"])
@pytest.mark.parametrize("share", [0.75, 1.25])
def test_radius_and_change_are_held_against_one_limit(criteria: Criteria, share: float):
    """Changes are squares: whatever radius is clearly on one side of its limit, its change is, too."""
    judgement = judge(*study(width_slope=share * criteria.slope_limit, noise=1e-3), criteria=criteria)
    assert judgement.growth.estimate == pytest.approx(-2.0 * judgement.slope_width.estimate, abs=0.03)
    holds = judgement.slope_width.least > criteria.slope_limit, judgement.growth.most <= criteria.growth_limit
    assert holds == ((True, True) if share < 1 else (False, False))
    lacking = {lack.what for lack in judgement.lacks}
    of_radius = lacking & {Missing.SLOPE, Missing.WIDTH_SPAN}
    assert (bool(of_radius), Missing.GROWTH in lacking) == ((False, False) if share < 1 else (True, True))


@pytest.mark.long
@pytest.mark.more
def test_the_table_of_the_page_is_what_the_simulation_gives_and_errors_are_rare() -> None:
    text = (ROOT / "docs/verdict.md").read_text()
    for case in (*LIMITS, *error_rates.POWERS):
        found = rates(case, error_rates.STUDIES)
        assert error_rates.row(case, found) in text
        if wrong := WRONG.get(case.truth):
            assert found.last[wrong] <= (0.08 if case.noise in HARSH else 0.025)
