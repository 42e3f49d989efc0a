"""The expected effect of an option on the intervals of a question."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from memsweep.stability.verdict.judgement import GOOD_GRID, SMALLEST_GRID, STEP_LIMIT
from memsweep.stability.verdict.trend import CENTRE, LONG_RANGE, slope_weights
from memsweep.studies.decide.options import Option
from memsweep.studies.decide.question import HORIZON, STEP, Design, Obstacle, Question, student


def decides(question: Question, option: Option, hope: float = 0.0) -> bool:
    """Whether a verdict is expected of the option.

    Args:
        question, option: what is open, and what would be added.
        hope: standard errors by which each estimate may turn out farther from its limit.
    """
    gaps, design = question.gaps, option.design
    horizons = GOOD_GRID if HORIZON in gaps and HORIZON in question.grows else SMALLEST_GRID
    if any(question.lacks(design, horizons)):
        return False
    for aim in question.aims:
        # an interval that the rule could not make yet is passed over once nothing lacks for it
        known = [each for each in aim if not (gaps and math.isnan(each.distance))]
        if all(_passes(question, each, design, hope) for each in known) and (known or gaps):
            return True
    return False


def narrowing(question: Question, option: Option, hope: float) -> float:
    """The part of the way to a verdict that the option is expected to go, 0 to 1; arguments as of ``decides``."""
    return max((_way(question, aim, option.design, hope) for aim in question.aims if aim), default=0.0)


def _way(question: Question, aim: Sequence[Obstacle], design: Design, hope: float) -> float:
    needed = gained = 0.0
    for each in aim:
        distance, now = each.distance + hope * each.error, each.left(1.0, _axis(question, each, question.design))
        if not (distance > 0.0 and math.isfinite(now)):
            return 0.0
        then = each.left(*_factors(question, each, design))
        way = max(0.0, math.log(now / distance))
        needed += way
        gained += min(way, math.log(now / then)) if then > 0.0 else way
    return gained / needed if needed > 0.0 else 0.0


def _passes(question: Question, obstacle: Obstacle, design: Design, hope: float) -> bool:
    if obstacle.of == STEP and obstacle.distance < 0.0 and design.top > question.design.top:
        # the change by one more width falls as one over the width, as exact fits of stable memories do
        fallen = (obstacle.distance + STEP_LIMIT) * question.design.top / design.top
        return fallen >= STEP_LIMIT
    if obstacle.short and not _is_long(_entering(question, obstacle.of, design)):
        return False
    return obstacle.passes(*_factors(question, obstacle, design), hope)


def _factors(question: Question, obstacle: Obstacle, design: Design) -> tuple[float, float]:
    """Of an interval's reach: by other seeds, and by other values of its axis."""
    complete = max(2, round(design.seeds * question.share))
    error = [student(count, obstacle.level) / math.sqrt(count) for count in (obstacle.seeds, complete)]
    return error[1] / error[0], _axis(question, obstacle, design)


def _axis(question: Question, obstacle: Obstacle, design: Design) -> float:
    """Of an interval's reach: by the values of its axis, over those that its estimate is made of.

    An obstacle of a short range is met by a limit slope alone, whose interval is wider than that of its estimate.
    """
    if obstacle.of == STEP:
        return 1.0
    now, then = (_entering(question, obstacle.of, each) for each in (question.design, design))
    if not obstacle.short:
        return _spread(then, limit=_is_long(then)) / _spread(now, limit=_is_long(now))
    estimated = question.design.horizons if obstacle.of == HORIZON else now
    return _spread(then, limit=True) / _spread(estimated, limit=False)


def _entering(question: Question, of: str, design: Design) -> tuple[int, ...]:
    """The values of an axis that enter a limit slope."""
    return design.usable(question.since) if of == HORIZON else design.widths[question.lost :]


def _is_long(values: tuple[int, ...]) -> bool:
    return len(values) >= SMALLEST_GRID and values[-1] >= LONG_RANGE * values[0]


@functools.lru_cache(maxsize=4096)
def _spread(values: tuple[int, ...], *, limit: bool) -> float:
    """The standard error of a slope over these values, in units of the noise of one of them; infinite over too few."""
    if len(values) < (SMALLEST_GRID if limit else 2):
        return math.inf
    return float(np.linalg.norm(slope_weights(np.array(values, float), CENTRE if limit else None)))
