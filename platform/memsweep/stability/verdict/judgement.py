"""A verdict with its evidence, and the limits that the rule compares slopes with."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from memsweep.errors import ConfigError
from memsweep.stability.verdict.radius import THRESHOLDS, VALID_ERROR
from memsweep.stability.verdict.trend import NO_SLOPE, Slope, Trend

RULE_VERSION = 5
"""Of the rule: one more with each change of it by which the same stored results may get another verdict.

Every verdict carries it. A report, a comparison and Python judge the stored results anew by the rule of today; a
finished study whose report was written by another version is judged again when it is swept.
"""
SLOPE_LIMIT = -0.2
"""A radius that shrinks no faster than the horizon to this power is stable, one that shrinks faster is unstable."""
CHANGE_POWER = 2.0
"""A small push moves outputs in proportion, and a drift is a squared distance. So where a radius shrinks as m^s, the
drift at a fixed small push grows as m^(-2 s): both are held against one limit. Other readings take it over."""
STEP_LIMIT = -0.1
"""Least change of a log radius by one more width, at the longest horizon, where the widths suffice. Exact fits of
stable memories change by less than -0.01, those whose modes have run out by more than -0.14."""
STEP_NOISE = -0.2
"""What the change's interval may not reach, so that few or noisy seeds show no more than they can."""
SMALLEST_GRID = 4
"""Smallest number of valid widths, and of valid horizons, for a slope."""
GOOD_GRID = 5
"""Number of horizons to aim at: a fifth one does more for an interval than twice the seeds."""
SMALLEST_SEEDS = 5
"""Smallest number of seeds for a verdict: the same ones are valid in every cell that enters."""
HORIZON_LIMITED = 3.0
"""A model whose slowest rate times the horizon is below this cannot show a slower one at this horizon."""


@dataclass(frozen=True)
class Criteria:
    """The two choices of the verdict rule that a reader of stored results may make otherwise.

    The error rates in docs/verdict.md are those of the defaults.

    Attributes:
        thresholds: changes (``perturbation.reading``), as fractions of the zero predictor's loss, at which radii are
            read; increasing, above ``VALID_ERROR``, the largest error without perturbation, and at most 1.
        slope_limit: a radius is unstable if its slope is below this with confidence; below 0. It sets the limit of the
            change's growth with width, too.

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

    @property
    def growth_limit(self) -> float:
        """Largest slope of the change with width, at a fixed small radius, of a stable approximation."""
        return -CHANGE_POWER * self.slope_limit


DEFAULT = Criteria()
"""The rule of docs/verdict.md."""


class Verdict(enum.StrEnum):
    """The answer for one model, parameterization, kernel and ball."""

    STABLE = "stable"
    UNSTABLE = "unstable"
    INCONCLUSIVE = "inconclusive"


class Missing(enum.StrEnum):
    """What an undecided verdict may lack: trials first, then fits, then what the slopes leave open."""

    SEEDS = "seeds"
    HORIZONS = "horizons"
    WIDTHS = "widths"
    TOP_WIDTHS = "widths at the longest horizon"
    FIT = "fit"
    FITTING_WIDTHS = "fitting widths"
    FITTING_HORIZONS = "fitting horizons"
    FITTING_SEEDS = "fitting seeds"
    TIME_SCALE = "time scale of the memory"
    LONG_HORIZONS = "long horizons"
    HORIZON_SPAN = "horizon span"
    SPREAD = "spread of seeds"
    RADIUS = "radius inside the search"
    BOUND = "bound of a slope"
    WIDTH_SPAN = "width span"
    SLOPE = "slope apart from the limit"
    STEP = "widths that suffice"
    GROWTH = "growth below its limit"


@dataclass(frozen=True)
class Lack:
    """One thing that an undecided verdict lacks; headline, reasons and advice are made of them.

    Attributes:
        what: that is too little.
        have: how much there is: a count of what the name says; of ``FIT`` the least error, of ``HORIZON_SPAN`` and
            ``WIDTH_SPAN`` the factor, of ``SPREAD`` the values that differ, of ``RADIUS`` the thresholds, of ``BOUND``
            the bounds, of ``TIME_SCALE`` the time scales; of ``SLOPE``, ``STEP`` and ``GROWTH`` the seeds.
        need: how much a verdict needs, in the same unit; of ``FIT`` the largest error that counts; nan where it is not
            known.
        of: how many were trained, where ``have`` counts those of them that fit, or were trained at the longest horizon.
        overrides: words of ``memsweep extend``, each of which adds what is missing by itself; empty where none is known
            to.
    """

    what: Missing
    have: float
    need: float
    of: int | None = None
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trends:
    """How the radius at one threshold changes.

    Attributes:
        horizon: along the horizons, at the largest width that is valid at all of them. Its limit slope decides.
        width: along the widths, at the longest horizon.
        step: change of the log radius by one more width, at the longest horizon: near 0 where the widths suffice.
    """

    horizon: Trend
    width: Trend
    step: Slope = NO_SLOPE

    @property
    def along_width(self) -> Slope:
        """The width slope that decides: the limit slope, or the slope over widths that span too little for one.

        The latter can support that a radius is stable, and not that it is unstable.
        """
        return self.width.limit if self.width.limit.available else self.width.over_range

    @property
    def inside(self) -> bool:
        """Whether a radius is known to end within the range that was searched: without one there is no slope."""
        return not (self.horizon.outside or self.width.outside)

    @property
    def suffices(self) -> bool:
        """Whether the widths suffice: one more changes the radius by little, with confidence."""
        return self.step.estimate >= STEP_LIMIT and self.step.low > STEP_NOISE


@dataclass(frozen=True)
class Judgement:
    """A verdict and its evidence.

    Attributes:
        verdict: the answer.
        threshold: that of the slope which shows instability best, or else of the one that is nearest to showing it.
        width: the width of the horizon slope, the largest that is valid at every horizon; None without one.
        growth: slope of the change with width at ``small_radius``.
        small_radius: half the median 1 % radius of the smallest valid width at the largest horizon; nan without a
            valid width.
        modulus: largest growth of sqrt(change / zero loss) per unit of radius up to ``small_radius``, largest width at
            the largest horizon, median over seeds; reported, does not decide.
        horizon_limited: the slowest mode of a valid model is too slow for the horizon to show a slower one.
        reasons: sentences.
        extend: words of ``memsweep extend`` that would decide, each text by itself; empty with a verdict.
        lacks: what an undecided verdict lacks, the first first; empty with a verdict.
        by_threshold: the trends at every threshold.
        criteria: the thresholds, and the limit of the slopes, from which that of the growth follows.
        largest_width: up to which the radius was asked for at the longest horizon; None without a valid one.
        fit_error: largest error without perturbation, as a share of the zero predictor's loss, of the models that enter
            the slopes; nan without one.
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
    largest_width: int | None = None
    fit_error: float = math.nan
    lacks: tuple[Lack, ...] = ()
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
        """Whether the radius shrinks faster than the limit as the horizon grows, at a threshold at least."""
        return any(trends.horizon.limit.most < self.criteria.slope_limit for trends in self.by_threshold.values())

    @property
    def unstable_at(self) -> tuple[float, ...]:
        """The thresholds at which a radius shrinks faster than the limit, along an axis that counts."""
        return tuple(
            threshold
            for threshold, trends in self.by_threshold.items()
            if trends.horizon.limit.most < self.criteria.slope_limit
            or (not self.horizon_limited and trends.width.limit.most < self.criteria.slope_limit)
        )

    @property
    def shrinks(self) -> bool:
        """Whether a deciding slope lies below 0 with its whole 95 % interval, at a threshold at least."""
        slopes = ((trends.horizon.limit, trends.along_width) for trends in self.by_threshold.values() if trends.inside)
        return any(slope.high < 0 for pair in slopes for slope in pair)
