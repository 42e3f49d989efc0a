"""How the change at a small radius grows with the width: held against the limit of the radius, and by one level."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from test_verdict import study

from memsweep.stability.verdict.judgement import DEFAULT, SLOPE_LIMIT, Criteria, Judgement, Missing, Verdict
from memsweep.stability.verdict.rule import judge


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
    assert lacking & {Missing.SLOPE, Missing.GROWTH} == (set() if share < 1 else {Missing.SLOPE, Missing.GROWTH})
