"""Stability radii: the largest weight perturbation with an error below a threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
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

    keys = ["width", "horizon", "seed"]
    ordered = curves.dropna(subset=keys).sort_values([*keys, "radius"])
    new = (ordered[keys].to_numpy(float)[1:] != ordered[keys].to_numpy(float)[:-1]).any(axis=1)
    starts = np.flatnonzero(np.append(len(ordered) > 0, new))
    replicas = zip(*(ordered[name].to_numpy()[starts] for name in keys), strict=True)
    parts = zip(
        *(np.split(ordered[name].to_numpy(float), starts[1:]) for name in ("radius", "error", "zero_loss")), strict=True
    )
    rows = []
    for (width, horizon, seed), (radii, errors, zero_losses) in zip(replicas, parts, strict=False):
        zero_loss = float(zero_losses[0])
        valid = bool(errors[0] <= VALID_ERROR * zero_loss)
        for threshold in thresholds:
            at = crossing(radii, errors, threshold * zero_loss)
            location = (at.radius, at.low, at.high, at.censored)
            rows.append((width, horizon, seed, threshold, *location, valid, float(errors[0]), zero_loss))
    return pd.DataFrame(rows, columns=list(COLUMNS))
