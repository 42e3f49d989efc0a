"""Stability radii: how far the weights may move before the error passes a threshold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

THRESHOLDS = (0.01, 0.03, 0.10)
"""Errors, as fractions of the zero predictor's loss, at which a radius is read."""
VALID_ERROR = 0.005
"""Largest unperturbed error, as a fraction of the zero predictor's loss, of a model that approximates its target."""
ABOVE, BELOW, NOT_CENSORED = "above", "below", ""

COLUMNS = ("width", "horizon", "seed", "threshold", "radius", "censored", "valid", "error_at_zero", "zero_loss")


def crossing(radii: np.ndarray, errors: np.ndarray, limit: float) -> tuple[float, str]:
    """The largest radius whose error stays at or below a limit, interpolated in log radius and log error.

    Args:
        radii: increasing, the first is 0.
        errors: nondecreasing, one per radius, may be inf.
        limit: the error allowed.

    Returns:
        The radius, and "" or how it is censored: "above" the grid's largest radius (the error never passes the
        limit), or "below" its smallest (it does at once). A censored radius is given as that end of the grid.
    """
    outside = np.flatnonzero(~(errors <= limit))
    if outside.size == 0:
        return float(radii[-1]), ABOVE
    first = int(outside[0])
    if first <= 1:  # there is no logarithm between radius 0 and the smallest radius
        return float(radii[1]), BELOW
    low, high = errors[first - 1], errors[first]
    if not math.isfinite(high) or low <= 0.0:
        return float(radii[first - 1]), NOT_CENSORED
    share = (math.log(limit) - math.log(low)) / (math.log(high) - math.log(low))
    log_low, log_high = math.log(radii[first - 1]), math.log(radii[first])
    return math.exp(log_low + share * (log_high - log_low)), NOT_CENSORED


def stability_radii(curves: pd.DataFrame) -> pd.DataFrame:
    """The radius of every replica at every threshold.

    Args:
        curves: perturbation curves of one condition and ball: columns width, horizon, seed, radius, error,
            zero_loss.

    Returns:
        One row per width, horizon, seed and threshold, with columns ``COLUMNS``; ``valid`` says that the
        unperturbed model approximates its target at all.
    """
    import pandas as pd

    rows = []
    for (width, horizon, seed), curve in curves.groupby(["width", "horizon", "seed"], sort=True):
        ordered = curve.sort_values("radius")
        radii, errors = ordered["radius"].to_numpy(float), ordered["error"].to_numpy(float)
        zero_loss = float(ordered["zero_loss"].iloc[0])
        valid = bool(errors[0] <= VALID_ERROR * zero_loss)
        for threshold in THRESHOLDS:
            radius, censored = crossing(radii, errors, threshold * zero_loss)
            rows.append((width, horizon, seed, threshold, radius, censored, valid, float(errors[0]), zero_loss))
    return pd.DataFrame(rows, columns=list(COLUMNS))
