"""A verdict with its evidence, and the limits that the rule compares slopes with."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from memsweep.errors import ConfigError
from memsweep.stability.verdict.radius import THRESHOLDS, VALID_ERROR
from memsweep.stability.verdict.trend import Slope, Trend

RULE_VERSION = 1
"""Of the rule: one more with each change of it by which the same stored results may get another verdict.

Every verdict carries it. A report, a comparison and Python judge the stored results anew by the rule of today; a
finished study whose report was written by another version is judged again when it is swept.
"""
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


@dataclass(frozen=True)
class Criteria:
    """The two choices of the verdict rule that a reader of stored results may make otherwise.

    The error rates in docs/verdict.md are those of the defaults.

    Attributes:
        thresholds: errors, as fractions of the zero predictor's loss, at which radii are read; increasing, above
            ``VALID_ERROR``, which every model has without a perturbation, and at most 1.
        slope_limit: a radius shrinks if its slope is below this with confidence; below 0.

    Raises:
        ConfigError: a value is not allowed.
    """

    thresholds: tuple[float, ...] = THRESHOLDS
    slope_limit: float = SLOPE_LIMIT

    def __post_init__(self) -> None:
        allowed = f"thresholds are shares of the zero predictor's loss above {VALID_ERROR:g} and at most 1"
        problems = [f"{allowed}, got {value:g}" for value in self.thresholds if not VALID_ERROR < value <= 1]
        if not self.thresholds:
            problems.append(f"{allowed}, got none: give one at least, such as 0.01")
        if not -math.inf < self.slope_limit < 0:
            problems.append(f"the slope limit is a number below 0, such as {SLOPE_LIMIT:g}, got {self.slope_limit:g}")
        if problems:
            raise ConfigError(problems, "the criteria of the verdict")
        object.__setattr__(self, "thresholds", tuple(sorted({*self.thresholds})))


DEFAULT = Criteria()
"""The rule of docs/verdict.md."""


class Verdict(enum.StrEnum):
    """The answer for one model, parameterization, kernel and ball."""

    STABLE = "stable"
    UNSTABLE = "unstable"
    INCONCLUSIVE = "inconclusive"


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
        criteria: the thresholds, and the limit of the slopes.
        rule_version: of the rule that gave the verdict.
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
    criteria: Criteria = DEFAULT
    rule_version: int = field(default_factory=lambda: RULE_VERSION)

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
        return any(trends.horizon.limit.high < self.criteria.slope_limit for trends in self.by_threshold.values())
