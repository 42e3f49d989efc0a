"""The verdict's procedure on curves whose answer is known, and its refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from memsweep.stability.verdict.judgement import SLOPE_LIMIT, Missing, Verdict
from memsweep.stability.verdict.radius import Crossing, crossing, stability_radii
from memsweep.stability.verdict.rule import judge

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
    assert (judgement.verdict, judgement.lacks) == (Verdict.STABLE, ())
    assert judgement.slope_width.estimate == pytest.approx(0.0, abs=0.02)
    assert judgement.slope_horizon.low <= judgement.slope_horizon.estimate <= judgement.slope_horizon.high


def test_unstable_when_the_radius_shrinks_with_the_horizon():
    judgement = judge(*study(horizon_slope=-0.6))
    assert judgement.verdict is Verdict.UNSTABLE
    assert judgement.slope_horizon.estimate == pytest.approx(-0.6, abs=0.03)
    assert judgement.slope_horizon.high < -0.2


LONG = (2, 4, 8, 16)


def test_unstable_when_the_radius_shrinks_with_width_unless_the_horizon_limits_it():
    assert judge(*study(width_slope=-0.5, widths=LONG)).verdict is Verdict.UNSTABLE
    limited = judge(*study(width_slope=-0.5, widths=LONG, slowest=0.001))
    assert limited.horizon_limited
    assert limited.verdict is Verdict.INCONCLUSIVE
    assert any("horizon-limited" in reason for reason in limited.reasons)


def test_widths_over_a_short_range_can_show_that_a_radius_keeps_its_size_and_not_that_it_keeps_shrinking():
    assert judge(*study(widths=(2, 3, 4, 6, 8))).verdict is Verdict.STABLE
    shrinking = judge(*study(width_slope=-0.5, widths=(2, 3, 4, 6, 8)))
    assert shrinking.slope_width.high < SLOPE_LIMIT
    assert shrinking.verdict is Verdict.INCONCLUSIVE


def test_the_horizon_limit_of_a_nonlinear_model_is_said_to_be_known_at_rest_only():
    curves, replicas = study(width_slope=-0.5, widths=LONG, slowest=0.001)
    for nonlinear in (True, False):
        judgement = judge(curves, replicas, nonlinear=nonlinear)
        assert judgement.horizon_limited
        assert any("linearized at rest" in reason for reason in judgement.reasons) == nonlinear
    unlimited = judge(*study(), nonlinear=True)
    assert not any("linearized" in reason for reason in unlimited.reasons)


def test_a_slope_near_the_limit_is_inconclusive():
    assert judge(*study(horizon_slope=-0.2, noise=0.1)).verdict is Verdict.INCONCLUSIVE
    (slope,) = judge(*study(horizon_slope=-0.12, noise=0.04, seeds=7)).lacks
    assert slope.overrides == ("task.horizon=800", "training.seeds=13")  # but a longer horizon narrows no other slope
    assert judge(*study(width_slope=-0.1, noise=0.04)).extend == ("training.seeds=14",)


def test_noise_is_not_taken_for_stability():
    """Absence of evidence: a wide interval around zero is no verdict."""
    assert judge(*study(noise=1.0)).verdict is Verdict.INCONCLUSIVE


def test_models_that_do_not_approximate_are_left_out():
    curves, replicas = study()
    bad = (curves["width"] == 8) & (curves["horizon"] == 400)
    curves.loc[bad, "error"] = 2.0 * (0.3 + curves.loc[bad, "radius"] * 1e6)
    assert judge(curves, replicas).verdict is Verdict.STABLE  # four widths remain
    curves.loc[curves["width"] == 6, "error"] = 1.0
    judgement = judge(curves, replicas)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert any("widths at horizon 400 with 5 valid seeds: 2, 3, 4 " in reason for reason in judgement.reasons)


def test_widths_that_are_still_to_be_trained_are_no_misfits():
    """A study of which a part has run: only width 8 has a result at the longest horizon."""
    curves, replicas = study()
    early = (table[(table["horizon"] < 400) | (table["width"] == 8)] for table in (curves, replicas))
    judgement = judge(*early)
    (lack, *_) = judgement.lacks
    assert (lack.what, lack.have, lack.need, lack.of) == (Missing.TOP_WIDTHS, 1, 4, 5)
    assert judgement.extend == ("model.width=2,3,4,6",)
    assert judgement.reasons[0] == "widths trained at horizon 400: 8; a width slope needs 4 of them"
    failed = (curves["horizon"] == 400) & (curves["width"] < 8)
    curves.loc[failed, "error"] = math.inf  # trained, and diverged
    assert Missing.FITTING_WIDTHS in {lack.what for lack in judge(curves, replicas).lacks}


def test_three_horizons_are_too_few_for_stable_but_not_for_unstable_by_width():
    few = {"horizons": (50, 100, 200)}
    judgement = judge(*study(**few))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert math.isnan(judgement.slope_horizon.estimate)
    assert judge(*study(width_slope=-0.6, widths=LONG, **few)).verdict is Verdict.UNSTABLE


def test_one_cell_alone_is_inconclusive_and_says_why():
    judgement = judge(*study(widths=(4,), horizons=(100,)))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert len(judgement.reasons) >= 2


@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_few_seeds_give_no_verdict_however_clear_the_curves(seeds):
    judgement = judge(*study(horizon_slope=-0.6, seeds=seeds))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert any("a verdict needs 5" in reason for reason in judgement.reasons)


def test_five_seeds_means_five_seeds_in_every_cell_that_enters():
    """One seed of a sixth that is valid in a single cell made a study of four seeds one of five."""
    curves, replicas = study(seeds=5)
    fifth = (curves["seed"] == 4) & ((curves["width"] != 2) | (curves["horizon"] != 50))
    judgement = judge(curves[~fifth], replicas)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.width is None
    # a cell that lacks a valid seed is left out, the others decide
    curves, replicas = study(seeds=6)
    bad = (curves["width"] == 8) & (curves["seed"] > 0)
    curves.loc[bad, "error"] = 1.0
    judgement = judge(curves, replicas)
    assert judgement.verdict is Verdict.STABLE
    assert judgement.width == 6
    assert judgement.by_threshold[0.01].width.x == (2, 3, 4, 6)


def test_a_diverged_replica_is_invalid_not_dropped():
    curves, replicas = study()
    one = (curves["seed"] == 0) & (curves["width"] == 4)
    curves.loc[one, "error"] = math.inf
    radii = stability_radii(curves)
    assert len(radii) == 5 * 4 * 5 * 3
    assert not radii[(radii["seed"] == 0) & (radii["width"] == 4)]["valid"].any()
    assert judge(curves, replicas).verdict is Verdict.STABLE


def test_the_threshold_that_shows_instability_best_is_reported():
    judgement = judge(*study(horizon_slope=-0.6))
    highs = {threshold: trends.horizon.limit.high for threshold, trends in judgement.by_threshold.items()}
    assert judgement.threshold == min(highs, key=highs.get)
    assert judgement.unstable_by_horizon


def test_radii_beyond_the_grid_at_one_threshold_leave_the_others_to_decide():
    curves, replicas = study()
    judgement = judge(curves[curves["radius"] <= 0.06], replicas)  # 3 % and 10 % are crossed further out
    assert [trends.horizon.outside for trends in judgement.by_threshold.values()] == [False, True, True]
    assert judgement.verdict is Verdict.STABLE
    assert judge(curves[curves["radius"] <= 0.02], replicas).verdict is Verdict.INCONCLUSIVE


def transient(size: float, **others) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Radii that fall at the start of the range and level off: log r = const + size (first horizon / horizon)."""
    curves, replicas = study(**others)
    stretch = np.exp(size * min(curves["horizon"]) / curves["horizon"])
    curves["error"] = 2.0 * 1e-4 + (curves["error"] - 2.0 * 1e-4) / stretch**2
    return curves, replicas


def test_the_start_of_the_range_is_not_taken_for_the_trend():
    judgement = judge(*transient(0.4, horizons=(50, 100, 200, 400, 800)))
    horizon = judgement.by_threshold[0.01].horizon
    assert horizon.over_range.high < horizon.limit.estimate
    assert horizon.local[0] < SLOPE_LIMIT
    assert horizon.limit.low <= 0.0 <= horizon.limit.high
    assert judgement.verdict is Verdict.STABLE


def test_a_radius_that_still_falls_fast_has_no_limit_that_one_range_could_tell():
    """Whether it falls by T^-1 and levels off, or more slowly and does not, four horizons do not say."""
    judgement = judge(*transient(1.5))
    horizon = judgement.by_threshold[0.01].horizon
    assert horizon.over_range.high < SLOPE_LIMIT  # what one slope over the range would have said
    assert horizon.local == pytest.approx((-1.08, -0.54, -0.27), abs=0.05)
    assert horizon.limit.estimate == pytest.approx(0.0, abs=0.05)
    assert horizon.limit.low < SLOPE_LIMIT < 0.0 < horizon.limit.high
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.extend == ("task.horizon=800,1600",)
    longer = transient(1.5, horizons=(50, 100, 200, 400, 800, 1600))
    assert judge(*longer, time_scale=50.0).verdict is Verdict.STABLE  # the first horizon is within the memory


def test_a_range_that_is_short_for_the_memory_gives_no_verdict_and_says_which_horizons_would():
    curves, replicas = transient(0.2, horizons=(10, 20, 40, 80))
    judgement = judge(curves, replicas, time_scale=10.0)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.reasons[0] == (
        "horizons of at least 2 time scales of the memory (10 steps): 20, 40, 80; a limit slope needs 4, and the slope "
        "over T = 10…80 says nothing of the limit"
    )
    assert not judgement.slope_horizon.available
    assert judgement.extend == ("task.horizon=160,320",)  # five that are long enough
    assert judge(curves, replicas, time_scale=5.0).verdict is Verdict.STABLE
    assert judge(curves, replicas, time_scale=100.0).extend == ("task.horizon=160,320,640,1280,2560,5120",)
    # a range of a factor of four shows no transient fade
    narrow = judge(*study(horizons=(50, 80, 120, 200)))
    assert narrow.verdict is Verdict.INCONCLUSIVE
    assert narrow.extend == ("task.horizon=400",)
    assert any("span a factor of 4; a limit slope needs 8" in reason for reason in narrow.reasons)


def test_the_advised_horizons_decide():
    """As many as are lacking, each twice the one before, and not the last one alone."""
    curves, replicas = study(horizons=(10, 20, 40, 80, 160, 320))
    short = curves["horizon"] <= 80
    (advised,) = judge(curves[short], replicas, time_scale=10.0).extend
    assert {10, 20, 40, 80, *map(int, advised.removeprefix("task.horizon=").split(","))} == {*curves["horizon"]}
    assert judge(curves, replicas, time_scale=10.0).verdict is Verdict.STABLE


def test_identical_seeds_give_no_verdict_and_say_so():
    curves, replicas = study(noise=0.0, horizon_slope=-0.6)
    judgement = judge(curves, replicas)
    assert (judgement.verdict, judgement.extend) == (Verdict.INCONCLUSIVE, ())
    assert any("the seeds do not differ, which is no evidence" in reason for reason in judgement.reasons)


def test_a_width_that_does_not_suffice_is_not_stable():
    """At one width the radius levels off in the horizon, and one more width loses it."""
    curves, replicas = study(noise=0.005)
    fewer = np.where((curves["width"] == 8) & (curves["horizon"] == 400), 0.8, 1.0)
    curves["error"] = 2.0 * 1e-4 + (curves["error"] - 2.0 * 1e-4) / fewer**2
    out = (curves["width"] == 8) & (curves["horizon"] < 400)
    judgement = judge(curves[~out], replicas)  # width 8 was trained at the longest horizon alone
    assert judgement.width == 6
    assert judgement.by_threshold[0.01].step.estimate == pytest.approx(math.log(0.8), abs=0.01)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert any(
        reason.startswith("one more width changes the radius at horizon 400: log radius by −0.2")
        for reason in judgement.reasons
    )
    assert judge(*study()).by_threshold[0.01].step.estimate == pytest.approx(0.0, abs=0.03)


def test_a_verdict_says_up_to_which_width_and_fit_it_was_asked():
    judgement = judge(*study(floor=2e-4))
    assert (judgement.largest_width, judgement.fit_error) == (8, pytest.approx(2e-4))
    assert judgement.reasons[-1] == (
        "asked up to width 8 and horizon 400, of models whose error without perturbation is at most 0.0002 of the zero "
        "predictor's"
    )


def test_stable_says_where_the_radius_does_shrink():
    judgement = judge(*study(horizon_slope=-0.1, noise=0.002))
    assert judgement.verdict is Verdict.STABLE
    assert judgement.shrinks
    assert any(
        "shrinks no faster than T^−0.2" in reason and "it does shrink: −0.1" in reason for reason in judgement.reasons
    )
    assert not judge(*study()).shrinks


def test_one_threshold_just_below_the_limit_is_not_unstable():
    """-0.203 at 1 %, with the spread over seeds that a 95 % interval leaves below -0.2."""
    judgement = judge(*study(horizon_slope=-0.205, noise=0.001))
    assert judgement.by_threshold[0.01].horizon.over_range.high < SLOPE_LIMIT
    assert judgement.verdict is Verdict.INCONCLUSIVE


def test_noise_asks_for_seeds_or_a_longer_horizon():
    judgement = judge(*study(noise=0.03))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    horizon, seeds = judgement.extend
    assert horizon == "task.horizon=800"
    count = int(seeds.removeprefix("training.seeds="))
    assert 5 < count <= 50
    assert judge(*study(noise=0.03, seeds=3 * count)).verdict is Verdict.STABLE


def test_more_seeds_are_advised_only_where_they_decide():
    assert judge(*study(seeds=3)).extend == ("training.seeds=5",)
    assert judge(*study(floor=0.1, widths=(4,))).extend == ()  # no model approximates the target


SHORT: dict[Any, dict[str, Any]] = {
    (Missing.WIDTHS, 1, 4): {"widths": (4,)},
    (Missing.SEEDS, 1, 5): {"widths": (2,), "horizons": (50, 100), "seeds": 1},
}


@pytest.mark.parametrize("first", SHORT)
def test_the_advised_trials_decide_whatever_was_not_trained(first: tuple[Any, ...]) -> None:
    judgement = judge(*study(**(short := SHORT[first]), noise=0.002))
    assert (judgement.lacks[0].what, judgement.lacks[0].have, judgement.lacks[0].need) == first
    words = (word.partition("=") for word in judgement.extend[0].split())
    added = {path.split(".")[1].rstrip("s"): numbers for path, _, numbers in words}
    plan: dict[str, Any] = {f"{axis}s": (*map(int, numbers.split(",")),) for axis, numbers in added.items()}
    plan = {axis: (*(short[axis] if len(plan) == 1 else ()), *numbers) for axis, numbers in plan.items()}
    seeds = plan.pop("seeds", (5,))[0]
    assert judge(*study(**short | plan | {"seeds": seeds}, noise=0.002)).verdict is Verdict.STABLE


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


def looked_for(scales: dict[float, tuple[float, float]], radii: np.ndarray, change, seed: int = 0) -> pd.DataFrame:
    """The curve of one replica on a grid, and the rows of thresholds: where they were looked for, and the change."""
    grid = pd.DataFrame({"radius": radii, "change": change(radii), "threshold": math.nan})
    rows = pd.DataFrame([(r, at, t) for t, (r, at) in scales.items()], columns=["radius", "change", "threshold"])
    return pd.concat([grid, rows]).assign(width=1, horizon=1, seed=seed, error=lambda c: c["change"], zero_loss=1.0)


def test_a_crossing_that_was_not_found_lies_between_the_nearest_radii_of_the_curve():
    def jump(r: np.ndarray) -> np.ndarray:
        return np.where(r < 0.25, 0.04 * r, np.inf)

    radii = np.array([0.0, 0.1, 0.2, 0.4, 0.8])
    known = looked_for({0.01: (0.24, 0.0096), 0.03: (0.26, math.inf), 0.1: (0.24, 0.0096)}, radii, jump)
    table = stability_radii(known)
    assert table["radius_low"].tolist() == [0.24, 0.24, 0.24]
    assert table["radius_high"].tolist() == [0.26, 0.26, 0.26]
    assert table["censored"].tolist() == ["between"] * 3
    assert table["radius"].tolist() == [0.24] * 3
    # beyond the whole curve, and before it
    above = stability_radii(looked_for({0.1: (51.2, 0.05)}, radii, lambda r: 0.05 * np.sign(r)), [0.1]).iloc[0]
    assert (above["radius_low"], above["radius_high"], above["censored"]) == (51.2, math.inf, "above")
    below = stability_radii(looked_for({0.01: (1e-9, 0.05)}, radii, lambda r: 0.05 * np.sign(r)), [0.01]).iloc[0]
    assert (below["radius_low"], below["radius_high"], below["censored"]) == (0.0, 1e-9, "below")


def searched(radii: np.ndarray, diverges: float = math.inf) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A study whose radii were looked for: squares; or up to 5 %, and infinite from diverges (T / 50)^-0.9 on."""
    _, replicas = study()
    rng, parts = np.random.default_rng(0), []
    for place in replicas[["width", "horizon", "seed"]].itertuples(index=False):
        scale = 0.3 * math.exp(0.003 * rng.standard_normal())
        end = diverges * (50 / place.horizon) ** 0.9 * scale / 0.3

        def change(r: np.ndarray, scale: float = scale, end: float = end) -> np.ndarray:
            return (
                (r / scale) ** 2 if end == math.inf else np.where(r < end, np.minimum((r / scale) ** 2, 0.05), np.inf)
            )

        found = {t: (scale * t**0.5, t) for t in (0.01, 0.03, 0.1)}
        if end < math.inf:
            found[0.1] = (0.98 * end, 0.05)
        parts.append(looked_for(found, radii, change).assign(**place._asdict()))
    return pd.concat(parts), replicas


def test_a_radius_that_shrinks_because_the_model_diverges_is_not_stable():
    """The largest threshold falls by T^-0.9 through divergence, and was left out as if it were beyond the search."""
    judgement = judge(*searched(RADII, diverges=0.4))
    radii = {threshold: trends.horizon.over_range for threshold, trends in judgement.by_threshold.items()}
    assert radii[0.01].low > -0.01
    assert radii[0.03].low > -0.01
    assert radii[0.1].estimate < SLOPE_LIMIT
    assert all(trends.inside for trends in judgement.by_threshold.values())
    assert judgement.verdict is not Verdict.STABLE
    assert judge(*searched(RADII)).verdict is Verdict.STABLE


def test_radii_below_the_grid_have_the_verdict_of_those_inside_of_it():
    """The change at half the 1 % radius follows the square of the radius below the first radius that was tried."""
    inside, below = (judge(*searched(np.r_[0.0, np.geomspace(start, 3.0, 20)])) for start in (1e-3, 0.2))
    assert inside.verdict is below.verdict is Verdict.STABLE
    assert below.small_radius == inside.small_radius < 0.03
    for name in ("estimate", "low", "high"):
        assert getattr(below.growth, name) == pytest.approx(getattr(inside.growth, name), abs=1e-9)
    assert below.modulus == pytest.approx(inside.modulus)


def test_the_fit_that_is_named_is_that_of_every_model_that_enters():
    """A few seeds of one cell fit worse than the median, and no width is valid at every horizon in the second case."""
    curves, replicas = study()
    worse = (curves["seed"] == 3) & (curves["width"] == 4) & (curves["horizon"] == 400)
    curves.loc[worse, "error"] += 2.0 * 4.13e-3
    judgement = judge(curves.assign(change=curves["error"] - curves["error"].min()), replicas)
    assert judgement.fit_error == pytest.approx(4.23e-3)
    by_width = judge(*study(width_slope=-0.6, widths=LONG, horizons=(50, 100, 200)))
    assert by_width.verdict is Verdict.UNSTABLE
    assert "is at most 0.0001 of the zero predictor's" in by_width.reasons[-1]


def test_reasons_name_the_thresholds_that_were_left_out():
    curves, replicas = study()
    judgement = judge(curves[curves["radius"] <= 0.06], replicas)
    for power in ("T^−0.2", "m^−0.2"):
        start = f"at 1% (3% and 10% lie beyond the search) the radius shrinks no faster than {power}"
        assert any(reason.startswith(start) for reason in judgement.reasons), judgement.reasons
    assert any(reason.startswith("at every threshold the radius") for reason in judge(*study()).reasons)


def test_no_reason_prints_a_number_that_is_not_known():
    """Radii of one width end beyond the grid: the change by one more width is a half-line."""
    curves, replicas = study()
    far = (curves["width"] == 8) & (curves["seed"] < 2)
    curves.loc[far, "error"] = 2.0 * 1e-4
    judgement = judge(curves, replicas)
    assert any("log radius by [" in reason and "(censored)" in reason for reason in judgement.reasons)
    assert "nan" not in " ".join(judgement.reasons)


def test_seeds_that_do_not_fit_say_nothing_of_the_slowest_mode():
    curves, replicas = study(width_slope=-0.5, widths=LONG, seeds=12)
    curves.loc[curves["seed"] > 4, "error"] += 1.8
    replicas.loc[replicas["seed"] > 4, "slowest_rate"] = 1e-9
    judgement = judge(curves, replicas)
    assert judgement.verdict is Verdict.UNSTABLE
    assert not judgement.horizon_limited
