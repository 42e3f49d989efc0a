"""The verdict's procedure on curves whose answer is known, and its refusals."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from memsweep.stability.verdict.radius import Crossing, crossing, stability_radii
from memsweep.stability.verdict.rule import Verdict, judge
from memsweep.stability.verdict.slopes import BOOTSTRAPS, Points, theil_sen

RADII = np.concatenate([[0.0], np.geomspace(1e-4, 3.0, 30)])


def study(
    width_slope: float = 0.0,
    horizon_slope: float = 0.0,
    *,
    growth: float = 0.0,
    noise: float = 0.01,
    floor: float = 1e-4,
    base: float = 0.3,
    slowest: float = 0.2,
    widths: tuple[int, ...] = (2, 3, 4, 6, 8),
    horizons: tuple[int, ...] = (50, 100, 200, 400),
    seeds: int = 5,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Curves E = L0 (floor + width^growth (r / r0)^2) with r0 ~ width^a horizon^b, and the replicas they belong to."""
    rng = np.random.default_rng(0)
    curves, replicas = [], []
    for width in widths:
        for horizon in horizons:
            for seed in range(seeds):
                scale = base * (width / 2) ** width_slope * (horizon / 50) ** horizon_slope
                scale *= math.exp(noise * rng.standard_normal())
                error = 2.0 * (floor + width**growth * (RADII / scale) ** 2)
                curves.append(
                    pd.DataFrame({"width": width, "horizon": horizon, "seed": seed, "radius": RADII, "error": error})
                )
                replicas.append((width, horizon, seed, slowest))
    frame = pd.concat(curves).assign(zero_loss=2.0)
    return frame, pd.DataFrame(replicas, columns=["width", "horizon", "seed", "slowest_rate"])


def test_stable_when_nothing_shrinks():
    judgement = judge(*study())
    assert judgement.verdict is Verdict.STABLE
    assert judgement.slope_width.estimate == pytest.approx(0.0, abs=0.02)
    assert judgement.slope_horizon.low <= judgement.slope_horizon.estimate <= judgement.slope_horizon.high


def test_unstable_when_the_radius_shrinks_with_the_horizon():
    judgement = judge(*study(horizon_slope=-0.6))
    assert judgement.verdict is Verdict.UNSTABLE
    assert judgement.slope_horizon.estimate == pytest.approx(-0.6, abs=0.03)
    assert judgement.slope_horizon.high < -0.2


def test_unstable_when_the_radius_shrinks_with_width_unless_the_horizon_limits_it():
    assert judge(*study(width_slope=-0.5)).verdict is Verdict.UNSTABLE
    limited = judge(*study(width_slope=-0.5, slowest=0.001))
    assert limited.horizon_limited
    assert limited.verdict is Verdict.INCONCLUSIVE
    assert any("horizon-limited" in reason for reason in limited.reasons)


def test_the_horizon_limit_of_a_nonlinear_model_is_said_to_be_known_at_rest_only():
    curves, replicas = study(width_slope=-0.5, slowest=0.001)
    for nonlinear in (True, False):
        judgement = judge(curves, replicas, nonlinear=nonlinear)
        assert judgement.horizon_limited
        assert any("linearized at rest" in reason for reason in judgement.reasons) == nonlinear
    unlimited = judge(*study(), nonlinear=True)
    assert not any("linearized" in reason for reason in unlimited.reasons)


def test_a_slope_near_the_limit_is_inconclusive():
    assert judge(*study(horizon_slope=-0.2, noise=0.1)).verdict is Verdict.INCONCLUSIVE


def test_noise_is_not_taken_for_stability():
    """Absence of evidence: a wide interval around zero is no verdict."""
    assert judge(*study(noise=1.0)).verdict is Verdict.INCONCLUSIVE


def test_growing_error_at_a_small_radius_is_not_stable():
    judgement = judge(*study(width_slope=-0.1, growth=0.15))
    assert judgement.growth.high > 0.1
    assert judgement.verdict is Verdict.INCONCLUSIVE


def test_models_that_do_not_approximate_are_left_out():
    curves, replicas = study()
    bad = (curves["width"] == 8) & (curves["horizon"] == 400)
    curves.loc[bad, "error"] = 2.0 * (0.3 + curves.loc[bad, "radius"] * 1e6)
    assert judge(curves, replicas).verdict is Verdict.STABLE  # four widths remain
    curves.loc[curves["width"] == 6, "error"] = 1.0
    judgement = judge(curves, replicas)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert any("valid widths at horizon 400: 2, 3, 4 " in reason for reason in judgement.reasons)


def test_three_horizons_are_too_few_for_stable_but_not_for_unstable_by_width():
    few = {"horizons": (50, 100, 200)}
    judgement = judge(*study(**few))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert math.isnan(judgement.slope_horizon.estimate)
    assert judge(*study(width_slope=-0.6, **few)).verdict is Verdict.UNSTABLE


def test_one_cell_alone_is_inconclusive_and_says_why():
    judgement = judge(*study(widths=(4,), horizons=(100,)))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert len(judgement.reasons) >= 2


@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_few_seeds_give_no_verdict_however_clear_the_curves(seeds):
    judgement = judge(*study(horizon_slope=-0.6, seeds=seeds))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert any("a verdict needs 5" in reason for reason in judgement.reasons)


def test_a_width_with_one_valid_seed_still_counts():
    curves, replicas = study(seeds=6)
    bad = (curves["width"] == 8) & (curves["seed"] > 0)
    curves.loc[bad, "error"] = 1.0
    judgement = judge(curves, replicas)
    assert judgement.verdict is Verdict.STABLE
    assert not judgement.reasons[0].startswith("valid widths")


def test_a_diverged_replica_is_invalid_not_dropped():
    curves, replicas = study()
    one = (curves["seed"] == 0) & (curves["width"] == 4)
    curves.loc[one, "error"] = math.inf
    radii = stability_radii(curves)
    assert len(radii) == 5 * 4 * 5 * 3
    assert not radii[(radii["seed"] == 0) & (radii["width"] == 4)]["valid"].any()
    assert judge(curves, replicas).verdict is Verdict.STABLE


def test_the_worst_threshold_is_reported():
    curves, replicas = study(horizon_slope=-0.6)
    judgement = judge(curves, replicas)
    highs = {threshold: slopes[1].high for threshold, slopes in judgement.by_threshold.items()}
    assert judgement.threshold == max(highs, key=highs.get)


def test_crossing_interpolates_in_logs():
    radii = np.array([0.0, 0.1, 1.0, 10.0])
    errors = np.array([1e-9, 1e-4, 1e-2, 1.0])
    known = crossing(radii, errors, 1e-3)
    assert known.low == known.high == known.radius == pytest.approx(10**-0.5)
    assert known.censored == ""
    assert crossing(radii, errors, 2.0) == Crossing(10.0, math.inf, "above", 10.0)
    assert crossing(radii, errors, 1e-5) == Crossing(0.0, 0.1, "below", 0.1)
    jump = crossing(radii, np.array([1e-9, 1e-4, math.inf, math.inf]), 1e-3)
    assert jump == Crossing(0.1, 1.0, "between", 0.1)
    assert crossing(radii, np.full(4, math.inf), 1e-3).censored == "below"


def test_theil_sen_recovers_a_slope_against_outliers():
    rng = np.random.default_rng(1)
    x = np.tile([2.0, 4.0, 8.0, 16.0, 32.0], 9)
    y = x**-0.7 * np.exp(0.01 * rng.standard_normal(x.size))
    y[:3] *= 100.0
    slope = theil_sen(Points.of(x, y, y, np.repeat(np.arange(9), 5)))
    assert slope.estimate == pytest.approx(-0.7, abs=0.05)
    assert slope.low < -0.7 < slope.high or slope.high - slope.low < 0.1


def test_censored_points_widen_the_interval_to_the_side_that_they_hide():
    x = np.tile([1.0, 2.0, 4.0, 8.0], 5)
    seeds = np.repeat(np.arange(5), 4)
    grid_end = 3.0
    y = np.minimum(x**1.0, grid_end)
    slope = theil_sen(Points.of(x, y, np.where(x > grid_end, math.inf, y), seeds))
    assert slope.low <= 1.0 <= slope.high
    assert slope.high == math.inf
    naive = theil_sen(Points.of(x, y, y, seeds))
    assert naive.estimate < 0.9  # what dropping the mark would have claimed
    all_censored = theil_sen(Points.of(x, np.full(x.shape, grid_end), np.full(x.shape, math.inf), seeds))
    assert (all_censored.low, all_censored.high) == (-math.inf, math.inf)


@pytest.mark.more
def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    """With 12 clusters of shared noise, a 95 % interval covers in most of 60 experiments (bootstraps run short)."""
    assert BOOTSTRAPS >= 2000
    rng = np.random.default_rng(2)
    x = np.tile([50.0, 100.0, 200.0, 400.0], 12)
    seeds = np.repeat(np.arange(12), 4)
    covered = 0
    for _ in range(60):
        tilt = 0.3 * rng.standard_normal(12)
        y = x ** (-0.4 + tilt[seeds]) * np.exp(0.02 * rng.standard_normal(x.size))
        slope = theil_sen(Points.of(x, y, y, seeds))
        covered += slope.low <= -0.4 <= slope.high
    assert covered >= 50
