"""What a verdict is made from, before it is put into words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memsweep.config.grid.time_scale import USABLE_SCALES
from memsweep.config.schema.trial import DRIFT
from memsweep.stability.verdict.judgement import Criteria, Trends, Verdict
from memsweep.stability.verdict.trend import Slope, Trend


@dataclass(frozen=True)
class Evidence:
    """What a verdict was made from.

    Attributes:
        verdict, by_threshold, growth, small_radius, limited, nonlinear, time_scale, criteria: as in ``rule.judge`` and
            ``Judgement``.
        widths: valid at the longest horizon.
        horizons: valid at the width of the horizon slope.
        width, fit_error: as in ``Judgement``.
        trained_widths, trained_horizons: all that were trained.
        top_widths: those of the widths that were trained at the longest horizon.
        seeds: how many were trained.
        complete_seeds: valid in every cell that enters, or that would at the width where most are.
        best_fit: the least error without perturbation, as a share of the zero predictor's loss.
        fitting: how many of the widths (at the longest horizon) and of the horizons (at any width) have as many valid
            seeds as a slope needs.
        fitting_once: how many of the widths have a valid seed at the longest horizon.
        unfit: horizons at which no seed of any width is valid.
        reading: what the radii are read from.
        sequences, needed_sequences: test sequences of a seed, and those that tell the smallest threshold; None where
            that is not known, or no matter.
    """

    verdict: Verdict
    by_threshold: Mapping[float, Trends]
    growth: Slope
    small_radius: float
    limited: bool
    nonlinear: bool
    widths: tuple[int, ...]
    horizons: tuple[int, ...]
    width: int | None
    fit_error: float
    trained_widths: tuple[int, ...]
    trained_horizons: tuple[int, ...]
    top_widths: tuple[int, ...]
    time_scale: float | None
    seeds: int
    complete_seeds: int
    best_fit: float
    fitting: tuple[int, int]
    fitting_once: int
    unfit: tuple[int, ...]
    criteria: Criteria
    reading: str = DRIFT
    sequences: int | None = None
    needed_sequences: int | None = None

    @property
    def top_horizon(self) -> int:
        """The longest that was trained."""
        return self.trained_horizons[-1]

    @property
    def usable(self) -> tuple[int, ...]:
        """The horizons that enter a limit slope."""
        return self.long_enough(self.horizons)

    def long_enough(self, horizons: Iterable[int]) -> tuple[int, ...]:
        """Those of the horizons that have as many time scales of the memory as a limit slope needs."""
        return tuple(horizon for horizon in horizons if horizon >= USABLE_SCALES * (self.time_scale or 0.0))

    def trends(self, axis: str) -> list[Trend]:
        """At every threshold, along ``horizon`` or ``width``."""
        return [getattr(trends, axis) for trends in self.by_threshold.values()]

    def slopes(self, axis: str) -> list[Slope]:
        """The deciding slopes at every threshold whose radii are inside of the search."""
        return [each.horizon.limit if axis == "horizon" else each.along_width for each in self.inside]

    @property
    def inside(self) -> list[Trends]:
        """Those of the thresholds whose radii are inside of the search."""
        return [each for each in self.by_threshold.values() if each.inside]

    @property
    def narrow(self) -> list[Slope]:
        """The slopes by which the radius shrinks too fast, over widths that span too little to show it."""
        if self.limited:
            return []
        found = [each.along_width for each in self.inside if not each.width.limit.available]
        return [slope for slope in found if slope.most < self.criteria.slope_limit]

    @property
    def may_be_unstable(self) -> bool:
        """Whether a slope that counts is below its limit by estimate, or more horizons would make one.

        No more horizons make a slope in the width.
        """
        lasting = self.time_scale == math.inf
        counted = [each.horizon.limit for each in self.inside if not (lasting and not each.horizon.limit.available)]
        counted += [] if self.limited else [each.along_width for each in self.inside if each.along_width.available]
        return any(not slope.available or slope.estimate < self.criteria.slope_limit for slope in counted)

    @property
    def beyond(self) -> str:
        """The thresholds that were left out, because all radii lie beyond the search; empty without one."""
        out = [threshold for threshold, trends in self.by_threshold.items() if not trends.inside]
        return f"{percents(out)} {'lies' if len(out) == 1 else 'lie'} beyond the search" if out else ""

    @property
    def where(self) -> str:
        """The thresholds that decide."""
        if not self.beyond:
            return "at every threshold"
        return f"at {percents(t for t, trends in self.by_threshold.items() if trends.inside)} ({self.beyond})"


def percents(thresholds: Iterable[float]) -> str:
    """``1% and 3%``."""
    return " and ".join(f"{100 * threshold:.3g}%" for threshold in thresholds)
