"""The evidence of one verdict in a few words: a slope with its interval, how near the limit is, what is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memsweep.config.grid.time_scale import USABLE_SCALES
from memsweep.config.schema.trial import METRIC, SELF, TARGET
from memsweep.errors import counted
from memsweep.report.analysis.contents import Finding
from memsweep.report.naming.numbers import figure, joined, limit, percent, show, slope_text
from memsweep.report.rows.verdicts import LETTERS
from memsweep.stability.verdict.judgement import Lack, Missing, Verdict
from memsweep.stability.verdict.lacks import TRAINED
from memsweep.stability.verdict.trend import DECISION, Slope, Trend

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


def slope_words(finding: Finding, asked: Mapping[str, tuple[float, float]]) -> str:
    """``T^−0.21 [−0.22, −0.20], 0.003 from the limit −0.2``; ``asked``: the ends of the sizes that are said."""
    edge, distance = finding.judgement.criteria.slope_limit, math.inf
    if math.isfinite(end := facing(finding)):
        distance = abs(end - edge)
    near = f", {figure(distance, 1)} from the limit {limit(edge)}" if distance < NEAR else ""
    return f"{power(*finding.deciding)}{_over(finding, asked)}{near}"


def _over(finding: Finding, asked: Mapping[str, tuple[float, float]]) -> str:
    """`` over T = 100 to 400``: the sizes of the slope, where they are not all that are said."""
    axis, _ = finding.deciding
    trends = finding.judgement.by_threshold[finding.judgement.threshold]
    trend: Trend = trends.horizon if axis == "horizon" else trends.width
    fitted = trend.fitted if trend.limit.available else trend.x
    if not fitted or (fitted[0], fitted[-1]) == asked.get(axis):
        return ""
    return f" over {'T =' if axis == 'horizon' else 'widths'} {show(fitted[0])} to {show(fitted[-1])}"


def errors_of(finding: Finding) -> str:
    """``at 1 % alone``: the thresholds at which a radius is unstable, where it is not at all of them."""
    at = finding.judgement.unstable_at
    if not at or len(at) == len(finding.judgement.by_threshold):
        return ""
    return f"at {joined([percent(threshold) for threshold in at])} alone"


_FOR_STABLE = {Missing.WIDTHS, Missing.TOP_WIDTHS, Missing.FITTING_WIDTHS, Missing.STEP, Missing.GROWTH}
"""What a verdict lacks to be stable, and not to be unstable by its slope in the horizon."""


def gap_of(finding: Finding) -> Gap:
    """What an undecided verdict lacks most: what was not trained first, then fits, then what the slopes leave open.

    A slope in the horizon that is steeper than the limit, but for its deciding interval, comes before what *stable*
    lacks.
    """
    lacks = finding.judgement.lacks
    (axis, slope), edge = finding.deciding, finding.judgement.criteria.slope_limit
    steep = axis == "horizon" and slope.high < edge <= slope.most
    if steep and {lack.what for lack in lacks} <= {Missing.SLOPE, *_FOR_STABLE}:
        return _slope_gap(finding)
    first = [_few(lack, finding) for lack in lacks if lack.what in (*TRAINED, Missing.FIT)]
    if first:
        return Gap("; ".join(gap.text for gap in first), "; ".join(gap.several for gap in first))
    gap = _slope_gap(finding) if lacks[0].what is Missing.SLOPE else _few(lacks[0], finding)
    outside = [_few(lack, finding).text for lack in lacks[1:] if lack.what is Missing.RADIUS]
    return Gap("; ".join([gap.text, *outside]), "; ".join([gap.several, *outside]))


_WORDS = {
    Missing.SEEDS: "{seeds}: a verdict needs {need:g}",
    Missing.HORIZONS: "{horizons}: a slope in the horizon needs {need:g}",
    Missing.WIDTHS: "{widths}: stable needs {need:g}",
    Missing.TOP_WIDTHS: "{have} of {of} widths trained at T = {longest}: stable needs {need:g}",
    Missing.FITTING_WIDTHS: "{have} of {most} at T = {longest}: a slope needs {need:g}",
    Missing.FITTING_HORIZONS: "{have} of {of} horizons fit: a slope needs {need:g}",
    Missing.FITTING_SEEDS: "{have} of {of} seeds fit at every size: a verdict needs {need:g}",
    Missing.TIME_SCALE: "at T = {longest} the memory does not yet fall as fast as a power of −1/2",
    Missing.LONG_HORIZONS: f"{{horizons}} of {USABLE_SCALES} time scales or more: a limit slope needs {{need:g}}",
    Missing.HORIZON_SPAN: "the horizons span a factor of {have}: stable needs {need:g}",
    Missing.SPREAD: "the seeds do not differ: no interval",
    Missing.BOUND: "radii beyond those that were tried leave a slope without a bound",
    Missing.WIDTH_SPAN: "the radius shrinks too fast over widths that span a factor of {have}: unstable needs {need:g}",
    Missing.STEP: "one more width may change the radius",
    Missing.GROWTH: "the change at a small radius may grow too fast with the width",
}


_NO_FIT = {
    TARGET: "no model fits: error {least} of the zero predictor's, at most {need} counts",
    METRIC: "no model solves the task: error rate {least} of that at chance, at most {need} counts",
    SELF: "no model answers: its outputs do not depend on the inputs, or are not finite",
}


def _few(lack: Lack, finding: Finding) -> Gap:
    """``1 width: stable needs 4``."""
    if lack.what is Missing.FIT:
        if math.isinf(100.0 * lack.have):
            return _alike("no model has a finite error")
        have, need = percent(lack.have), percent(lack.need)
        least = f"above {need}" if have == need else f"{have} or more"  # by a hair
        return _alike(_NO_FIT[finding.reference].format(least=least, need=need))
    if lack.what is Missing.RADIUS:
        return _alike(_beyond(finding))
    counts = {f"{noun}s": counted(int(lack.have), noun) for noun in ("seed", "horizon", "width")}
    counts["most"] = "1 width fits" if lack.of == 1 else f"{lack.of} widths fit"
    longest = show(float(finding.radii["horizon"].max()))
    return _alike(
        _WORDS[lack.what].format(have=figure(lack.have), need=lack.need, of=lack.of, longest=longest, **counts)
    )


def _beyond(finding: Finding) -> str:
    """Where the radii lie beyond the search, at every threshold along one axis at least."""
    trends, longest = finding.judgement.by_threshold.values(), show(float(finding.radii["horizon"].max()))
    along = all(each.horizon.outside for each in trends), all(each.width.outside for each in trends)
    where = {
        (True, False): f"at width {finding.judgement.width} every radius lies",
        (False, True): f"at T = {longest} every radius lies",
        (True, True): "every radius that counts lies",
        (False, False): "along one of the axes every radius lies",
    }
    return f"{where[along]} beyond the search"


def _slope_gap(finding: Finding) -> Gap:
    """What slopes with intervals leave open."""
    (axis, slope), edge = finding.deciding, finding.judgement.criteria.slope_limit
    near, at = abs(slope.estimate - edge) < NEAR, limit(edge)
    close = f"slopes too near to the limit {at}"
    if slope.low <= edge <= slope.high:
        steeper = sum(high < edge for _, high in slope.by_seed.values())
        seeds = f"{steeper} of {counted(len(slope.by_seed), 'seed')} {'is' if steeper == 1 else 'are'} steeper"
        said = f"{power(axis, slope)} holds the limit {at}; {seeds}"
        return Gap(said, close if near else f"the intervals hold the limit {at}")
    if slope.least <= edge <= slope.most:
        level = f"{100 * DECISION:g} %"
        wide = f"has a deciding interval ({level}) that holds the limit"
        said = f"{power(axis, slope)} {'is too near to the limit' if near else wide} {at}"
        return Gap(said, close if near else f"the deciding intervals ({level}) hold the limit {at}")
    if axis == "width" and finding.judgement.horizon_limited:
        short = "the longest horizon is too short to tell what is slow from what is unstable"
        return Gap(f"{power(axis, slope)}: {short}", short)
    return Gap(f"{power(axis, slope)} decides nothing alone", "slopes that decide nothing alone")


def _alike(text: str) -> Gap:
    return Gap(text, text)
