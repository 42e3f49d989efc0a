"""The evidence of one verdict in a few words: a slope with its interval, how near the limit is, what is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from memsweep.config.schema.trial import METRIC, SELF, TARGET
from memsweep.data.levels import SOLVED
from memsweep.errors import counted
from memsweep.report.analysis.contents import Finding
from memsweep.report.naming.numbers import figure, joined, limit, percent, show, slope_text
from memsweep.report.rows.verdicts import LETTERS
from memsweep.stability.verdict.judgement import (
    GROWTH_LIMIT,
    SMALLEST_GRID,
    SMALLEST_SEEDS,
    USABLE_SCALES,
    Verdict,
)
from memsweep.stability.verdict.radius import VALID_ERROR
from memsweep.stability.verdict.trend import DECISION, LONG_RANGE, Slope, Trend, alike

NEAR = 0.05
"""An interval whose end is nearer to the limit than this is said to be near it."""


@dataclass(frozen=True)
class Gap:
    """Why a verdict is missing.

    Attributes:
        text: of this condition.
        several: of several conditions that lack the same, each with numbers of its own.
    """

    text: str
    several: str


def power(axis: str, slope: Slope) -> str:
    """``T^−0.60 [−0.66, −0.55]``."""
    return f"{LETTERS[axis]}^{slope_text(slope)}"


def facing(finding: Finding) -> float:
    """The end of the 95 % interval that faces the limit, of the slope that decides."""
    _, slope = finding.deciding
    return slope.high if finding.judgement.verdict is Verdict.UNSTABLE else slope.low


def nearest(findings: Sequence[Finding]) -> Finding:
    """The finding of one verdict whose slope is nearest to the limit."""
    return min(findings, key=lambda finding: abs(facing(finding) - finding.judgement.criteria.slope_limit))


def slope_words(finding: Finding) -> str:
    """``T^−0.21 [−0.22, −0.20], 0.003 from the limit −0.2``."""
    edge, distance = finding.judgement.criteria.slope_limit, math.inf
    if math.isfinite(end := facing(finding)):
        distance = abs(end - edge)
    near = f", {figure(distance, 1)} from the limit {limit(edge)}" if distance < NEAR else ""
    return f"{power(*finding.deciding)}{_over(finding)}{near}"


def _over(finding: Finding) -> str:
    """`` over T = 100 to 400``: the sizes of the slope, where they are not all that were trained."""
    axis, _ = finding.deciding
    trends = finding.judgement.by_threshold[finding.judgement.threshold]
    trend: Trend = trends.horizon if axis == "horizon" else trends.width
    fitted = trend.fitted if trend.limit.available else trend.x
    trained = finding.radii[axis]
    if not fitted or (fitted[0], fitted[-1]) == (trained.min(), trained.max()):
        return ""
    return f" over {'T =' if axis == 'horizon' else 'widths'} {show(fitted[0])} to {show(fitted[-1])}"


def errors_of(finding: Finding) -> str:
    """``at 1 % alone``: the thresholds at which a radius is unstable, where it is not at all of them."""
    at = finding.judgement.unstable_at
    if not at or len(at) == len(finding.judgement.by_threshold):
        return ""
    return f"at {joined([percent(threshold) for threshold in at])} alone"


def gap_of(finding: Finding) -> Gap:
    """What an undecided verdict lacks most: what was not asked first, then fits, then what the slopes leave open."""
    return _unasked(finding) or _unfitted(finding) or _too_short(finding) or _open(finding)


def _unasked(finding: Finding) -> Gap | None:
    radii = finding.radii
    needs = (
        ("seed", "a verdict", SMALLEST_SEEDS),
        ("horizon", "a slope in the horizon", SMALLEST_GRID),
        ("width", "stable", SMALLEST_GRID),
    )
    few = [
        f"{counted(count, axis)}: {what} needs {least}"
        for axis, what, least in needs
        if (count := radii[axis].nunique()) < least
    ]
    return _alike("; ".join(few)) if few else None


_NO_FIT = {
    TARGET: "no model fits: error {} of the zero predictor's, at most " + f"{percent(VALID_ERROR)} counts",
    METRIC: "no model solves the task: error rate {} of that at chance, at most " + f"{percent(SOLVED)} counts",
    SELF: "no model answers: the outputs do not depend on the inputs",
}


def _unfitted(finding: Finding) -> Gap | None:
    radii = finding.radii
    if not radii["valid"].astype(bool).any():
        error = float(radii["fit"].min())
        text = _NO_FIT[finding.reference]
        return Gap(text.format(percent(error)), text.format(f"{percent(error)} or more"))
    trends = next(iter(finding.judgement.by_threshold.values()))
    for axis, trend in (("width", trends.width), ("horizon", trends.horizon)):
        if len(trend.x) < SMALLEST_GRID:
            return _alike(_few_fits(radii, axis))
    return None


def _few_fits(radii: pd.DataFrame, axis: str) -> str:
    """``2 of 4 widths fit at T = 768: a slope needs 4``."""
    of, top = radii[axis].nunique(), radii["horizon"].max()
    rows = radii[radii["horizon"] == top] if axis == "width" else radii
    seeds = rows[rows["valid"].astype(bool)].groupby(["width", "horizon"])["seed"].nunique()
    fit = seeds[seeds >= SMALLEST_SEEDS].index.get_level_values(axis).nunique()
    if fit >= SMALLEST_GRID:  # each of them fits, and not with the same seeds
        return f"too few valid fits: fewer than {SMALLEST_GRID} of {of} {axis}s with the same seeds"
    at = f" at T = {show(float(top))}" if axis == "width" else ""
    return f"{fit} of {counted(of, axis)} fit{at}: a slope needs {SMALLEST_GRID}"


def _too_short(finding: Finding) -> Gap | None:
    """Horizons that give no limit slope."""
    horizon: Trend = next(iter(finding.judgement.by_threshold.values())).horizon
    if len(horizon.fitted) < SMALLEST_GRID:
        found = counted(len(horizon.fitted), "horizon")
        return _alike(f"{found} of {USABLE_SCALES} time scales or more: a limit slope needs {SMALLEST_GRID}")
    span = horizon.fitted[-1] / horizon.fitted[0]
    return (
        _alike(f"the horizons span a factor of {figure(span)}: stable needs {LONG_RANGE:g}")
        if span < LONG_RANGE
        else None
    )


def _open(finding: Finding) -> Gap:
    """What slopes with intervals leave open."""
    (axis, slope), edge = finding.deciding, finding.judgement.criteria.slope_limit
    if alike(slope) and not math.isfinite(slope.low):
        return _alike("the seeds do not differ: no interval")
    near = abs(slope.estimate - edge) < NEAR
    several = f"slopes too near to the limit {limit(edge)}" if near else f"the intervals hold the limit {limit(edge)}"
    if slope.low <= edge <= slope.high:
        steeper = sum(high < edge for _, high in slope.by_seed.values())
        seeds = f"{steeper} of {counted(len(slope.by_seed), 'seed')} {'is' if steeper == 1 else 'are'} steeper"
        return Gap(f"{power(axis, slope)} holds the limit {limit(edge)}; {seeds}", several)
    if slope.least <= edge <= slope.most:
        wide = f"has a deciding interval ({100 * DECISION:g} %) that holds the limit"
        said = "is too near to the limit" if near else wide
        return Gap(f"{power(axis, slope)} {said} {limit(edge)}", several)
    inside = [trends for trends in finding.judgement.by_threshold.values() if trends.inside]
    if not inside:
        return _alike("every radius lies beyond the search")
    if not all(trends.suffices for trends in inside):
        return _alike("one more width may change the radius")
    if not finding.judgement.growth.high <= GROWTH_LIMIT:
        return _alike("the change at a small radius may grow with the width")
    return Gap(f"{power(axis, slope)} decides nothing alone", several)


def _alike(text: str) -> Gap:
    return Gap(text, text)
