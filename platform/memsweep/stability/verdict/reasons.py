"""The sentences of a judgement, and what would decide where it is inconclusive."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from memsweep.stability.verdict.judgement import (
    GROWTH_LIMIT,
    SMALLEST_GRID,
    SMALLEST_RANGE,
    SMALLEST_SEEDS,
    Criteria,
    Trends,
    Verdict,
)
from memsweep.stability.verdict.radius import VALID_ERROR
from memsweep.stability.verdict.trend import LONG_RANGE, Slope, Trend, rounded, seeds_needed

FLAT = -0.1
"""A local slope above this is far enough from the usual limit for a limit slope with an interval of usual size."""


@dataclass(frozen=True)
class Evidence:
    """What a verdict was made from.

    Attributes:
        verdict, by_threshold, growth, limited, nonlinear, time_scale, criteria: as in ``rule.judge`` and ``Judgement``.
        widths: valid at the longest horizon.
        horizons: valid at the width of the horizon slope.
        trained_widths: how many were trained.
        top_horizon: the longest that was trained.
        seeds: how many were trained.
        complete_seeds: valid in every cell that enters.
    """

    verdict: Verdict
    by_threshold: Mapping[float, Trends]
    growth: Slope
    limited: bool
    nonlinear: bool
    widths: tuple[int, ...]
    horizons: tuple[int, ...]
    trained_widths: int
    top_horizon: int
    time_scale: float | None
    seeds: int
    complete_seeds: int
    criteria: Criteria

    @property
    def needed_horizon(self) -> float:
        """The shortest longest horizon of a verdict."""
        return SMALLEST_RANGE * (self.time_scale or 0.0)

    @property
    def too_short(self) -> bool:
        """Whether the longest horizon is shorter than that."""
        return self.top_horizon < self.needed_horizon

    def trends(self, axis: str) -> list[Trend]:
        """At every threshold, along ``horizon`` or ``width``."""
        return [getattr(trends, axis) for trends in self.by_threshold.values()]

    def slopes(self, axis: str) -> list[Slope]:
        """The deciding slopes at every threshold whose radii are inside of the grid."""
        inside = [each for each in self.by_threshold.values() if not (each.horizon.outside or each.width.outside)]
        return [each.horizon.limit if axis == "horizon" else each.along_width for each in inside]


def reasons(evidence: Evidence) -> tuple[str, ...]:
    """Why the verdict is what it is, one sentence each, what is missing first."""
    return (
        *_gaps(evidence),
        *_slopes(evidence),
        *_flattening(evidence),
        *_growth(evidence),
        *_limits(evidence),
    )


def advice(evidence: Evidence) -> tuple[str, ...]:
    """Overrides of ``memsweep extend``, each of which would decide by itself as far as can be foreseen."""
    if evidence.verdict is not Verdict.INCONCLUSIVE:
        return ()
    found = [f"task.horizon={_longer(evidence)}"] if _horizon_undecided(evidence) else []
    seeds = _seeds(evidence)
    if evidence.trained_widths < SMALLEST_GRID:
        return ()  # no horizon and no seed gives a slope in width
    if evidence.seeds < SMALLEST_SEEDS:
        found = [f"training.seeds={SMALLEST_SEEDS}"]
    elif evidence.complete_seeds < SMALLEST_SEEDS:
        found = []  # what the models lack is the fit, not their number
    elif seeds and not evidence.too_short:
        found.append(f"training.seeds={seeds}")
    return tuple(found)


def _horizon_undecided(evidence: Evidence) -> bool:
    # comparisons with nan are False: an unavailable slope is undecided
    return bool(evidence.horizons) and not all(
        slope.low > evidence.criteria.slope_limit for slope in evidence.slopes("horizon")
    )


def _longer(evidence: Evidence) -> int:
    """The horizon that would decide, a power of two times the longest one.

    The memory's time scale fits into it often enough, the horizons span enough for a limit slope, and the last local
    slope has fallen below FLAT, if it goes on halving as the horizon doubles.
    """
    needed = max(evidence.needed_horizon, LONG_RANGE * min(evidence.horizons))
    last = min((trend.local[-1] for trend in evidence.trends("horizon") if trend.local), default=math.nan)
    if last < FLAT:
        needed = max(needed, evidence.top_horizon * last / FLAT)
    doublings = max(1, SMALLEST_GRID - len(evidence.horizons), math.ceil(math.log2(needed / evidence.top_horizon)))
    return int(evidence.top_horizon * 2**doublings)


def _seeds(evidence: Evidence) -> int | None:
    """Seeds that would part every undecided slope from its limit; None where nothing is undecided, or too many."""
    slope_limit = evidence.criteria.slope_limit
    limits = [(slope, slope_limit) for axis in ("horizon", "width") for slope in evidence.slopes(axis)]
    undecided = [(s, limit) for s, limit in [*limits, (evidence.growth, GROWTH_LIMIT)] if s.low <= limit < s.high]
    counts = [seeds_needed(slope, limit, evidence.complete_seeds) for slope, limit in undecided]
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None


def _gaps(evidence: Evidence) -> Iterator[str]:
    limit = f"error without perturbation at most {VALID_ERROR:.1%} of the zero predictor's"
    if evidence.too_short:
        steps = "step" if evidence.time_scale == 1 else "steps"
        yield (
            f"the longest horizon, {evidence.top_horizon}, is {evidence.top_horizon / (evidence.time_scale or 1):.1f} "
            f"time scales of the memory ({evidence.time_scale:g} {steps}); a trend needs {SMALLEST_RANGE}"
        )
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
    elif max(evidence.horizons) < LONG_RANGE * min(evidence.horizons):
        yield (
            f"the horizons span a factor of {max(evidence.horizons) / min(evidence.horizons):.3g}; a limit slope needs "
            f"{LONG_RANGE:g}"
        )
    if evidence.seeds < SMALLEST_SEEDS:
        yield f"seeds: {evidence.seeds}; a verdict needs {SMALLEST_SEEDS}"


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values)) or "none"


def _slopes(evidence: Evidence) -> Iterator[str]:
    limit = evidence.criteria.slope_limit
    for axis in ("width", "horizon"):
        slopes = evidence.slopes(axis)
        if not (slopes and all(slope.available for slope in slopes)):
            continue
        highest, lowest = max(slope.high for slope in slopes), min(slope.low for slope in slopes)
        if highest < limit:
            yield f"at every threshold the radius keeps shrinking with {axis}: slope at most {rounded(highest)}"
        elif lowest > limit:
            yield f"at every threshold the radius keeps its size with {axis}: slope at least {rounded(lowest)}"
        else:
            yield f"the slope of the radius with {axis} lies between {rounded(lowest)} and {rounded(highest)}"


def _flattening(evidence: Evidence) -> Iterator[str]:
    """Said where the radius still falls at the end of the range, but less and less."""
    if evidence.verdict is Verdict.UNSTABLE:
        return
    for threshold, trends in evidence.by_threshold.items():
        local = trends.horizon.local
        if local and local[-1] < FLAT and local[0] < local[-1]:
            yield (
                f"the radius at {threshold:.0%} still flattens: its local slopes in the horizon are "
                f"{', '.join(map(rounded, local))}"
            )
            return


def _growth(evidence: Evidence) -> Iterator[str]:
    if evidence.growth.available and evidence.verdict is not Verdict.UNSTABLE:
        grows = "does not grow" if evidence.growth.high <= GROWTH_LIMIT else "may grow"
        yield f"the error at a small radius {grows} with width: slope {evidence.growth}"


def _limits(evidence: Evidence) -> Iterator[str]:
    if evidence.limited:
        where = " (linearized at rest)" if evidence.nonlinear else ""
        yield (
            f"horizon-limited: the slowest mode{where} spans the horizon, so the width slope cannot show instability"
        )
