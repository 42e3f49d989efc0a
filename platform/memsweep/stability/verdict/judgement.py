"""A verdict with its evidence, and the limits that the rule compares slopes with."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from memsweep.stability.verdict.trend import Slope, Trend

SLOPE_LIMIT = -0.2
"""A radius shrinks if its slope is below this with confidence, and keeps its size if the slope is above it."""
GROWTH_LIMIT = 0.1
"""Largest slope of the error with width, at a fixed small radius, of a stable approximation."""
SMALLEST_GRID = 4
"""Smallest number of valid widths, and of valid horizons, for a slope."""
SMALLEST_SEEDS = 5
"""Smallest number of seeds for a verdict: the same ones are valid in every cell that enters."""
SMALLEST_RANGE = 10
"""Smallest longest horizon of a verdict, in time scales of the memory: before it, radii fall whatever the model."""
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
        "At one threshold at least the radius keeps shrinking as the horizon grows, or as the width grows where the "
        f"horizon does not limit it (upper bound of the limit slope below {SLOPE_LIMIT})."
    ),
    Verdict.INCONCLUSIVE: "The data neither show that the radius keeps shrinking nor that it keeps its size.",
}


@dataclass(frozen=True)
class Trends:
    """How the radius at one threshold changes.

    Attributes:
        horizon: along the horizons, at the largest width that is valid at all of them. Its limit slope decides.
        width: along the widths, at the longest horizon.
    """

    horizon: Trend
    width: Trend

    @property
    def along_width(self) -> Slope:
        """The width slope that decides: the limit slope, or the slope over widths that span too little for one.

        The latter can show that a radius keeps its size, and not that it keeps shrinking.
        """
        return self.width.limit if self.width.limit.available else self.width.over_range


@dataclass(frozen=True)
class Judgement:
    """A verdict and its evidence.

    Attributes:
        verdict: the answer.
        threshold: that of the slope which shows instability best, or else of the one that is nearest to showing it.
        width: the width of the horizon slope, the largest that is valid at every horizon; None without one.
        growth: slope of the error with width at ``small_radius``.
        small_radius: half the median 1 % radius of the smallest valid width at the largest horizon; nan without a
            valid width.
        modulus: largest growth of sqrt(error / zero loss) per unit of radius up to ``small_radius``, largest width at
            the largest horizon, median over seeds; reported, does not decide.
        horizon_limited: the slowest mode of a valid model is too slow for the horizon to show a slower one.
        reasons: sentences.
        extend: overrides of ``memsweep extend`` that would decide, each by itself; empty with a verdict.
        by_threshold: the trends at every threshold.
    """

    verdict: Verdict
    threshold: float
    width: int | None
    growth: Slope
    small_radius: float
    modulus: float
    horizon_limited: bool
    reasons: tuple[str, ...]
    extend: tuple[str, ...]
    by_threshold: Mapping[float, Trends]

    @property
    def slope_horizon(self) -> Slope:
        """The limit slope in the horizon at ``threshold``; nan where no slope can be trusted."""
        return self.by_threshold[self.threshold].horizon.limit

    @property
    def slope_width(self) -> Slope:
        """The deciding slope in the width at ``threshold``; nan where no slope can be trusted."""
        return self.by_threshold[self.threshold].along_width

    @property
    def unstable_by_horizon(self) -> bool:
        """Whether the radius keeps shrinking as the horizon grows, at a threshold at least."""
        return any(trends.horizon.limit.high < SLOPE_LIMIT for trends in self.by_threshold.values())
