"""The verdict: does this model, so parameterized, approximate this memory stably?

The question is about a limit, so slopes answer it: the change of the stability radius as the width grows and as the
horizon grows. A radius that keeps shrinking tends to zero, and the approximation is unstable. A radius that keeps its
size, shown by an equivalence test, is stable. Everything else is inconclusive.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memsweep.stability.verdict.radius import THRESHOLDS, VALID_ERROR, stability_radii
from memsweep.stability.verdict.slopes import NO_SLOPE, SMALLEST_CLUSTERS, Points, Slope, rounded, theil_sen

if TYPE_CHECKING:
    import pandas as pd

SLOPE_LIMIT = -0.2
"""A radius shrinks if its slope is below this with confidence, and keeps its size if the slope is above it."""
GROWTH_LIMIT = 0.1
"""Largest slope of the error with width, at a fixed small radius, of a stable approximation."""
SMALLEST_GRID = 4
"""Smallest number of valid widths, and of valid horizons, for a slope."""
SMALLEST_SEEDS = 5
"""Smallest number of seeds for a verdict."""
HORIZON_LIMITED = 3.0
"""A model whose slowest rate times the horizon is below this cannot show a slower one at this horizon."""


class Verdict(enum.StrEnum):
    """The answer for one model, parameterization, kernel and ball."""

    STABLE = "stable"
    UNSTABLE = "unstable"
    INCONCLUSIVE = "inconclusive"

    @property
    def explanation(self) -> str:
        """The rule that gave the verdict, in a sentence."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    Verdict.STABLE: (
        "At every threshold the radius keeps its size as width and horizon grow (lower bounds of both slopes above "
        f"{SLOPE_LIMIT}), and the error at a small radius does not grow with width (upper bound at most "
        f"+{GROWTH_LIMIT})."
    ),
    Verdict.UNSTABLE: (
        "At every threshold the radius shrinks as the horizon grows, or as the width grows where the horizon does not "
        f"limit it (upper bound of the slope below {SLOPE_LIMIT})."
    ),
    Verdict.INCONCLUSIVE: "The data neither show that the radius shrinks nor that it keeps its size.",
}


@dataclass(frozen=True)
class Judgement:
    """A verdict and its evidence.

    Attributes:
        verdict: the answer.
        threshold: the threshold that is nearest to contradicting the verdict (for inconclusive: to instability).
        slope_width, slope_horizon: at that threshold; nan where no slope can be trusted.
        width: the width of the horizon slope, the largest that is valid at every horizon; None without one.
        growth: slope of the error with width at ``small_radius``.
        small_radius: half the median 1 % radius of the smallest valid width at the largest horizon; nan without a
            valid width.
        modulus: largest growth of sqrt(error / zero loss) per unit of radius up to ``small_radius``, largest width at
            the largest horizon, median over seeds; reported, does not decide.
        horizon_limited: the slowest mode of a valid model is too slow for the horizon to show a slower one.
        reasons: sentences.
        by_threshold: width and horizon slope at every threshold.
    """

    verdict: Verdict
    threshold: float
    slope_width: Slope
    slope_horizon: Slope
    width: int | None
    growth: Slope
    small_radius: float
    modulus: float
    horizon_limited: bool
    reasons: tuple[str, ...]
    by_threshold: Mapping[float, tuple[Slope, Slope]]


def judge(curves: pd.DataFrame, replicas: pd.DataFrame, *, nonlinear: bool = False) -> Judgement:
    """Judge one condition in one ball.

    Args:
        curves: columns width, horizon, seed, radius, error, zero_loss.
        replicas: columns width, horizon, seed, slowest_rate (per step), of the same models.
        nonlinear: whether a model has a nonlinear activation, so that its rates come from a linearization at rest.

    Returns:
        The judgement; too little or contradicting evidence is inconclusive, with its reasons.
    """
    radii = stability_radii(curves)
    valid = radii[radii["valid"]]
    top_horizon = int(radii["horizon"].max())
    at_top = valid[valid["horizon"] == top_horizon]
    widths = _values(at_top, "width")
    widest = _widest_everywhere(valid, radii["horizon"].nunique())
    along = valid[valid["width"] == widest]
    horizons = _values(along, "horizon")
    seeds = int(radii["seed"].nunique())
    gaps = _gaps(widths, horizons, top_horizon, seeds)
    along_width = len(widths) >= SMALLEST_GRID and seeds >= SMALLEST_SEEDS
    along_horizon = len(horizons) >= SMALLEST_GRID and seeds >= SMALLEST_SEEDS
    by_threshold = {
        threshold: (
            _slope(at_top, "width", threshold) if along_width else NO_SLOPE,
            _slope(along, "horizon", threshold) if along_horizon else NO_SLOPE,
        )
        for threshold in THRESHOLDS
    }
    small_radius = _small_radius(at_top, widths)
    growth = _growth(curves, at_top, top_horizon, small_radius) if along_width else NO_SLOPE
    limited = _horizon_limited(replicas, at_top, top_horizon)
    verdict = _decide(by_threshold, growth, limited)
    threshold = _telling_threshold(verdict, by_threshold)
    slope_width, slope_horizon = by_threshold[threshold]
    return Judgement(
        verdict=verdict,
        threshold=threshold,
        slope_width=slope_width,
        slope_horizon=slope_horizon,
        width=widest,
        growth=growth,
        small_radius=small_radius,
        modulus=_modulus(curves, at_top, top_horizon, small_radius),
        horizon_limited=limited,
        reasons=(*gaps, *_reasons(verdict, by_threshold, growth), *_limits(limited, nonlinear)),
        by_threshold=by_threshold,
    )


def _decide(by_threshold: Mapping[float, tuple[Slope, Slope]], growth: Slope, limited: bool) -> Verdict:
    # comparisons with nan are False, so an unavailable slope decides nothing
    width = [slopes[0] for slopes in by_threshold.values()]
    horizon = [slopes[1] for slopes in by_threshold.values()]
    shrinks_along_horizon = all(slope.high < SLOPE_LIMIT for slope in horizon)
    shrinks_along_width = not limited and all(slope.high < SLOPE_LIMIT for slope in width)
    if shrinks_along_horizon or shrinks_along_width:
        return Verdict.UNSTABLE
    if all(slope.low > SLOPE_LIMIT for slope in [*width, *horizon]) and growth.high <= GROWTH_LIMIT:
        return Verdict.STABLE
    return Verdict.INCONCLUSIVE


def _telling_threshold(verdict: Verdict, by_threshold: Mapping[float, tuple[Slope, Slope]]) -> float:
    """The threshold whose bounds are nearest to contradicting the verdict."""

    def key(threshold: float) -> float:
        width, horizon = by_threshold[threshold]
        if verdict is Verdict.UNSTABLE:
            by_horizon = all(slopes[1].high < SLOPE_LIMIT for slopes in by_threshold.values())
            return -(horizon.high if by_horizon else width.high)
        lows = [slope.low for slope in (width, horizon) if not math.isnan(slope.low)]
        return min(lows, default=math.inf)

    return min(by_threshold, key=key)


def _widest_everywhere(valid: pd.DataFrame, horizons: int) -> int | None:
    """The largest width that has enough valid seeds for an interval at every horizon."""
    seeds = valid.groupby(["width", "horizon"])["seed"].nunique()
    enough = seeds[seeds >= SMALLEST_CLUSTERS].groupby("width").size() == horizons
    return max((int(width) for width in enough.index[enough]), default=None)


def _values(radii: pd.DataFrame, axis: str) -> list[int]:
    return [int(value) for value in sorted(radii[axis].unique())]


def _gaps(widths: list[int], horizons: list[int], top_horizon: int, seeds: int) -> list[str]:
    gaps = []
    limit = f"error without perturbation at most {VALID_ERROR:.1%} of the zero predictor's"
    if len(widths) < SMALLEST_GRID:
        gaps.append(
            f"valid widths at horizon {top_horizon}: {_listed(widths)} ({limit}); "
            f"a width slope needs {SMALLEST_GRID} of them"
        )
    if len(horizons) < SMALLEST_GRID:
        gaps.append(
            f"horizons of the largest width that is valid at all of them: {_listed(horizons)}; "
            f"a horizon slope needs {SMALLEST_GRID}"
        )
    if seeds < SMALLEST_SEEDS:
        gaps.append(f"seeds: {seeds}; a verdict needs {SMALLEST_SEEDS}")
    return gaps


def _listed(values: list[int]) -> str:
    return ", ".join(map(str, values)) or "none"


def _slope(radii: pd.DataFrame, axis: str, threshold: float) -> Slope:
    rows = radii[radii["threshold"] == threshold]
    return theil_sen(
        Points.of(
            *(rows[column].to_numpy() for column in (axis, "radius_low", "radius_high", "seed")),
        )
    )


def _small_radius(at_top: pd.DataFrame, widths: list[int]) -> float:
    if not widths:
        return math.nan
    rows = at_top[(at_top["width"] == min(widths)) & (at_top["threshold"] == min(THRESHOLDS))]
    return float(rows["radius"].median() / 2.0)


def _error_at(curve: pd.DataFrame, radius: float) -> float:
    """Error of one replica at a radius, interpolated in log radius and log error (inf stays inf)."""
    ordered = curve[curve["radius"] > 0].sort_values("radius")
    grid, errors = np.log(ordered["radius"].to_numpy(float)), ordered["error"].to_numpy(float)
    place = int(np.clip(np.searchsorted(grid, math.log(radius)), 1, len(grid) - 1))
    if not np.isfinite(errors[place]):
        return math.inf if math.log(radius) > grid[place - 1] else float(errors[place - 1])
    tiny = np.finfo(float).tiny
    logs = np.log(np.maximum(errors[place - 1 : place + 1], tiny))
    return float(np.exp(np.interp(math.log(radius), grid[place - 1 : place + 1], logs)))


def _growth(curves: pd.DataFrame, at_top: pd.DataFrame, horizon: int, radius: float) -> Slope:
    """Slope of log error with log width at a fixed radius and the largest horizon, over the valid replicas."""
    keys = at_top[["width", "seed"]].drop_duplicates()
    rows = curves[curves["horizon"] == horizon].merge(keys, on=["width", "seed"])
    points = [(width, seed, _error_at(curve, radius)) for (width, seed), curve in rows.groupby(["width", "seed"])]
    widths, seeds, errors = (np.array(column) for column in zip(*points, strict=True))
    if not np.isfinite(errors).all():
        return Slope(math.inf, math.inf, math.inf)
    return theil_sen(Points.of(widths, errors, errors, seeds))


def _modulus(curves: pd.DataFrame, at_top: pd.DataFrame, horizon: int, radius: float) -> float:
    """Growth of the root of the relative error up to a radius: the largest width's valid replicas, their median."""
    best = at_top[at_top["width"] == at_top["width"].max()]
    rows = curves[curves["horizon"] == horizon].merge(best[["width", "seed"]].drop_duplicates(), on=["width", "seed"])
    values = []
    for _, curve in rows.groupby("seed"):
        roots = np.sqrt(curve["error"].to_numpy() / curve["zero_loss"].to_numpy())
        at = curve["radius"].to_numpy()
        inside = (at > 0) & (at <= radius)
        if inside.any():
            values.append(float(((roots[inside] - roots[at == 0]) / at[inside]).max()))
    return float(np.median(values)) if values else math.nan


def _horizon_limited(replicas: pd.DataFrame, at_top: pd.DataFrame, horizon: int) -> bool:
    """Whether the largest valid width's slowest mode is too slow for the largest horizon (median over its seeds)."""
    if at_top.empty:
        return False
    rows = replicas[(replicas["horizon"] == horizon) & (replicas["width"] == at_top["width"].max())]
    rates = rows["slowest_rate"].dropna()
    return bool(len(rates) and rates.median() * horizon < HORIZON_LIMITED)


def _limits(limited: bool, nonlinear: bool) -> list[str]:
    if not limited:
        return []
    where = " (linearized at rest)" if nonlinear else ""
    return [f"horizon-limited: the slowest mode{where} spans the horizon, so the width slope cannot show instability"]


def _reasons(verdict: Verdict, by_threshold: Mapping[float, tuple[Slope, Slope]], growth: Slope) -> list[str]:
    reasons = []
    for axis, slopes in zip(("width", "horizon"), zip(*by_threshold.values(), strict=True), strict=True):
        if not all(slope.available for slope in slopes):
            continue
        highest, lowest = max(slope.high for slope in slopes), min(slope.low for slope in slopes)
        if highest < SLOPE_LIMIT:
            reasons.append(f"at every threshold the radius shrinks with {axis}: slope at most {rounded(highest)}")
        elif lowest > SLOPE_LIMIT:
            reasons.append(
                f"at every threshold the radius keeps its size with {axis}: slope at least {rounded(lowest)}"
            )
        else:
            reasons.append(f"the slope of the radius with {axis} lies between {rounded(lowest)} and {rounded(highest)}")
    if growth.available and verdict is not Verdict.UNSTABLE:
        grows = "does not grow" if growth.high <= GROWTH_LIMIT else "may grow"
        reasons.append(f"the error at a small radius {grows} with width: slope {growth}")
    return reasons
