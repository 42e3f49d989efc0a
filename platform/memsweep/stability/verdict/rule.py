"""The verdict: does this model, so parameterized, approximate this memory stably?

The question is about a limit, so limit slopes answer it (``memsweep.stability.verdict.trend``): of the log stability
radius in the log of the horizon, and of the width. A radius that keeps shrinking tends to zero: the approximation is
unstable. A radius that keeps its size, shown by an equivalence test, is stable. Everything else is inconclusive.
docs/verdict.md states the rule and its measured error rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memsweep.stability.verdict.judgement import (
    DEFAULT,
    GROWTH_LIMIT,
    HORIZON_LIMITED,
    SMALLEST_GRID,
    SMALLEST_RANGE,
    SMALLEST_SEEDS,
    Criteria,
    Judgement,
    Trends,
    Verdict,
)
from memsweep.stability.verdict.radius import THRESHOLD, Curve, curves_of, stability_radii
from memsweep.stability.verdict.reasons import Evidence, advice, reasons
from memsweep.stability.verdict.trend import NO_SLOPE, NO_TREND, Slope, Trend, trend

if TYPE_CHECKING:
    import pandas as pd


def judge(
    curves: pd.DataFrame,
    replicas: pd.DataFrame,
    *,
    time_scale: float | None = None,
    nonlinear: bool = False,
    criteria: Criteria = DEFAULT,
    radii: pd.DataFrame | None = None,
) -> Judgement:
    """Judge one condition in one ball.

    Args:
        curves: columns width, horizon, seed, radius, error, zero_loss.
        replicas: columns width, horizon, seed, slowest_rate (per step), of the same models.
        time_scale: of the memory, in steps (see ``time_scale``); None where it is not known: then no range is too
            short.
        nonlinear: whether a model has a nonlinear activation, so that its rates come from a linearization at rest.
        criteria: thresholds and slope limit, where they are not the rule's own.
        radii: of these curves, where they are known: ``stability_radii`` at ``thresholds_of(criteria)``.

    Returns:
        The judgement; too little or contradicting evidence is inconclusive, with its reasons.
    """
    radii = stability_radii(curves, thresholds_of(criteria)) if radii is None else radii
    valid = radii[radii["valid"]]
    top_horizon = int(radii["horizon"].max())
    at_top = _Cells.of(valid[valid["horizon"] == top_horizon], "width")
    along = _along_horizon(valid, radii["horizon"].nunique())
    long_enough = time_scale is None or top_horizon >= SMALLEST_RANGE * time_scale
    by_threshold = {
        threshold: Trends(horizon=along.trend(threshold) if long_enough else NO_TREND, width=at_top.trend(threshold))
        for threshold in criteria.thresholds
    }
    small_radius = _small_radius(at_top)
    growth = _growth(curves, at_top, top_horizon, small_radius)
    limited = _horizon_limited(replicas, at_top, top_horizon)
    verdict = decide(by_threshold, growth, limited, criteria.slope_limit)
    evidence = Evidence(
        verdict=verdict,
        by_threshold=by_threshold,
        growth=growth,
        limited=limited,
        nonlinear=nonlinear,
        widths=at_top.values,
        horizons=along.values,
        trained_widths=int(radii["width"].nunique()),
        top_horizon=top_horizon,
        time_scale=time_scale,
        seeds=int(radii["seed"].nunique()),
        complete_seeds=min(len(at_top.seeds), len(along.seeds)),
        criteria=criteria,
    )
    return Judgement(
        verdict=verdict,
        threshold=_telling_threshold(verdict, by_threshold),
        width=along.at,
        growth=growth,
        small_radius=small_radius,
        modulus=_modulus(curves, at_top, top_horizon, small_radius),
        horizon_limited=limited,
        reasons=reasons(evidence),
        extend=advice(evidence),
        by_threshold=by_threshold,
        criteria=criteria,
    )


def thresholds_of(criteria: Criteria) -> list[float]:
    """The thresholds at which a judgement reads radii: those of the criteria, and the one of the small radius."""
    return sorted({*criteria.thresholds, THRESHOLD})


def time_scale(target: np.ndarray) -> float | None:
    """The lag from which on a memory stays below 1/e of its peak, in steps.

    It is 1 / rate for an exponential memory, and the range over which a memory is given where it never decays so far.

    Args:
        target: the memory function at lags 0, 1, ...

    Returns:
        None for a memory that is not known (nan) or zero.
    """
    sizes = np.abs(target)
    if not sizes.size or not np.isfinite(sizes).all() or not sizes.max() > 0:
        return None
    # the exponential's own lag is a tie up to rounding
    return float(np.flatnonzero(sizes > sizes.max() / math.e * (1 + 1e-9))[-1] + 1)


@dataclass(frozen=True)
class _Cells:
    """The cells along one axis that enter a slope: in each of them, the same seeds approximate the target.

    Attributes:
        axis: ``width`` or ``horizon``.
        values: of the axis, increasing.
        seeds: valid at all of them; empty where a cell has fewer than SMALLEST_SEEDS.
        radii: rows of these cells and seeds.
        at: the width of cells along the horizon.
    """

    axis: str
    values: tuple[int, ...]
    seeds: tuple[int, ...]
    radii: pd.DataFrame
    at: int | None = None

    @staticmethod
    def of(valid: pd.DataFrame, axis: str, at: int | None = None) -> _Cells:
        """All cells with SMALLEST_SEEDS valid seeds or more, and the seeds that are valid in each of them."""
        count = valid.groupby(axis)["seed"].nunique()
        values = tuple(int(value) for value in count.index[count >= SMALLEST_SEEDS])
        rows = valid[valid[axis].isin(values)]
        everywhere = rows.groupby("seed")[axis].nunique() == len(values)
        seeds = tuple(int(seed) for seed in everywhere.index[everywhere])
        return _Cells(axis, values, seeds, rows[rows["seed"].isin(seeds)], at)

    def trend(self, threshold: float) -> Trend:
        """Of the radius at a threshold; NO_TREND with too few cells or seeds."""
        rows = self.radii[self.radii["threshold"] == threshold]
        bounds = (self.table(rows, column) for column in ("radius_low", "radius_high"))
        return self._fitted(*bounds)

    def table(self, rows: pd.DataFrame, column: str) -> np.ndarray:
        """``[seeds, values]`` of a column."""
        table = np.full((len(self.seeds), len(self.values)), math.nan)
        table[np.searchsorted(self.seeds, rows["seed"]), np.searchsorted(self.values, rows[self.axis])] = rows[column]
        return table

    def _fitted(self, low: np.ndarray, high: np.ndarray) -> Trend:
        if len(self.values) < SMALLEST_GRID or len(self.seeds) < SMALLEST_SEEDS:
            return NO_TREND
        return trend(np.array(self.values, float), low, high, self.seeds)

    def slope(self, values: np.ndarray) -> Slope:
        """Of numbers ``[seeds, values]``, over the whole range."""
        return self._fitted(values, values).over_range


def _along_horizon(valid: pd.DataFrame, horizons: int) -> _Cells:
    """The cells of the largest width that is valid at every horizon; of no width without one."""
    for width in sorted(valid["width"].unique(), reverse=True):
        cells = _Cells.of(valid[valid["width"] == width], "horizon", at=int(width))
        if len(cells.values) == horizons and len(cells.seeds) >= SMALLEST_SEEDS:
            return cells
    return _Cells("horizon", (), (), valid[:0])


def decide(
    by_threshold: Mapping[float, Trends], growth: Slope, limited: bool, slope_limit: float = DEFAULT.slope_limit
) -> Verdict:
    """The verdict by slopes alone.

    Args:
        by_threshold: the trends at every threshold.
        growth: of the error with width, at a small radius.
        limited: whether the horizon is too short for the width slope to show instability.
        slope_limit: a radius whose slope is below this with confidence shrinks.
    """
    # comparisons with nan are False, so an unavailable slope decides nothing
    trends = by_threshold.values()
    if any(
        slope.high < slope_limit
        for each in trends
        for slope in (each.horizon.limit, NO_SLOPE if limited else each.width.limit)
    ):
        return Verdict.UNSTABLE
    # a radius beyond the grid everywhere has no slope at this threshold
    inside = [each for each in trends if not (each.horizon.outside or each.width.outside)]
    kept = all(slope.low > slope_limit for each in inside for slope in (each.horizon.limit, each.along_width))
    return Verdict.STABLE if inside and kept and growth.high <= GROWTH_LIMIT else Verdict.INCONCLUSIVE


def _telling_threshold(verdict: Verdict, by_threshold: Mapping[float, Trends]) -> float:
    """The threshold that shows instability best, or that is nearest to showing it."""

    def key(threshold: float) -> float:
        trends = by_threshold[threshold]
        if verdict is Verdict.UNSTABLE:
            highs = (trends.horizon.limit.high, trends.width.limit.high)
            return min(high for high in highs if not math.isnan(high))
        lows = (trends.horizon.limit.low, trends.along_width.low)
        return min((low for low in lows if not math.isnan(low)), default=math.inf)

    return min(by_threshold, key=key)


def _small_radius(at_top: _Cells) -> float:
    if not at_top.values:
        return math.nan
    rows = at_top.radii
    first = rows[(rows["width"] == at_top.values[0]) & (rows["threshold"] == THRESHOLD)]
    return float(first["radius"].median() / 2.0)


def _error_at(radii: np.ndarray, errors: np.ndarray, radius: float) -> float:
    """Error of one replica at a radius, interpolated in log radius and log error (inf stays inf)."""
    grid, errors = np.log(radii[radii > 0]), errors[radii > 0]
    place = int(np.clip(np.searchsorted(grid, math.log(radius)), 1, len(grid) - 1))
    if not np.isfinite(errors[place]):
        return math.inf if math.log(radius) > grid[place - 1] else float(errors[place - 1])
    tiny = np.finfo(float).tiny
    logs = np.log(np.maximum(errors[place - 1 : place + 1], tiny))
    return float(np.exp(np.interp(math.log(radius), grid[place - 1 : place + 1], logs)))


def _growth(curves: pd.DataFrame, at_top: _Cells, horizon: int, radius: float) -> Slope:
    """Slope of log error with log width at a fixed radius and the largest horizon."""
    if len(at_top.values) < SMALLEST_GRID or len(at_top.seeds) < SMALLEST_SEEDS:
        return NO_SLOPE
    found = {
        (curve.seed, curve.width): _error_at(curve.radii, curve.errors, radius)
        for curve in _replicas(curves, at_top, horizon, at_top.values)
    }
    table = np.array([[found[seed, width] for width in at_top.values] for seed in at_top.seeds])
    return at_top.slope(table) if np.isfinite(table).all() else Slope(math.inf, math.inf, math.inf)


def _modulus(curves: pd.DataFrame, at_top: _Cells, horizon: int, radius: float) -> float:
    """Growth of the root of the relative error up to a radius: the largest width's valid replicas, their median."""
    if not at_top.values:
        return math.nan
    values = []
    for curve in _replicas(curves, at_top, horizon, at_top.values[-1:]):
        roots, at = np.sqrt(curve.errors / curve.zero_loss), curve.radii
        inside = (at > 0) & (at <= radius)
        if inside.any():
            values.append(float(((roots[inside] - roots[at == 0]) / at[inside]).max()))
    return float(np.median(values)) if values else math.nan


def _replicas(curves: pd.DataFrame, at_top: _Cells, horizon: int, widths: Sequence[int]) -> Iterator[Curve]:
    """The curves of the seeds that are valid in all cells."""
    here = (curves["horizon"] == horizon) & curves["width"].isin(widths) & curves["seed"].isin(at_top.seeds)
    return curves_of(curves[here])


def _horizon_limited(replicas: pd.DataFrame, at_top: _Cells, horizon: int) -> bool:
    """Whether the largest valid width's slowest mode is too slow for the largest horizon (median over its seeds)."""
    if not at_top.values:
        return False
    rows = replicas[(replicas["horizon"] == horizon) & (replicas["width"] == at_top.values[-1])]
    rates = rows["slowest_rate"].dropna()
    return bool(len(rates) and rates.median() * horizon < HORIZON_LIMITED)
