"""An open question: one condition in one ball without a verdict, with what is between it and a verdict."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from scipy.special import stdtrit

from memsweep.stability.verdict.judgement import (
    GOOD_GRID,
    SMALLEST_GRID,
    SMALLEST_SEEDS,
    STEP_LIMIT,
    STEP_NOISE,
    Criteria,
    Trends,
)
from memsweep.stability.verdict.trend import CONFIDENCE, DECISION, LONG_RANGE, Slope

HORIZON, WIDTH, STEP, GROWTH = "horizon", "width", "step", "growth"
"""The subjects of intervals: the axis of a slope, one more width, the change at a small radius."""


@dataclass(frozen=True)
class Design:
    """The cells of one condition that decide: the longest horizon at every width, and every horizon at one width.

    Attributes:
        seeds: in each cell.
        widths, horizons: increasing.
        top: the width of the horizon slope; one of ``widths``.
    """

    seeds: int
    widths: tuple[int, ...]
    horizons: tuple[int, ...]
    top: int

    @property
    def cells(self) -> tuple[tuple[int, int], ...]:
        """(width, horizon) of each."""
        longest = self.horizons[-1]
        row = [(width, longest) for width in self.widths]
        return tuple(sorted({*row, *((self.top, horizon) for horizon in self.horizons)}))

    def usable(self, since: float) -> tuple[int, ...]:
        """The horizons that are long enough for a limit slope."""
        return tuple(horizon for horizon in self.horizons if horizon >= since)


@dataclass(frozen=True)
class Obstacle:
    """An interval that is compared with a limit, and reaches over it.

    Attributes:
        of: HORIZON, WIDTH, STEP or GROWTH.
        distance: of the estimate from the limit, positive on the side that is aimed at; nan: it has no estimate.
        reach: of the interval over seeds from the estimate towards the limit.
        between: of the estimates by range and transient, likewise; no number of seeds moves them.
        seeds: that enter.
        level: confidence of the interval.
        short: the slope is one over a range that is too short for the rule to say *unstable*; it can once the axis
            spans LONG_RANGE.
    """

    of: str
    distance: float
    reach: float
    between: float
    seeds: int
    level: float
    short: bool = False

    @property
    def error(self) -> float:
        """The standard error of the estimate."""
        return self.reach / student(self.seeds, self.level)

    def left(self, seeds: float, axis: float) -> float:
        """The part that would remain of the interval on the side of the limit.

        Args:
            seeds: factor of the reach by other seeds.
            axis: factor of the reach, and of ``between``, by other values of the axis.
        """
        return max(self.reach * seeds, self.between) * axis


@functools.lru_cache(maxsize=1024)
def student(seeds: int, level: float) -> float:
    """The quantile by which the standard error of a mean over seeds becomes half of an interval."""
    return float(stdtrit(seeds - 1, 0.5 + level / 2.0))


@dataclass(frozen=True)
class Question:
    """All that is known of one condition in one ball that has no verdict.

    Attributes:
        key: of the condition, the same in every round.
        name: in words.
        by_threshold, growth, limited, criteria: as the rule had them.
        design: what there is now.
        valid_widths, valid_horizons: how many enter a slope now.
        complete: seeds that approximate the target in every cell that enters.
        since: the least horizon of a limit slope.
        entering: of the widths from the smallest that enters a slope on, how many enter, and how many there are.
        regained: widths that enter no slope, and would with more seeds: at least half of their seeds approximate the
            target.
        kept: the share of the seeds that approximate the target at every width that enters then, at the longest
            horizon.
        kept_along: likewise at every horizon, at the width of the horizon slope.
        misfit: cell -> median error without perturbation of the seeds that miss the target, in units of the largest
            allowed one; the cells where fewer seeds than a verdict needs approximate it.
        below, above: whether radii end below or above the radii that were tried.
        found: the share of the largest known change that the search found.
        grows: axes on which values can be added.
        possible: whether the task and the model can have a width and a horizon.
        reasons: of the rule.
    """

    key: str
    name: str
    by_threshold: Mapping[float, Trends]
    growth: Slope
    limited: bool
    criteria: Criteria
    design: Design
    valid_widths: int
    valid_horizons: int
    complete: int
    since: float = 0.0
    entering: tuple[int, int] = (0, 0)
    regained: int = 0
    kept: float = 0.0
    kept_along: float = 0.0
    misfit: Mapping[tuple[int, int], float] = field(default_factory=dict)
    below: bool = False
    above: bool = False
    found: float = math.nan
    grows: tuple[str, ...] = (HORIZON, WIDTH)
    possible: Callable[[int, int], bool] = field(default=lambda width, horizon: True, compare=False)
    reasons: tuple[str, ...] = ()

    @functools.cached_property
    def gaps(self) -> tuple[str, ...]:
        """The things that the rule lacks for a slope, before any interval: ``seeds``, HORIZON, WIDTH."""
        return tuple(self.lacks(self.design, GOOD_GRID if not self._has_limit else SMALLEST_GRID))

    @property
    def _has_limit(self) -> bool:
        return all(each.horizon.limit.available for each in self.inside)

    def lacks(self, design: Design, horizons: int = SMALLEST_GRID) -> Iterator[str]:
        """The things that a design lacks for a slope, if its new cells fit the target as those that there are."""
        usable = design.usable(self.since)
        if design.seeds * self.share < SMALLEST_SEEDS:
            yield "seeds"
        unfit = self.valid_horizons == 0 and design.top == self.design.top
        unfit = unfit and design.seeds * self.kept_along < SMALLEST_SEEDS
        if unfit or len(usable) < horizons or usable[-1] < LONG_RANGE * usable[0]:
            yield HORIZON
        if len(design.widths) - self.lost + self._regained(design) < SMALLEST_GRID:
            yield WIDTH

    def _regained(self, design: Design) -> int:
        return self.regained if design.seeds * self.kept >= SMALLEST_SEEDS else 0

    def odds(self, design: Design) -> float:
        """The chance that as many of its new widths fit as a slope lacks: 1 where all fit so far.

        Where some miss, the next one may miss, too. It fits as often as those from the smallest that fits on, by
        Jeffreys' prior.
        """
        if not self.lost:
            return 1.0
        new = len(design.widths) - len(self.design.widths)
        least = SMALLEST_GRID - self.valid_widths - self._regained(design)
        fit, of = self.entering
        share = (fit + 0.5) / (of + 1.0)
        return math.fsum(
            math.comb(new, count) * share**count * (1.0 - share) ** (new - count)
            for count in range(max(least, 0), new + 1)
        )

    @property
    def lost(self) -> int:
        """How many widths enter no slope; the smallest ones are taken to be these."""
        return len(self.design.widths) - self.valid_widths

    @property
    def share(self) -> float:
        """The share of the seeds that approximate the target in every cell that enters, or would with more seeds."""
        known = self.complete / self.design.seeds or min(self.kept, self.kept_along)
        return max(known, 0.5 / self.design.seeds)

    @property
    def inside(self) -> list[Trends]:
        """Those of the thresholds whose radii are inside of the search."""
        return [each for each in self.by_threshold.values() if each.inside]

    @functools.cached_property
    def aims(self) -> tuple[tuple[Obstacle, ...], ...]:
        """Sets of obstacles; with each of them out of the way there is a verdict: first stable, then unstable.

        Along an axis that can grow, a slope over too short a range is held to go on as it is.
        """
        return (*self._stable(), *self._unstable())

    def _stable(self) -> Iterator[tuple[Obstacle, ...]]:
        kept: list[Obstacle | None] = [_kept(HORIZON, each.horizon.limit, self) for each in self.inside]
        kept += [_kept(WIDTH, each.along_width, self) for each in self.inside]
        kept += [_step(each.step, self) for each in self.inside]
        stable = [each for each in (*kept, _grown(self.growth, self)) if each is not None]
        if self.inside:
            yield tuple(each for each in stable if not each.left(1.0, 1.0) < each.distance)

    def _unstable(self) -> Iterator[tuple[Obstacle, ...]]:
        for each in self.by_threshold.values():
            for axis, trend in [(HORIZON, each.horizon)] + ([] if self.limited else [(WIDTH, each.width)]):
                if trend.limit.available:
                    yield (_shrunk(axis, trend.limit, self),)
                elif axis in self.grows and math.isfinite(trend.over_range.estimate):
                    yield (replace(_shrunk(axis, trend.over_range, self), short=True),)


def _kept(axis: str, slope: Slope, question: Question) -> Obstacle:
    """The slope's lower end is to stay above the limit."""
    between = slope.estimate - slope.between[0] if slope.between else 0.0
    low = slope.deciding[0] if slope.deciding else slope.low
    return _obstacle(axis, slope.estimate - question.criteria.slope_limit, slope.estimate - low, between, question)


def _shrunk(axis: str, slope: Slope, question: Question) -> Obstacle:
    """The slope's upper end is to fall below the limit."""
    between = slope.between[1] - slope.estimate if slope.between else 0.0
    high = slope.deciding[1] if slope.deciding else slope.high
    return _obstacle(axis, question.criteria.slope_limit - slope.estimate, high - slope.estimate, between, question)


def _step(step: Slope, question: Question) -> Obstacle | None:
    """One more width is to change the radius by little."""
    if not step.available:
        return None
    distance = step.estimate - STEP_NOISE if step.estimate >= STEP_LIMIT else step.estimate - STEP_LIMIT
    return _obstacle(STEP, distance, step.estimate - step.low, 0.0, question, CONFIDENCE)


def _grown(growth: Slope, question: Question) -> Obstacle | None:
    """The change at a small radius is to grow no faster with width than its limit."""
    if not growth.available:
        return None
    distance = question.criteria.growth_limit - growth.estimate
    return _obstacle(GROWTH, distance, growth.most - growth.estimate, 0.0, question)


def _obstacle(
    of: str, distance: float, reach: float, between: float, question: Question, level: float = DECISION
) -> Obstacle:
    return Obstacle(of, distance, reach, between, max(question.complete, 2), level)
