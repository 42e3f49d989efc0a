"""Additions to a condition: more seeds, other horizons or widths, and repairs of what is there."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from memsweep.stability.verdict.judgement import SMALLEST_SEEDS
from memsweep.stability.verdict.trend import LONG_RANGE
from memsweep.studies.decide.question import HORIZON, WIDTH, Design, Question

SEEDS = (5, 6, 8, 10, 13, 16, 20, 25, 31, 40, 50, 63, 80, 100, 126, 160, 200)
"""Numbers of seeds of a design; the error rates of docs/evidence/decide.md are those of up to so many."""
LEARNERS_AMONG = 40
"""Most seeds that are trained so that as many learn as a verdict needs; more narrow the intervals of those that do."""
DOUBLINGS = 4
"""Most doublings of a horizon in one round."""
MIDDLES = 2
"""Most horizons, and most widths, between those that there are, in one round."""
WIDER = 2
"""Most doublings of the width in one round."""
BELOW, ABOVE, EFFORT, STEPS, LONGER = "below", "above", "effort", "steps", "longer"
"""Repairs: smaller radii, larger radii, a stronger search, twice the training of cells that miss, and of all cells."""


@dataclass(frozen=True)
class Option:
    """One thing that a round may do for a condition.

    Attributes:
        design: that the condition has then.
        repairs: settings that change in its trials, which are run anew then: BELOW, ABOVE, EFFORT, STEPS, LONGER.
    """

    design: Design
    repairs: tuple[str, ...] = ()

    def words(self, before: Design) -> str:
        """The additions in words: ``8 seeds in the place of 5, horizons 48 and 96``."""
        parts = [_REPAIRS[repair] for repair in self.repairs]
        if self.design.seeds != before.seeds:
            parts.append(f"{self.design.seeds} seeds in the place of {before.seeds}")
        for name in ("horizons", "widths"):
            new = sorted({*getattr(self.design, name)} - {*getattr(before, name)})
            if new:
                parts.append(f"{name[: None if new[1:] else -1]} {' and '.join(map(str, new))}")
        if self.design.top != before.top:
            parts.append(f"every horizon at width {self.design.top}")
        return ", ".join(parts) or f"the cells of {before.seeds} seeds that are missing"


_REPAIRS = {
    BELOW: "smaller radii",
    ABOVE: "larger radii",
    EFFORT: "a stronger search",
    STEPS: "twice the training where seeds miss the target",
    LONGER: "twice the training",
}


def designs(question: Question, seeds: Sequence[int] = SEEDS) -> Iterator[Option]:
    """Every design that could be next, the present one with its missing cells among them."""
    now = question.design
    more = sorted({max(now.seeds, SMALLEST_SEEDS), *(count for count in seeds if count > now.seeds)})
    for count, horizons, (widths, top) in itertools.product(more, _horizons(question), _widths(question)):
        yield Option(replace(now, seeds=count, horizons=horizons, widths=widths, top=top))


def _horizons(question: Question) -> Iterator[tuple[int, ...]]:
    """With doublings of the longest, and with values between; those that are too short for the memory are passed."""
    now = question.design.horizons
    if HORIZON not in question.grows or question.since == math.inf:  # no horizon is long enough
        yield now
        return
    axis = _Axis(now, functools.partial(question.possible, question.design.top))
    first = max(0, math.ceil(math.log2(max(question.since, 1.0) / now[-1])))
    for doublings in range(DOUBLINGS + 1):
        start = first or 1  # a memory that is longer than all horizons leaves the first of them unusable
        longer = [axis.from_on(now[-1] * 2**power) for power in range(start, start + doublings)]
        for middles in range(MIDDLES + 1):
            if None not in longer:
                yield axis.filled((*now, *filter(None, longer)), middles, question.since)


def _widths(question: Question) -> Iterator[tuple[tuple[int, ...], int]]:
    """With doublings of the largest, as far as a limit slope needs, and with values between.

    Each comes with the width of the horizon slope.
    """
    now, top = question.design.widths, question.design.top
    yield now, top
    if WIDTH not in question.grows:
        return
    axis = _Axis(now, lambda width: question.possible(width, question.design.horizons[-1]))
    for middles in range(1, MIDDLES + 1):
        yield axis.filled(now, middles), top
    longer = [[axis.from_on(now[-1] * 2**power) for power in range(1, count + 1)] for count in range(1, WIDER + 1)]
    least = math.ceil(LONG_RANGE * min(now[question.lost :], default=now[-1]))
    if least > now[-1] and [least] not in longer:
        longer.append([axis.from_on(least)])
    for wider in ((*now, *filter(None, new)) for new in longer if None not in new):
        yield from ((axis.filled(wider, middles), top) for middles in range(MIDDLES + 1))
        yield wider, wider[-1]


@dataclass(frozen=True)
class _Axis:
    """Values that could be added to an axis.

    A model may have some widths alone, as multiples of its heads: then a multiple of what all present values share
    takes the place of another one.

    Attributes:
        now: the present values.
        possible: whether a value can be had.
    """

    now: tuple[int, ...]
    possible: Callable[[int], bool]

    def from_on(self, value: int) -> int | None:
        """The value, or the next one that can be had; None where neither can."""
        shared = math.gcd(*self.now)
        return self._first((value, shared * math.ceil(value / shared)))

    def filled(self, values: Sequence[int], count: int, since: float = 0.0) -> tuple[int, ...]:
        """The values with so many more between them, each in the middle of the widest gap in which one can be had."""
        found, full = sorted(values), set[tuple[int, int]]()
        while count:
            gaps = [(b / a, a, b) for a, b in itertools.pairwise(found) if a >= since and (a, b) not in full]
            if not gaps:
                break
            _, low, high = max(gaps, key=lambda gap: (round(gap[0], 3), -gap[1]))  # short ones cost least
            if (middle := self._between(low, high)) is None:
                full.add((low, high))
            else:
                found, count = sorted({*found, middle}), count - 1
        return tuple(found)

    def _between(self, low: int, high: int) -> int | None:
        shared, middle = math.gcd(*self.now), math.sqrt(low * high)
        return self._first(value for value in (round(middle), shared * round(middle / shared)) if low < value < high)

    def _first(self, values: Iterable[int]) -> int | None:
        return next(filter(self.possible, values), None)
