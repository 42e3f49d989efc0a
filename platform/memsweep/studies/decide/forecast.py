"""How likely an option brings a verdict: its expected effect on the intervals of a question."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.special import ndtr

from memsweep.stability.verdict.judgement import GOOD_GRID, SMALLEST_GRID, STEP_LIMIT
from memsweep.stability.verdict.trend import CENTRE, LONG_RANGE, slope_weights
from memsweep.studies.decide.options import Option
from memsweep.studies.decide.question import HORIZON, STEP, Design, Obstacle, Question, student


def chance(question: Question, option: Option) -> float:
    """The share of the cases in which the option is expected to bring a verdict, 0 to 1.

    What is not known is where the truth lies: about the present estimate, by its standard error, and the estimates by
    range and transient. After the option an estimate lies where the new cells put it, and its interval is narrower.
    Estimates of one condition go together, because seeds do: of several intervals the one least likely to keep clear
    of its limit counts, and of several ways to a verdict the likeliest.

    Args:
        question, option: what is open, and what would be added.
    """
    gaps, design = question.gaps, option.design
    horizons = GOOD_GRID if HORIZON in gaps and HORIZON in question.grows else SMALLEST_GRID
    if any(question.lacks(design, horizons)):
        return 0.0
    found = 0.0
    for aim in question.aims:
        # an interval that the rule could not make yet is passed over once nothing lacks for it
        known = [each for each in aim if not (gaps and math.isnan(each.distance))]
        if known or gaps:
            found = max(found, min((_clear(question, each, design) for each in known), default=1.0))
    return found


def _clear(question: Question, obstacle: Obstacle, design: Design) -> float:
    """How likely the interval keeps clear of its limit.

    Between two errors e and f an estimate moves by the root of |e^2 - f^2|: the better of both has the data of the
    other. Other values of the axis move it by what the choice of the range left open, too, as a uniform spread would.
    """
    if obstacle.of == STEP and obstacle.distance < 0.0 and design.top > question.design.top:
        # the change by one more width falls as one over the width, as exact fits of stable memories do
        fallen = (obstacle.distance + STEP_LIMIT) * question.design.top / design.top
        if fallen >= STEP_LIMIT:
            return 1.0
    if obstacle.short and not _is_long(_entering(question, obstacle.of, design)):
        return 0.0
    seeds, axis = _factors(question, obstacle, design)
    spare = obstacle.distance - obstacle.left(seeds, axis)
    if not math.isfinite(spare):
        return 0.0
    error = (
        seeds * axis * student(obstacle.seeds, obstacle.level) / student(_complete(question, design), obstacle.level)
    )
    ranged = obstacle.between / math.sqrt(3.0)
    spread = math.sqrt(obstacle.error**2 * abs(1.0 - error**2) + ranged**2 * abs(1.0 - axis**2))
    return float(ndtr(spare / spread)) if spread > 0.0 else float(spare > 0.0)


def _factors(question: Question, obstacle: Obstacle, design: Design) -> tuple[float, float]:
    """Of an interval's reach: by other seeds, and by other values of its axis."""
    counts = obstacle.seeds, _complete(question, design)
    error = [student(count, obstacle.level) / math.sqrt(count) for count in counts]
    return error[1] / error[0], _axis(question, obstacle, design)


def _complete(question: Question, design: Design) -> int:
    """Seeds that will enter, if as many of the new ones fit the target as of those that there are."""
    return max(2, round(design.seeds * question.share))


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
