"""Stability radii: the largest weight perturbation with an error below a threshold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

THRESHOLDS = (0.01, 0.03, 0.10)
"""Errors, as fractions of the zero predictor's loss, at which a radius is read."""
THRESHOLD = min(THRESHOLDS)
"""The threshold of a radius that is given as one number: in figures, searches and comparisons."""
VALID_ERROR = 0.005
"""Largest unperturbed error, as a fraction of the zero predictor's loss, of a model that approximates its target."""
ABOVE, BELOW, BETWEEN, NOT_CENSORED = "above", "below", "between", ""

COLUMNS = (
    *("width", "horizon", "seed", "threshold", "radius", "radius_low", "radius_high"),
    *("censored", "valid", "error_at_zero", "zero_loss"),
)


@dataclass(frozen=True)
class Crossing:
    """The crossing of an error limit: between two radii, which are equal where it is known exactly.

    Attributes:
        low, high: bounds of the radius; 0 and inf where the crossing is outside of the grid.
        censored: "" (known), "above" the grid, "below" it, or "between" two of its radii, where the error jumps to
            infinity.
        radius: one number for figures and medians: the largest radius known to be inside the limit, or the grid's
            smallest radius.
    """

    low: float
    high: float
    censored: str
    radius: float


@dataclass(frozen=True)
class Curve:
    """The errors of one replica.

    Attributes:
        radii: increasing, the first is 0.
        errors: at each of them, nondecreasing, may be inf.
        zero_loss: the zero predictor's.
    """

    width: int
    horizon: int
    seed: int
    radii: np.ndarray
    errors: np.ndarray
    zero_loss: float


def crossing(radii: np.ndarray, errors: np.ndarray, limit: float) -> Crossing:
    """The largest radius whose error stays at or below a limit, interpolated in log radius and log error.

    Args:
        radii: increasing, the first is 0.
        errors: nondecreasing, one per radius, may be inf.
        limit: the error allowed.
    """
    outside = np.flatnonzero(~(errors <= limit))
    if outside.size == 0:
        last = float(radii[-1])
        return Crossing(last, math.inf, ABOVE, last)
    first = int(outside[0])
    if first <= 1:  # there is no logarithm between radius 0 and the smallest radius
        return Crossing(0.0, float(radii[1]), BELOW, float(radii[1]))
    inner, outer = float(radii[first - 1]), float(radii[first])
    low, high = errors[first - 1], errors[first]
    if not math.isfinite(high) or low <= 0.0:
        return Crossing(inner, outer, BETWEEN, inner)
    share = (math.log(limit) - math.log(low)) / (math.log(high) - math.log(low))
    radius = inner * (outer / inner) ** share
    return Crossing(radius, radius, NOT_CENSORED, radius)


def stability_radii(curves: pd.DataFrame, thresholds: Sequence[float] = THRESHOLDS) -> pd.DataFrame:
    """The radius of every replica at every threshold.

    Args:
        curves: perturbation curves of one condition and ball: columns width, horizon, seed, radius, error,
            zero_loss.
        thresholds: errors, as fractions of the zero predictor's loss.

    Returns:
        One row per width, horizon, seed and threshold, with columns ``COLUMNS``; ``valid``: the
        unperturbed model approximates its target.
    """
    import pandas as pd

    rows = []
    for curve in curves_of(curves):
        valid = bool(curve.errors[0] <= VALID_ERROR * curve.zero_loss)
        for threshold in thresholds:
            at = crossing(curve.radii, curve.errors, threshold * curve.zero_loss)
            place = (curve.width, curve.horizon, curve.seed, threshold, at.radius, at.low, at.high, at.censored)
            rows.append((*place, valid, float(curve.errors[0]), curve.zero_loss))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def curves_of(curves: pd.DataFrame) -> Iterator[Curve]:
    """The curve of every replica, in the order of width, horizon and seed; rows that lack one of them are left out.

    Args:
        curves: as of ``stability_radii``.
    """
    keys = ["width", "horizon", "seed"]
    ordered = curves.dropna(subset=keys).sort_values([*keys, "radius"])
    sides = [ordered[name].to_numpy() for name in keys]
    new = np.logical_or.reduce([side[1:] != side[:-1] for side in sides])
    starts = np.flatnonzero(np.append(len(ordered) > 0, new))
    values = [ordered[name].to_numpy(float) for name in ("radius", "error", "zero_loss")]
    for start, end in zip(starts, [*starts[1:], len(ordered)], strict=False):
        radii, errors, zero_losses = (value[start:end] for value in values)
        width, horizon, seed = (side[start] for side in sides)
        yield Curve(width, horizon, seed, radii, errors, float(zero_losses[0]))
