"""The sentences of a judgement."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise

from memsweep.config.grid.time_scale import USABLE_SCALES
from memsweep.config.schema.trial import METRIC, SELF
from memsweep.data.levels import SOLVED
from memsweep.stability.verdict.judgement import (
    SMALLEST_GRID,
    SMALLEST_SEEDS,
    STEP_LIMIT,
    STEP_NOISE,
    Verdict,
)
from memsweep.stability.verdict.lacks import FLAT
from memsweep.stability.verdict.radius import VALID_ERROR
from memsweep.stability.verdict.trend import LONG_RANGE, RESOLUTION, Slope, alike, rounded
from memsweep.stability.verdict.weighed import Evidence, percents

_SIGN = re.compile(r"(?<![\w-])-(?=[\d.])")  # of a number; a hyphen stands between letters
VALID = {
    METRIC: f"error rate without perturbation at most {SOLVED:.0%} of the way from the right answers to chance",
    SELF: "outputs that are finite and depend on the inputs",
}
"""Of which models a radius counts, by readings of another reference than the target."""
BY = "(by the interval that decides)"
"""It is wider than that of 95 % which tables print: a study is looked at again and again."""


def reasons(evidence: Evidence) -> tuple[str, ...]:
    """Why the verdict is what it is, one sentence each, what is missing first."""
    sentences = (
        *_gaps(evidence),
        *_slopes(evidence),
        *_flattening(evidence),
        *_growth(evidence),
        *_step(evidence),
        *_limits(evidence),
        *_asked(evidence),
    )
    return tuple(_SIGN.sub("−", sentence) for sentence in sentences)


def _gaps(evidence: Evidence) -> Iterator[str]:
    limit = VALID.get(evidence.reading, f"error without perturbation at most {VALID_ERROR:.1%} of the zero predictor's")
    unfit = evidence.unfit if evidence.unfit != evidence.trained_horizons else ()
    if unfit:
        yield (
            f"no model is valid at horizon {_listed(unfit)} ({limit}): other sizes give no slope in the horizon before "
            "one is, by longer training or another learning rate"
        )
    if len(evidence.top_widths) < min(SMALLEST_GRID, len(evidence.trained_widths)) and evidence.fitting_once:
        yield (
            f"widths trained at horizon {evidence.top_horizon}: {_listed(evidence.top_widths)}; a width slope needs "
            f"{SMALLEST_GRID} of them"
        )
    elif len(evidence.widths) < SMALLEST_GRID:
        yield (
            f"widths at horizon {evidence.top_horizon} with {SMALLEST_SEEDS} valid seeds: {_listed(evidence.widths)} "
            f"({limit}); a width slope needs {SMALLEST_GRID} of them"
        )
    if len(evidence.horizons) < SMALLEST_GRID:
        yield (
            f"horizons of the largest width that is valid at all of them, with the same {SMALLEST_SEEDS} seeds: "
            f"{_listed(evidence.horizons)}; a horizon slope needs {SMALLEST_GRID}"
        )
    elif evidence.time_scale == math.inf:
        yield (
            f"at the end of its {evidence.top_horizon} steps the memory does not fall as fast as a power of -1/2, so "
            f"its time scale is not known; a limit slope needs {SMALLEST_GRID} horizons of {USABLE_SCALES} time scales"
        )
    elif len(evidence.usable) < SMALLEST_GRID:
        steps = "step" if evidence.time_scale == 1 else "steps"
        yield (
            f"horizons of at least {USABLE_SCALES} time scales of the memory ({evidence.time_scale:.3g} {steps}): "
            f"{_listed(evidence.usable)}; a limit slope needs {SMALLEST_GRID}, and the slope over "
            f"T = {evidence.horizons[0]}…{evidence.horizons[-1]} says nothing of the limit"
        )
    elif max(evidence.usable) < LONG_RANGE * min(evidence.usable):
        yield (
            f"the horizons span a factor of {max(evidence.usable) / min(evidence.usable):.3g}; a limit slope needs "
            f"{LONG_RANGE:g}"
        )
    if evidence.seeds < SMALLEST_SEEDS:
        yield f"seeds: {evidence.seeds}; a verdict needs {SMALLEST_SEEDS}"
    elif evidence.complete_seeds < SMALLEST_SEEDS and min(evidence.fitting) >= SMALLEST_GRID:
        same = "a verdict needs the same" if evidence.verdict is Verdict.INCONCLUSIVE else "stable needs the same"
        count = f"{evidence.complete_seeds} of {evidence.seeds}"
        yield f"seeds that are valid at every size: {count}; {same} {SMALLEST_SEEDS}"
    if evidence.narrow and evidence.verdict is Verdict.INCONCLUSIVE:
        span = evidence.widths[-1] / evidence.widths[0]
        yield f"the widths span a factor of {span:.3g}; to show that a radius shrinks too fast takes {LONG_RANGE:g}"
    if (evidence.sequences or math.inf) < (evidence.needed_sequences or 0):
        yield (
            f"test sequences: {evidence.sequences}; a threshold of {percents([min(evidence.by_threshold)])} needs "
            f"{evidence.needed_sequences}"
        )


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values)) or "none"


def _slopes(evidence: Evidence) -> Iterator[str]:
    said = [*_along(evidence)]
    yield from said
    if evidence.beyond and not any(evidence.beyond in sentence for sentence in said):
        yield (
            f"{evidence.beyond}: along an axis every radius there is larger than those that were tried "
            "(perturbation.radii)"
        )


def _along(evidence: Evidence) -> Iterator[str]:
    """The slopes of each axis."""
    limit = evidence.criteria.slope_limit
    for axis in ("width", "horizon"):
        slopes = evidence.slopes(axis)
        if not (slopes and all(slope.available for slope in slopes)):
            continue
        if any(not (math.isfinite(slope.low) or math.isfinite(slope.high)) for slope in slopes) and _alike(slopes):
            yield f"the seeds do not differ, which is no evidence: the slope of the radius with {axis} has no interval"
            continue
        power = f"{'T' if axis == 'horizon' else 'm'}^{limit:g}"
        highest, lowest = max(slope.most for slope in slopes), min(slope.least for slope in slopes)
        if highest < limit:
            yield f"{evidence.where} the radius shrinks faster than {power}: slope at most {rounded(highest)} {BY}"
        elif lowest > limit:
            least = f"{rounded(lowest)} {BY}{_below(evidence, axis)}"
            yield f"{evidence.where} the radius shrinks no faster than {power}: slope at least {least}"
        elif any(slope.unbounded for slope in slopes):
            ends = "have no lower bound" if math.isinf(highest) else f"are at most {rounded(highest)} {BY}"
            yield (
                f"slopes of the radius with {axis} {ends}: radii lie beyond those that were tried (perturbation.radii)"
            )
        else:
            beyond = f"; {evidence.beyond}" if evidence.beyond else ""
            between = f"{rounded(lowest)} and {rounded(highest)} {BY}"
            yield f"the slope of the radius with {axis} lies between {between}{beyond}"


def _alike(slopes: list[Slope]) -> bool:
    return any(alike(slope) and math.isfinite(slope.estimate) for slope in slopes)


def _below(evidence: Evidence, axis: str) -> str:
    """Where a radius that is stable still shrinks, and by how much."""
    each = evidence.by_threshold.items()
    slopes = {
        t: trends.horizon.limit if axis == "horizon" else trends.along_width for t, trends in each if trends.inside
    }
    found = [f"{slope} at {percents([threshold])}" for threshold, slope in slopes.items() if slope.high < 0]
    return f"; it does shrink: {', '.join(found)}" if found else ""


def _flattening(evidence: Evidence) -> Iterator[str]:
    """Said where the radius still falls at the end of the range, but less than at its start."""
    if evidence.verdict is Verdict.UNSTABLE:
        return
    for threshold, trends in evidence.by_threshold.items():
        local = trends.horizon.local
        if local and local[-1] < FLAT and local[0] < local[-1]:
            rises = all(later > earlier - RESOLUTION for earlier, later in pairwise(local))
            yield (
                f"the radius at {percents([threshold])} still {'flattens' if rises else 'shrinks at the end'}: its "
                f"local slopes in the horizon are {', '.join(map(rounded, local))}"
            )
            return


def _growth(evidence: Evidence) -> Iterator[str]:
    if evidence.growth.available and evidence.verdict is not Verdict.UNSTABLE:
        growth, power = evidence.growth, f"m^{evidence.criteria.growth_limit:g}"
        what, least, most = "the change at a small radius", rounded(growth.least), rounded(growth.most)
        if growth.most <= evidence.criteria.growth_limit:
            yield f"{what} grows no faster than {power} with width: slope at most {most} {BY}"
        elif growth.least > evidence.criteria.growth_limit:
            yield f"{what} grows faster than {power} with width: slope at least {least} {BY}"
        else:
            yield f"{what} may grow faster than {power} with width: its slope lies between {least} and {most} {BY}"


def _step(evidence: Evidence) -> Iterator[str]:
    """Said where the widths do not suffice, or it is open whether they do."""
    steps = [each.step for each in evidence.inside if each.step.available]
    if not steps or evidence.verdict is Verdict.UNSTABLE or all(each.suffices for each in evidence.inside):
        return
    least = min(steps, key=lambda step: step.estimate if step.estimate < STEP_LIMIT else step.low)
    what = "changes the radius" if least.estimate < STEP_LIMIT else "may change the radius"
    yield (
        f"one more width {what} at horizon {evidence.top_horizon}: log radius by {least} (at least {STEP_LIMIT:g}, its "
        f"interval above {STEP_NOISE:g}), so the widths up to {evidence.widths[-1]} do not show what wider models do"
    )


def _limits(evidence: Evidence) -> Iterator[str]:
    if evidence.limited:
        where = " (linearized at rest)" if evidence.nonlinear else ""
        yield (
            f"horizon-limited: the slowest mode{where} spans the horizon, so the width slope cannot show instability"
        )


def _up(value: float) -> str:
    """With two digits, and not below the value."""
    text = f"{value:.2g}"
    if not 0.0 < float(text) < value * (1 - 1e-9):
        return text
    return f"{value + 0.5 * 10.0 ** (math.floor(math.log10(value)) - 1):.2g}"


def _asked(evidence: Evidence) -> Iterator[str]:
    """Up to which width, horizon and fit a verdict was asked: beyond it, it says nothing."""
    if evidence.verdict is Verdict.INCONCLUSIVE or not evidence.widths:
        return
    asked = f"asked up to width {evidence.widths[-1]} and horizon {evidence.top_horizon}"
    if evidence.reading == SELF:
        yield f"{asked}, of what moves the function: it says nothing about a target"
    elif evidence.reading == METRIC:
        yield f"{asked}, of models whose error rate is at most {_up(evidence.fit_error)} of that at chance"
    else:
        yield (
            f"{asked}, of models whose error without perturbation is at most {_up(evidence.fit_error)} of the zero "
            "predictor's"
        )
