"""Stability radii: the largest weight perturbation with a change (``perturbation.reading``) below a threshold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memsweep.config.schema.trial import ERROR, METRIC, SELF
from memsweep.config.schema.trial import THRESHOLDS as THRESHOLDS
from memsweep.data.levels import SOLVED

if TYPE_CHECKING:
    import pandas as pd

THRESHOLD = min(THRESHOLDS)
"""The threshold of a radius that is given as one number: in figures, searches and comparisons."""
VALID_ERROR = 0.005
"""Largest unperturbed error, as a fraction of the zero predictor's loss, of a model that approximates its target."""
RESOLVED = 1e-3
"""Least growth of an error rate that counts, as a share of its way to chance: of a smaller one the size is chance."""
ABOVE, BELOW, BETWEEN, NOT_CENSORED = "above", "below", "between", ""

FOUND, INTERPOLATED = "found", "interpolated"
"""How a radius is known: the crossing itself was looked for, or it was read between two points of a curve."""

COLUMNS = (
    *("width", "horizon", "seed", "threshold", "radius", "radius_low", "radius_high"),
    *("censored", "valid", "error_at_zero", "zero_loss", "fit", "how", "reading"),
)
_LIMITS = {METRIC: SOLVED, SELF: VALID_ERROR}


def largest_fit(reading: str) -> float:
    """The largest ``fit`` of a valid model."""
    return _LIMITS.get(reading, VALID_ERROR)


_SAME = 1e-5  # a change is the limit where it was put there, in either type of numbers


@dataclass(frozen=True)
class Crossing:
    """The crossing of an error limit: between two radii, which are equal where it is known exactly.

    Attributes:
        low, high: bounds of the radius; 0 and inf where the crossing is outside of the radii of the curve.
        censored: "" (known), "above" the curve, "below" it, or "between" two of its radii, where the error jumps, to
            infinity or faster than the search could follow.
        radius: one number for figures and medians: the largest radius known to be inside the limit, or the curve's
            smallest radius.
        how: FOUND or INTERPOLATED.
    """

    low: float
    high: float
    censored: str
    radius: float
    how: str = INTERPOLATED


@dataclass(frozen=True)
class Curve:
    """The curve of one replica.

    Attributes:
        radii: increasing, the first is 0.
        errors: what radii are read from at each of them (``change``), nondecreasing, may be inf.
        zero_loss: the zero predictor's, or what else the changes are shares of.
        unmoved: the error without perturbation.
        looked_for: threshold -> the radius at which its crossing was looked for, and the change there.
        reading: what the radii are read from (``perturbation.reading``, or METRIC or SELF).
    """

    width: int
    horizon: int
    seed: int
    radii: np.ndarray
    errors: np.ndarray
    zero_loss: float
    unmoved: float
    looked_for: Mapping[float, tuple[float, float]]
    reading: str = ERROR

    @property
    def fit(self) -> float:
        """The error without perturbation: as a share of the zero predictor's loss, or of the error rate at chance."""
        whole = self.zero_loss + self.unmoved if self.reading == METRIC else self.zero_loss
        return self.unmoved / whole if whole > 0.0 else math.nan

    @property
    def valid(self) -> bool:
        """Whether the unperturbed model approximates its target, or solves its task; by itself, whether it answers."""
        if self.reading in _LIMITS:
            return self.fit <= _LIMITS[self.reading]
        return self.unmoved <= VALID_ERROR * self.zero_loss

    def radius(self, threshold: float) -> Crossing:
        """The radius at a threshold: where it was looked for, and otherwise interpolated.

        Where it was looked for and not found, it lies between the last radius of the curve within the limit and the
        first one beyond it.
        """
        limit = threshold * self.zero_loss
        if threshold not in self.looked_for:
            return crossing(self.radii, self.errors, limit)
        radius, change = self.looked_for[threshold]
        if _is_limit(change, limit):
            return Crossing(radius, radius, NOT_CENSORED, radius, FOUND)
        within = self.errors <= limit
        low = float(self.radii[within].max(initial=0.0))
        high = float(self.radii[~within & (self.radii > 0.0)].min(initial=math.inf))
        return _censored(low, high, FOUND)


def _censored(low: float, high: float, how: str = INTERPOLATED) -> Crossing:
    """The crossing between two radii of a curve; ``low`` is 0 below the curve, ``high`` inf above it."""
    if high == math.inf:
        return Crossing(low, high, ABOVE, low, how)
    return Crossing(low, high, BETWEEN, low, how) if low > 0.0 else Crossing(low, high, BELOW, high, how)


def change(curves: pd.DataFrame) -> pd.Series:
    """What radii are read from: the column ``change``, and the error itself in tables that were written before it."""
    return curves["change"].fillna(curves["error"]) if "change" in curves else curves["error"]


def readings(curves: pd.DataFrame) -> pd.Series:
    """What the radii of these curves are read from: the error in tables that were written before the column."""
    import pandas as pd

    if "reading" not in curves:
        return pd.Series(ERROR, index=curves.index)
    return curves["reading"].astype(object).fillna(ERROR)


def of_grid(curves: pd.DataFrame) -> pd.DataFrame:
    """The rows at the radii of the grid, which all seeds share, without those at the radii of thresholds."""
    return curves[curves["threshold"].isna()] if "threshold" in curves else curves


def crossing(radii: np.ndarray, errors: np.ndarray, limit: float) -> Crossing:
    """The largest radius whose error stays at or below a limit, interpolated in log radius and log error.

    Args:
        radii: increasing, the first is 0.
        errors: nondecreasing, one per radius, may be inf.
        limit: the error allowed.
    """
    outside = np.flatnonzero(~(errors <= limit))
    if outside.size == 0:
        return _censored(float(radii[-1]), math.inf)
    first = int(outside[0])
    if first <= 1:  # there is no logarithm between radius 0 and the smallest radius
        return _censored(0.0, float(radii[1]))
    inner, outer = float(radii[first - 1]), float(radii[first])
    low, high = errors[first - 1], errors[first]
    if not math.isfinite(high) or low <= 0.0:
        return _censored(inner, outer)
    share = (math.log(limit) - math.log(low)) / (math.log(high) - math.log(low))
    radius = inner * (outer / inner) ** share
    return Crossing(radius, radius, NOT_CENSORED, radius)


def stability_radii(curves: pd.DataFrame, thresholds: Sequence[float] = THRESHOLDS) -> pd.DataFrame:
    """The radius of every replica at every threshold.

    Args:
        curves: perturbation curves of one condition and ball: columns width, horizon, seed, radius, error,
            zero_loss, and, where they were measured, change, threshold and reading.
        thresholds: changes, as fractions of the zero predictor's loss.

    Returns:
        One row per width, horizon, seed and threshold, with columns ``COLUMNS``; ``valid``: the
        unperturbed model approximates its target; ``fit``: its error as a share; ``how``: FOUND or INTERPOLATED.
    """
    import pandas as pd

    rows = []
    for curve in curves_of(curves):
        for threshold in thresholds:
            at = curve.radius(threshold)
            place = (curve.width, curve.horizon, curve.seed, threshold, at.radius, at.low, at.high, at.censored)
            rows.append((*place, curve.valid, curve.unmoved, curve.zero_loss, curve.fit, at.how, curve.reading))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def curves_of(curves: pd.DataFrame) -> Iterator[Curve]:
    """The curve of every replica, in the order of width, horizon and seed; rows that lack one of them are left out.

    Args:
        curves: as of ``stability_radii``.
    """
    keys = ["width", "horizon", "seed"]
    known = curves.dropna(subset=keys).assign(change=change(curves), reading=readings(curves))
    ordered = known.sort_values([*keys, "radius"])
    sides = [ordered[name].to_numpy() for name in keys]
    new = np.logical_or.reduce([side[1:] != side[:-1] for side in sides])
    starts = np.flatnonzero(np.append(len(ordered) > 0, new))
    ends = [*starts[1:], len(ordered)][: len(starts)]
    thresholds = ordered["threshold"].to_numpy(float) if "threshold" in ordered else np.full(len(ordered), math.nan)
    values = [ordered[name].to_numpy(float) for name in ("radius", "change", "error", "zero_loss")]
    read = ordered["reading"].to_numpy()
    for start, end in zip(starts, ends, strict=True):
        radii, changes, errors, zero_losses = (value[start:end] for value in values)
        looked_for = {
            float(threshold): (float(radius), float(at))
            for threshold, radius, at in zip(thresholds[start:end], radii, changes, strict=True)
            if not math.isnan(threshold)
        }
        width, horizon, seed = (side[start] for side in sides)
        growing, zero_loss = np.maximum.accumulate(changes), float(zero_losses[0])
        if read[start] == METRIC:
            growing = np.maximum(growing, RESOLVED * zero_loss)
            looked_for = _no_larger(looked_for, zero_loss)
        yield Curve(width, horizon, seed, radii, growing, zero_loss, float(errors[0]), looked_for, read[start])


def _no_larger(looked_for: Mapping[float, tuple[float, float]], zero_loss: float) -> dict[float, tuple[float, float]]:
    """Crossings none of which is beyond that of a larger threshold, whose push crosses the smaller ones as well.

    Each threshold has a push of its own, the worst for the loss; by an error rate another one may be worse.
    """
    least, kept = math.inf, dict[float, tuple[float, float]]()
    for threshold in sorted(looked_for, reverse=True):
        radius, change = looked_for[threshold]
        if _is_limit(change, threshold * zero_loss):
            radius = least = min(least, radius)
        kept[threshold] = radius, change
    return kept


def _is_limit(change: float, limit: float) -> bool:
    """Whether a change is the limit, where it was put when its radius was found."""
    return abs(change - limit) <= _SAME * limit
