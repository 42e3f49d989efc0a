"""The verdict: does this model, so parameterized, approximate this memory stably?

The question is about a limit, so limit slopes answer it (``memsweep.stability.verdict.trend``): of the log stability
radius in the log of the horizon, and of the width. A radius that shrinks faster than T^-0.2 is unstable. One that
shrinks no faster, shown by an equivalence test, is stable. Everything else is inconclusive. docs/verdict.md states the
rule and its measured error rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from memsweep.config.grid.time_scale import USABLE_SCALES
from memsweep.config.schema.trial import DRIFT, METRIC
from memsweep.data.levels import sequences_needed
from memsweep.stability.verdict.cells import Cells, Radii
from memsweep.stability.verdict.judgement import (
    DEFAULT,
    HORIZON_LIMITED,
    SMALLEST_SEEDS,
    Criteria,
    Judgement,
    Trends,
    Verdict,
)
from memsweep.stability.verdict.lacks import advice, lacks
from memsweep.stability.verdict.radius import RESOLVED, THRESHOLD, curves_of, stability_radii
from memsweep.stability.verdict.reasons import reasons
from memsweep.stability.verdict.trend import NO_SLOPE, Slope
from memsweep.stability.verdict.weighed import Evidence

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
    sequences: int | None = None,
) -> Judgement:
    """Judge one condition in one ball.

    Args:
        curves: columns width, horizon, seed, radius, error, zero_loss, and, where they were measured, change,
            threshold and reading.
        replicas: columns width, horizon, seed, slowest_rate (per step), of the same models.
        time_scale: of the memory, in steps (see ``time_scale``); infinite where no horizon is long enough to show it,
            None where it is not known: then no range is too short.
        nonlinear: whether a model has a nonlinear activation, so that its rates come from a linearization at rest.
        criteria: thresholds and slope limit, where they are not the rule's own.
        radii: of these curves, where they are known: ``stability_radii`` at ``thresholds_of(criteria)``.
        sequences: that every seed was tested on, where their number is known.

    Returns:
        The judgement; too little or contradicting evidence is inconclusive, with its reasons.
    """
    table = stability_radii(curves, thresholds_of(criteria)) if radii is None else radii
    top_horizon = int(table["horizon"].max())
    found = Radii.of(table, partial(_changes_at, curves[curves["horizon"] == top_horizon]))
    at_top = found.along_width()
    limited = _horizon_limited(replicas, at_top, top_horizon)
    reading = str(table["reading"].iloc[0])
    evidence = weigh(
        found, time_scale=time_scale, limited=limited, nonlinear=nonlinear, criteria=criteria, reading=reading
    )
    evidence = replace(evidence, sequences=sequences, needed_sequences=_needed_sequences(table, reading, criteria))
    found_lacks = lacks(evidence)
    return Judgement(
        verdict=evidence.verdict,
        threshold=_telling_threshold(evidence),
        width=evidence.width,
        growth=evidence.growth,
        small_radius=evidence.small_radius,
        modulus=_modulus(curves, at_top, top_horizon, evidence.small_radius),
        horizon_limited=limited,
        reasons=reasons(evidence),
        extend=advice(found_lacks, evidence),
        lacks=found_lacks,
        by_threshold=evidence.by_threshold,
        criteria=criteria,
        largest_width=evidence.widths[-1] if evidence.widths else None,
        fit_error=evidence.fit_error,
    )


def weigh(
    found: Radii,
    *,
    time_scale: float | None = None,
    limited: bool = False,
    nonlinear: bool = False,
    criteria: Criteria = DEFAULT,
    reading: str = DRIFT,
) -> Evidence:
    """The verdict on the radii of one condition, with all that it was made from.

    Args:
        found: at the thresholds of the criteria, and at THRESHOLD.
        time_scale, nonlinear, criteria: as in ``judge``.
        limited: whether the longest horizon is too short for the width slope to show instability.
        reading: what the radii are read from.
    """
    at_top, along = found.along_width(), found.along_horizon()
    # unstable at one threshold along one axis is enough: each gets its share of the error
    since, shares = USABLE_SCALES * (time_scale or 0.0), 2 * len(criteria.thresholds)
    by_threshold = {}
    for threshold in criteria.thresholds:
        place = found.thresholds.index(threshold)
        by_threshold[threshold] = Trends(
            horizon=along.trend(place, since, shares),
            width=at_top.trend(place, shares=shares),
            step=at_top.step(place, along.at),
        )
    small_radius = _small_radius(found, at_top)
    growth = _growth(found, at_top, small_radius, reading)
    return Evidence(
        verdict=decide(by_threshold, growth, limited, criteria),
        by_threshold=by_threshold,
        growth=growth,
        small_radius=small_radius,
        limited=limited,
        nonlinear=nonlinear,
        widths=at_top.values,
        horizons=along.values,
        width=along.at,
        fit_error=_fit_error(found, along, at_top),
        trained_widths=found.widths,
        trained_horizons=found.horizons,
        top_widths=found.top_widths,
        time_scale=time_scale,
        seeds=len(found.seeds),
        complete_seeds=min(len(at_top.seeds), len(along.seeds) or int(found.valid.all(2).sum(0).max())),
        best_fit=float(np.nan_to_num(found.fit, nan=math.inf, posinf=math.inf).min()),
        fitting=(len(at_top.values), _fitting_horizons(found)),
        fitting_once=int(found.valid[:, :, -1].any(0).sum()),
        unfit=tuple(horizon for place, horizon in enumerate(found.horizons) if not found.valid[:, :, place].any()),
        criteria=criteria,
        reading=reading,
    )


def thresholds_of(criteria: Criteria) -> list[float]:
    """The thresholds at which a judgement reads radii: those of the criteria, and the one of the small radius."""
    return sorted({*criteria.thresholds, THRESHOLD})


def decide(by_threshold: Mapping[float, Trends], growth: Slope, limited: bool, criteria: Criteria = DEFAULT) -> Verdict:
    """The verdict by slopes alone.

    Args:
        by_threshold: the trends at every threshold.
        growth: of the change with width, at a small radius.
        limited: whether the horizon is too short for the width slope to show instability.
        criteria: with the limits of the slopes.
    """
    # comparisons with nan are False, so an unavailable slope decides nothing
    trends, slope_limit = by_threshold.values(), criteria.slope_limit
    if any(
        slope.most < slope_limit
        for each in trends
        for slope in (each.horizon.limit, NO_SLOPE if limited else each.width.limit)
    ):
        return Verdict.UNSTABLE
    # a radius beyond the search everywhere has no slope at this threshold
    inside = [each for each in trends if each.inside]
    kept = all(slope.least > slope_limit for each in inside for slope in (each.horizon.limit, each.along_width))
    suffices = all(each.suffices for each in inside)
    stable = inside and kept and suffices and growth.most <= criteria.growth_limit
    return Verdict.STABLE if stable else Verdict.INCONCLUSIVE


def _telling_threshold(evidence: Evidence) -> float:
    """The threshold that shows instability best, along the axis that is told; or that is nearest to showing it.

    Of those at which radii are known alone, where there is one: the others decide nothing.
    """
    known, limit = evidence.by_threshold, evidence.criteria.slope_limit
    if evidence.verdict is Verdict.UNSTABLE:
        horizon = {threshold: trends.horizon.limit.most for threshold, trends in known.items()}
        by_horizon = {threshold: most for threshold, most in horizon.items() if most < limit}
        width = {threshold: trends.width.limit.most for threshold, trends in known.items()}
        by_width = {threshold: most for threshold, most in width.items() if most < limit}
        return min(found := by_horizon or by_width, key=found.__getitem__)
    inside = {threshold: trends for threshold, trends in known.items() if trends.inside} or known

    def least(threshold: float) -> float:
        lows = (inside[threshold].horizon.limit.least, inside[threshold].along_width.least)
        return min((low for low in lows if not math.isnan(low)), default=math.inf)

    return min(inside, key=least)


def _small_radius(found: Radii, at_top: Cells) -> float:
    if not at_top.seeds:
        return math.nan
    place = found.thresholds.index(THRESHOLD)
    # of a censored radius, the end that is known
    low, high = at_top.low[:, 0, place], at_top.high[:, 0, place]
    return float(np.median(np.where(low > 0.0, low, high)) / 2.0)


def _fitting_horizons(found: Radii) -> int:
    """How many horizons have as many valid seeds as a slope needs, at any width."""
    return int((found.valid.sum(0) >= SMALLEST_SEEDS).any(0).sum())


def _needed_sequences(table: pd.DataFrame, reading: str, criteria: Criteria) -> int | None:
    """Test sequences that tell the smallest threshold of an error rate; None of another reading."""
    if reading != METRIC:
        return None
    ways = table.loc[table["valid"].astype(bool), "zero_loss"]
    return sequences_needed(float(ways.min()), min(criteria.thresholds)) if len(ways) else None


def _fit_error(found: Radii, along: Cells, at_top: Cells) -> float:
    """The largest of the models that enter, as a share of the zero predictor's loss; nan without one."""
    entered = [at_top.taken(found.fit[:, :, -1])]
    if along.at is not None:
        entered.append(along.taken(found.fit[:, found.widths.index(along.at)]))
    return max((float(fits.max()) for fits in entered if fits.size), default=math.nan)


def _change_at(radii: np.ndarray, changes: np.ndarray, radius: float) -> float:
    """Change of one replica at a radius, interpolated in log radius and log change (inf stays inf).

    Below the smallest radius that was tried, it grows with the square of the radius, as squared distances do.
    """
    first = int(np.searchsorted(radii, 0.0, side="right"))
    if radius < radii[first]:
        unmoved = float(changes[0]) if first else 0.0
        return unmoved + (float(changes[first]) - unmoved) * (radius / float(radii[first])) ** 2
    grid, known = np.log(radii[first:]), changes[first:]
    place = int(np.clip(np.searchsorted(grid, math.log(radius)), 1, len(grid) - 1))
    if not np.isfinite(known[place]):
        return math.inf if math.log(radius) > grid[place - 1] else float(known[place - 1])
    tiny = np.finfo(float).tiny
    logs = np.log(np.maximum(known[place - 1 : place + 1], tiny))
    return float(np.exp(np.interp(math.log(radius), grid[place - 1 : place + 1], logs)))


def _changes_at(curves: pd.DataFrame, seeds: Sequence[int], widths: Sequence[int], radius: float) -> np.ndarray:
    """``[S, W]``, as shares of the zero predictor's loss or another reference; nan where a curve is not known."""
    table = np.full((len(seeds), len(widths)), math.nan)
    for curve in curves_of(curves):
        place = seeds.index(curve.seed), widths.index(curve.width)
        table[place] = _change_at(curve.radii, curve.errors, radius) / curve.zero_loss
    return table


def _growth(found: Radii, at_top: Cells, radius: float, reading: str) -> Slope:
    """Slope of log change with log width at a fixed radius and the largest horizon."""
    if not at_top.enough:
        return NO_SLOPE
    changes = at_top.taken(found.change_at(radius))
    if reading == METRIC and (changes <= RESOLVED * (1 + 1e-9)).all():
        return Slope(0.0, 0.0, 0.0)  # no error rate moves, whatever the width
    return at_top.slope(changes) if np.isfinite(changes).all() else Slope(math.inf, math.inf, math.inf)


def _modulus(curves: pd.DataFrame, at_top: Cells, horizon: int, radius: float) -> float:
    """Growth of the root of the relative change up to a radius: the largest width's valid replicas, their median."""
    if not at_top.values:
        return math.nan
    values = []
    here = (curves["horizon"] == horizon) & (curves["width"] == at_top.values[-1]) & curves["seed"].isin(at_top.seeds)
    for curve in curves_of(curves[here]):
        inside = (curve.radii > 0) & (curve.radii < radius)
        at = np.append(curve.radii[inside], radius)
        changes = np.append(curve.errors[inside], _change_at(curve.radii, curve.errors, radius))
        roots = np.sqrt(changes / curve.zero_loss) - math.sqrt(curve.errors[0] / curve.zero_loss)
        values.append(float((roots / at).max()))
    return float(np.median(values)) if values else math.nan


def _horizon_limited(replicas: pd.DataFrame, at_top: Cells, horizon: int) -> bool:
    """Whether the largest valid width's slowest mode is too slow for the largest horizon: the median of its seeds."""
    if not at_top.values:
        return False
    here = (replicas["horizon"] == horizon) & (replicas["width"] == at_top.values[-1])
    rows = replicas[here & replicas["seed"].isin(at_top.seeds)]
    rates = rows["slowest_rate"].dropna()
    return bool(len(rates) and rates.median() * horizon < HORIZON_LIMITED)
