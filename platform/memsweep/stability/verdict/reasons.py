"""The sentences of a judgement, and what would decide where it is inconclusive."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from memsweep.config.schema.trial import DRIFT, METRIC, SELF
from memsweep.data.levels import SOLVED
from memsweep.stability.verdict.judgement import (
    GOOD_GRID,
    GROWTH_LIMIT,
    SMALLEST_GRID,
    SMALLEST_SEEDS,
    STEP_LIMIT,
    STEP_NOISE,
    USABLE_SCALES,
    Criteria,
    Trends,
    Verdict,
)
from memsweep.stability.verdict.radius import VALID_ERROR
from memsweep.stability.verdict.trend import LONG_RANGE, Slope, Trend, alike, rounded, seeds_needed

FLAT = -0.1
"""A local slope above this is far enough from the usual limit for a limit slope with an interval of usual size."""
VALID = {
    METRIC: f"error rate without perturbation at most {SOLVED:.0%} of the way from the right answers to chance",
    SELF: "outputs that depend on the inputs",
}
"""Of which models a radius counts, by readings of another reference than the target."""
BY = "(by the interval that decides)"
"""It is wider than that of 95 % which tables print: a study is looked at again and again."""


@dataclass(frozen=True)
class Evidence:
    """What a verdict was made from.

    Attributes:
        verdict, by_threshold, growth, small_radius, limited, nonlinear, time_scale, criteria: as in ``rule.judge`` and
            ``Judgement``.
        widths: valid at the longest horizon.
        horizons: valid at the width of the horizon slope.
        width, fit_error: as in ``Judgement``.
        trained_widths: how many were trained.
        top_horizon: the longest that was trained.
        seeds: how many were trained.
        complete_seeds: valid in every cell that enters.
        reading: what the radii are read from.
        sequences, needed_sequences: test sequences of a seed, and those that tell the smallest threshold; None where
            that is not known, or no matter.
    """

    verdict: Verdict
    by_threshold: Mapping[float, Trends]
    growth: Slope
    small_radius: float
    limited: bool
    nonlinear: bool
    widths: tuple[int, ...]
    horizons: tuple[int, ...]
    width: int | None
    fit_error: float
    trained_widths: int
    top_horizon: int
    time_scale: float | None
    seeds: int
    complete_seeds: int
    criteria: Criteria
    reading: str = DRIFT
    sequences: int | None = None
    needed_sequences: int | None = None

    @property
    def usable(self) -> tuple[int, ...]:
        """The horizons that enter a limit slope."""
        return tuple(horizon for horizon in self.horizons if horizon >= USABLE_SCALES * (self.time_scale or 0.0))

    def trends(self, axis: str) -> list[Trend]:
        """At every threshold, along ``horizon`` or ``width``."""
        return [getattr(trends, axis) for trends in self.by_threshold.values()]

    def slopes(self, axis: str) -> list[Slope]:
        """The deciding slopes at every threshold whose radii are inside of the search."""
        return [each.horizon.limit if axis == "horizon" else each.along_width for each in self.inside]

    @property
    def inside(self) -> list[Trends]:
        """Those of the thresholds whose radii are inside of the search."""
        return [each for each in self.by_threshold.values() if each.inside]

    @property
    def beyond(self) -> str:
        """The thresholds that were left out, because all radii lie beyond the search; empty without one."""
        out = [threshold for threshold, trends in self.by_threshold.items() if not trends.inside]
        return f"{_percents(out)} {'lies' if len(out) == 1 else 'lie'} beyond the search" if out else ""

    @property
    def where(self) -> str:
        """The thresholds that decide."""
        if not self.beyond:
            return "at every threshold"
        return f"at {_percents(t for t, trends in self.by_threshold.items() if trends.inside)} ({self.beyond})"


def _percents(thresholds: Iterable[float]) -> str:
    return " and ".join(f"{100 * threshold:.3g}%" for threshold in thresholds)


def reasons(evidence: Evidence) -> tuple[str, ...]:
    """Why the verdict is what it is, one sentence each, what is missing first."""
    return (
        *_gaps(evidence),
        *_slopes(evidence),
        *_flattening(evidence),
        *_growth(evidence),
        *_step(evidence),
        *_limits(evidence),
        *_asked(evidence),
    )


def advice(evidence: Evidence) -> tuple[str, ...]:
    """Overrides of ``memsweep extend``, each of which would decide by itself as far as can be foreseen."""
    if evidence.verdict is not Verdict.INCONCLUSIVE:
        return ()
    found = [f"task.horizon={','.join(map(str, _longer(evidence)))}"] if _horizon_undecided(evidence) else []
    if evidence.trained_widths < SMALLEST_GRID:
        return ()  # no horizon and no seed gives a slope in width
    if evidence.seeds < SMALLEST_SEEDS:
        return (f"training.seeds={SMALLEST_SEEDS}",)
    if evidence.complete_seeds < SMALLEST_SEEDS:
        return ()  # what the models lack is the fit, not their number
    seeds = _seeds(evidence)
    return (*found, f"training.seeds={seeds}") if seeds and _limit_known(evidence) else tuple(found)


def _limit_known(evidence: Evidence) -> bool:
    return all(slope.available for slope in evidence.slopes("horizon"))


def _horizon_undecided(evidence: Evidence) -> bool:
    # comparisons with nan are False: an unavailable slope is undecided
    return bool(evidence.horizons) and not all(
        slope.least > evidence.criteria.slope_limit for slope in evidence.slopes("horizon")
    )


def _longer(evidence: Evidence) -> list[int]:
    """The horizons that would decide: each twice the one before.

    With them, GOOD_GRID horizons are usable, they span enough for a limit slope, and the last local slope has fallen
    below FLAT, if it goes on halving as the horizon doubles.
    """
    usable = evidence.usable
    needed = LONG_RANGE * min(usable, default=evidence.top_horizon)
    last = min((trend.local[-1] for trend in evidence.trends("horizon") if trend.local), default=math.nan)
    if _limit_known(evidence) and last < FLAT:
        needed = max(needed, evidence.top_horizon * last / FLAT)
    count = max(1, GOOD_GRID - len(usable), math.ceil(math.log2(needed / evidence.top_horizon)))
    longer = [evidence.top_horizon * 2**power for power in range(1, 64)]
    # a memory that is longer than all horizons leaves the first of them unusable, too
    first = next(place for place, horizon in enumerate(longer) if horizon >= USABLE_SCALES * (evidence.time_scale or 0))
    return longer[: count + first]


def _seeds(evidence: Evidence) -> int | None:
    """Seeds that would part every undecided slope from its limit; None where nothing is undecided, or too many."""
    slope_limit = evidence.criteria.slope_limit
    limits = [(slope, slope_limit) for axis in ("horizon", "width") for slope in evidence.slopes(axis)]
    undecided = [(slope, limit) for slope, limit in limits if slope.least <= limit < slope.most]
    growth, steps = evidence.growth, [each.step for each in evidence.inside]
    # these are held against their limits by the 95 % interval
    undecided += [(_printed(growth), GROWTH_LIMIT)] if growth.low <= GROWTH_LIMIT < growth.high else []
    undecided += [
        (_printed(step), STEP_NOISE) for step in steps if step.low <= STEP_NOISE and step.estimate >= STEP_LIMIT
    ]
    counts = [seeds_needed(slope, limit, evidence.complete_seeds) for slope, limit in undecided]
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None


def _printed(slope: Slope) -> Slope:
    return Slope(slope.estimate, slope.low, slope.high)


def _gaps(evidence: Evidence) -> Iterator[str]:
    limit = VALID.get(evidence.reading, f"error without perturbation at most {VALID_ERROR:.1%} of the zero predictor's")
    if len(evidence.widths) < SMALLEST_GRID:
        yield (
            f"widths at horizon {evidence.top_horizon} with {SMALLEST_SEEDS} valid seeds: {_listed(evidence.widths)} "
            f"({limit}); a width slope needs {SMALLEST_GRID} of them"
        )
    if len(evidence.horizons) < SMALLEST_GRID:
        yield (
            f"horizons of the largest width that is valid at all of them, with {SMALLEST_SEEDS} seeds: "
            f"{_listed(evidence.horizons)}; a horizon slope needs {SMALLEST_GRID}"
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
    if (evidence.sequences or math.inf) < (evidence.needed_sequences or 0):
        yield (
            f"test sequences: {evidence.sequences}; a threshold of {_percents([min(evidence.by_threshold)])} needs "
            f"{evidence.needed_sequences}"
        )


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values)) or "none"


def _slopes(evidence: Evidence) -> Iterator[str]:
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
    found = [f"{slope} at {_percents([threshold])}" for threshold, slope in slopes.items() if slope.high < 0]
    return f"; it does shrink: {', '.join(found)}" if found else ""


def _flattening(evidence: Evidence) -> Iterator[str]:
    """Said where the radius still falls at the end of the range, but less and less."""
    if evidence.verdict is Verdict.UNSTABLE:
        return
    for threshold, trends in evidence.by_threshold.items():
        local = trends.horizon.local
        if local and local[-1] < FLAT and local[0] < local[-1]:
            yield (
                f"the radius at {_percents([threshold])} still flattens: its local slopes in the horizon are "
                f"{', '.join(map(rounded, local))}"
            )
            return


def _growth(evidence: Evidence) -> Iterator[str]:
    if evidence.growth.available and evidence.verdict is not Verdict.UNSTABLE:
        grows = "does not grow" if evidence.growth.high <= GROWTH_LIMIT else "may grow"
        yield f"the change at a small radius {grows} with width: slope {evidence.growth}"


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
