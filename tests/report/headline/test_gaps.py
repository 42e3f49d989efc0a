"""The sentences of a judgement where slopes cannot be made or decide nothing: along which axis, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pandas as pd
import pytest

from memsweep.report.analysis.contents import Finding
from memsweep.report.headline.answer import Kind, StudyAnswer
from memsweep.report.headline.evidence import gap_of, slope_words
from memsweep.report.headline.stability import asked_sizes
from memsweep.stability.verdict.judgement import Judgement, Missing, Verdict
from memsweep.stability.verdict.lacks import shows_unstable_alone
from memsweep.stability.verdict.radius import COLUMNS
from memsweep.stability.verdict.rule import judge

WIDTHS, HORIZONS = (2, 4, 8, 16), (10, 20, 40, 80)
Radius = Callable[[int, int, float], float]


def found(
    radius: Radius = lambda width, horizon, threshold: threshold**0.5,
    *,
    widths: Sequence[int] = WIDTHS,
    horizons: Sequence[int] = HORIZONS,
    seeds: int = 5,
    misses: Sequence[tuple[int, int, int]] = (),
    skips: Sequence[tuple[int, int]] = (),
    least: float = 0.0,
    most: float = math.inf,
    rate: float = 0.5,
    fit: float = 0.02,
    scale: float = 2.0,
    noise: float = 0.001,
) -> Finding:
    """A judgement of radii by formula, with what it is judged from.

    Args:
        radius: of a width, a horizon and a threshold.
        widths, horizons, seeds: that were trained.
        misses: width, horizon and seed of models that do not fit.
        skips: width and horizon of models that were not trained.
        least, most: radii that were tried.
        rate: the slowest of all models, per step.
        fit: error of the models that do not fit.
        scale: of the memory, in steps.
        noise: of the seeds' log radii.
    """
    rng, radii, curves, replicas = np.random.default_rng(0), [], [], []
    for width, horizon in product(widths, horizons):
        if (width, horizon) not in skips:
            for seed in range(seeds):
                factor = math.exp(noise * rng.standard_normal())
                valid = (width, horizon, seed) not in misses
                error = 0.001 if valid else fit
                at = {threshold: radius(width, horizon, threshold) * factor for threshold in (0.01, 0.03, 0.1)}
                curves += [(width, horizon, seed, 0.0, error, 0.0, math.nan, 1.0)]
                for tried in np.geomspace(1e-3, 10, 20):
                    change = 0.01 * (tried / at[0.01]) ** 2
                    curves += [(width, horizon, seed, tried, error + change, change, math.nan, 1.0)]
                for threshold, value in at.items():
                    low, high = (value if least < value < most else end for end in (0.0, least))
                    low, high = (most, math.inf) if value >= most else (low, high)
                    ends = (min(max(value, least), most), low, high, "" if low == high else "censored")
                    radii += [(width, horizon, seed, threshold, *ends, valid, error, 1.0, error, "found", "drift")]
                replicas += [(width, horizon, seed, rate)]
    columns = ["width", "horizon", "seed", "radius", "error", "change", "threshold", "zero_loss"]
    curve = pd.DataFrame(curves, columns=columns).assign(reading="drift", method="worst_case", stronger=math.nan)
    table = pd.DataFrame(radii, columns=list(COLUMNS))
    trained = pd.DataFrame(replicas, columns=["width", "horizon", "seed", "slowest_rate"])
    judged = judge(curve, trained, radii=table, time_scale=scale)
    config = {"model": {"parameterization": "direct"}}
    return Finding({}, "recurrent", judged, table, curve, trained, pd.DataFrame, config)


def lacking(judged: Judgement) -> list[Missing]:
    return [lack.what for lack in judged.lacks]


@pytest.mark.parametrize("rate", [0.5, 1e-3])
def test_an_unstable_verdict_shows_a_slope_that_is_unstable(rate: float) -> None:
    """Along the horizon at 10 % alone; along the width, at 1 %, the radius shrinks faster, which may not count."""

    def radius(width: int, horizon: int, threshold: float) -> float:
        return threshold**0.5 * horizon ** (-0.3 if threshold == 0.1 else -0.1) * width ** -float(threshold == 0.01)

    finding = found(radius, rate=rate)
    assert (finding.judgement.verdict, finding.judgement.threshold) == (Verdict.UNSTABLE, 0.1)
    axis, slope = finding.deciding
    assert axis == "horizon"
    assert slope.high < finding.judgement.criteria.slope_limit


def test_a_stable_verdict_shows_a_slope_that_is_known() -> None:
    finding = found(most=0.2)
    assert (finding.judgement.verdict, finding.judgement.by_threshold[0.1].inside) == (Verdict.STABLE, False)
    assert finding.judgement.threshold in (0.01, 0.03)
    assert "∞" not in slope_words(finding, asked_sizes([finding]))


def test_what_may_show_unstable_is_advised_though_stable_is_out_of_reach() -> None:
    """The widths do not suffice for stable, and no seeds mend that; to be unstable one slope is enough."""

    def radius(width: int, horizon: int, threshold: float) -> float:
        return threshold**0.5 * width**-0.4

    judged = found(radius, noise=0.05).judgement
    assert judged.verdict is Verdict.INCONCLUSIVE
    (seeds,) = (word.partition("=")[2] for word in judged.extend if word.startswith("training.seeds="))
    assert found(radius, noise=0.05, seeds=int(seeds)).judgement.verdict is Verdict.UNSTABLE


def test_nothing_is_advised_where_one_thing_cannot_be_added() -> None:
    """More seeds part the slope from its limit, and one more width changes the radius however many there are."""
    judged = found(lambda width, horizon, threshold: threshold**0.5 * width**-0.17, noise=0.01).judgement
    assert {Missing.SLOPE, Missing.STEP} <= {*lacking(judged)}
    assert judged.extend == ()


def test_radii_below_those_that_were_tried_are_the_reason() -> None:
    finding = found(least=10.0)
    assert lacking(finding.judgement)[0] is Missing.BOUND
    assert finding.judgement.extend == ()
    assert "radii beyond those that were tried" in gap_of(finding).text
    assert "have no lower bound: radii lie beyond those that were tried" in " ".join(finding.judgement.reasons)


def test_a_memory_without_a_time_scale_within_the_horizons_gets_no_advice() -> None:
    finding = found(scale=math.inf)
    judged = finding.judgement
    assert lacking(judged) == [Missing.TIME_SCALE]
    assert judged.extend == ()
    assert gap_of(finding).text == "at T = 80 the memory does not yet fall as fast as a power of −1/2"
    assert "at the end of its 80 steps the memory does not fall" in judged.reasons[0]


def test_widths_and_seeds_are_advised_without_a_time_scale() -> None:
    """They need none, and one of the two slopes shows unstable."""

    def radius(width: int, horizon: int, threshold: float) -> float:
        return threshold**0.5 / width

    assert found(radius, scale=math.inf, seeds=3).judgement.extend == ("training.seeds=5",)
    assert found(radius, scale=math.inf, widths=(4, 5, 6, 8)).judgement.extend == ("model.width=16,32",)
    assert found(radius, scale=math.inf).judgement.verdict is Verdict.UNSTABLE


def test_widths_that_span_too_little_for_unstable_say_so_and_larger_ones_decide() -> None:
    finding = found(lambda width, horizon, threshold: threshold**0.5 / width, widths=(4, 5, 6, 8))
    assert finding.judgement.verdict is Verdict.INCONCLUSIVE
    assert lacking(finding.judgement)[0] is Missing.WIDTH_SPAN
    assert finding.judgement.extend == ("model.width=16,32",)
    assert gap_of(finding).text.endswith("over widths that span a factor of 2: unstable needs 8")
    noisy = found(lambda width, horizon, threshold: threshold**0.5 * width**-0.21, widths=(4, 5, 6, 8), noise=0.2)
    assert Missing.WIDTH_SPAN not in lacking(noisy.judgement)  # it may not shrink so fast
    wider = found(lambda width, horizon, threshold: threshold**0.5 / width, widths=(4, 5, 6, 8, 16, 32))
    assert wider.judgement.verdict is Verdict.UNSTABLE


def test_a_horizon_that_is_too_short_for_unstable_along_the_widths_says_so() -> None:
    finding = found(lambda width, horizon, threshold: threshold**0.5 / width, rate=1e-3)
    assert "the longest horizon is too short" in gap_of(finding).text
    assert Missing.WIDTH_SPAN not in lacking(finding.judgement)


ALONG_HORIZONS = [each for width in WIDTHS for each in ((width, 10, 0), (width, 20, 1))]
ALONG_WIDTHS = [(2, 80, 0), (4, 80, 1)]


@pytest.mark.parametrize("misses", [ALONG_HORIZONS, ALONG_WIDTHS], ids=["horizons", "widths"])
def test_seeds_that_fit_at_every_size_are_counted(misses: list[tuple[int, int, int]]) -> None:
    finding = found(seeds=6, misses=misses)
    assert lacking(finding.judgement) == [Missing.FITTING_SEEDS]
    assert gap_of(finding).text == "4 of 6 seeds fit at every size: a verdict needs 5"
    assert "seeds that are valid at every size: 4 of 6; a verdict needs the same 5" in finding.judgement.reasons


def test_radii_beyond_the_search_are_named_with_their_size() -> None:
    wide = found(lambda width, horizon, threshold: threshold**0.5 * (50 if width == 16 else 1), most=0.5)
    assert gap_of(wide).text == "at width 16 every radius lies beyond the search"
    assert gap_of(found(most=0.01)).text == "every radius that counts lies beyond the search"


def test_an_error_a_hair_above_the_limit_is_not_called_equal_to_it() -> None:
    every = [(width, horizon, seed) for width in WIDTHS for horizon in HORIZONS for seed in range(5)]
    told = gap_of(found(misses=every, fit=0.00504))
    assert told.text == "no model fits: error above 0.5 % of the zero predictor's, at most 0.5 % counts"
    assert told.several == told.text


@pytest.mark.parametrize(("slope", "needs"), [(0.0, "a verdict"), (-0.6, "stable")])
def test_seeds_that_fit_at_different_widths_are_named_and_stable_alone_needs_the_same_ones(
    slope: float, needs: str
) -> None:
    """Of ten seeds five fit at the largest width alone, and the others at all widths but this one."""
    sizes = [(width, horizon, seed) for width in WIDTHS for horizon in HORIZONS for seed in range(10)]
    misses = [each for each in sizes if (each[0] == WIDTHS[-1]) == (each[2] >= 5)]
    judged = found(lambda w, t, at: at**0.5 * t**slope, seeds=10, misses=misses).judgement
    assert (judged.verdict is Verdict.UNSTABLE) == (slope < 0)
    assert f"seeds that are valid at every size: 0 of 10; {needs} needs the same 5" in judged.reasons


@pytest.mark.parametrize(
    ("decides", "one_way", "words"),
    [
        ("", False, "To decide"),
        ("most", False, "To decide most of what is open"),
        ("", True, "May show unstable, not stable"),
        ("most", True, "May show unstable, not stable, for most of what is open"),
    ],
)
def test_the_words_before_a_command_claim_no_more_than_it_can_show(decides: str, one_way: bool, words: str) -> None:
    assert StudyAnswer(Kind.STABILITY, "", decide="x", decides=decides, one_way=one_way).prompt == words


@pytest.mark.parametrize(
    ("local", "said"),
    [((-0.25, -0.18, -0.12), "still flattens"), ((-0.25, -0.12, -0.18), "still shrinks at the end")],
)
def test_a_radius_flattens_only_where_its_slopes_rise_throughout(local: Sequence[float], said: str) -> None:
    logs = dict(zip(HORIZONS, np.log(2) * np.cumsum([0.0, *local]), strict=True))
    judged = found(lambda width, horizon, threshold: threshold**0.5 * math.exp(logs[horizon])).judgement
    (sentence,) = (reason for reason in judged.reasons if "local slopes" in reason)
    assert f"the radius at 1% {said}: its local slopes in the horizon are −0.25, " in sentence


@pytest.mark.parametrize(("noise", "which"), [(0.06, "intervals"), (0.02, "deciding intervals (99.8 %)")])
def test_it_is_said_which_interval_holds_the_limit(noise: float, which: str) -> None:
    finding = found(lambda width, horizon, threshold: threshold**0.5 * horizon**-0.4, noise=noise)
    axis, slope = finding.deciding
    limit = finding.judgement.criteria.slope_limit
    assert axis == "horizon"
    assert slope.least < limit < slope.most
    assert (slope.low < limit < slope.high) == (which == "intervals")
    assert gap_of(finding).several == f"the {which} hold the limit −0.2"


def test_radii_beyond_the_search_are_told_beside_what_does_not_fit() -> None:
    misses = [(2, 80, seed) for seed in range(5)]
    finding = found(most=0.01, misses=misses)
    assert lacking(finding.judgement)[0] is Missing.FITTING_WIDTHS
    assert gap_of(finding).text.endswith("a slope needs 4; at width 16 every radius lies beyond the search")
    (sentence,) = (reason for reason in finding.judgement.reasons if "beyond the search" in reason)
    assert sentence.startswith("1% and 3% and 10% lie beyond the search: along an axis every radius there is larger")


@pytest.mark.parametrize("seeds", [2, 5])
@pytest.mark.parametrize("unfit", [20, 80])
def test_no_sizes_are_advised_where_no_model_fits_at_a_horizon(unfit: int, seeds: int) -> None:
    """Of the longest horizon, width 16 alone was trained; other sizes give no slope in the horizon."""
    finding = found(
        seeds=seeds,
        skips=[(width, 80) for width in WIDTHS[:-1]],
        misses=[*product(WIDTHS, (unfit,), range(seeds))],
    )
    judged = finding.judgement
    assert judged.extend == ()
    assert (Missing.TOP_WIDTHS in lacking(judged)) == (unfit != 80)
    assert judged.reasons[0].startswith(f"no model is valid at horizon {unfit} (error without perturbation at most")
    assert "by longer training or another learning rate" in judged.reasons[0]
    if (unfit, seeds) == (80, 5):
        assert gap_of(finding).text == "0 of 1 width fits at T = 80: a slope needs 4"


def test_larger_widths_are_advised_in_the_place_of_those_that_do_not_fit() -> None:
    """The estimates are on the side of stable, so a longer horizon alone decides nothing."""
    misses = [*product(WIDTHS[:2], HORIZONS, range(5))]
    judged = found(noise=0.03, misses=misses).judgement
    assert lacking(judged) == [Missing.FITTING_WIDTHS, Missing.SLOPE]
    assert judged.extend == ("model.width=8,16,32,64 task.horizon=10,20,40,80,160",)
    assert not shows_unstable_alone(judged.lacks)
    assert found(noise=0.015, misses=misses).judgement.extend == ("model.width=32,64",)
    assert found(noise=0.015, misses=misses, widths=(*WIDTHS, 32, 64)).judgement.verdict is Verdict.STABLE


def power(slope: float) -> Radius:
    return lambda width, horizon, threshold: threshold**0.5 * horizon**slope


def test_no_longer_horizon_is_advised_for_a_slope_in_the_width() -> None:
    """The largest widths do not fit, which no trials are known to mend; a slope below its limit may show unstable."""
    misses = [*product(WIDTHS[2:], HORIZONS, range(5))]
    flat, steep = (found(power(slope), noise=0.05, misses=misses).judgement for slope in (-0.18, -0.3))
    assert lacking(flat) == [Missing.FITTING_WIDTHS, Missing.SLOPE]
    assert flat.lacks[1].overrides
    assert flat.extend == ()
    assert steep.extend
    assert shows_unstable_alone(steep.lacks)


@pytest.mark.parametrize("fit", [math.inf, 1e307])
def test_an_error_that_no_percentage_can_say_is_not_finite(fit: float) -> None:
    every = [(width, horizon, seed) for width in WIDTHS for horizon in HORIZONS for seed in range(5)]
    assert gap_of(found(misses=every, fit=fit)).text == "no model has a finite error"
