"""How many evaluations of a loss the searches take, for the plan: one with its gradient counts as three.

Each function takes the settings, whether the loss is a closed form, and the shares of the data that are the few and the
more (``memsweep.stability.perturbation.moved.Sample``): evaluations on a part count by its share.
"""

from __future__ import annotations

import math

from memsweep.config.schema.trial import DRIFT, ERROR, PerturbationConfig
from memsweep.stability.perturbation.crossing import COLD, WARM
from memsweep.stability.perturbation.error import CLOSED, FINALISTS, STRONGER, apart, curve_places
from memsweep.stability.perturbation.search import PASSES, REACH
from memsweep.stability.verdict.radius import THRESHOLDS


def search(moved: PerturbationConfig, closed: bool, data: tuple[float, float], ball: str) -> float:
    """Of the search for the radii of a ball, and for its curve."""
    (few, more), read, starts = data, len(THRESHOLDS), _starts(closed, ball, moved.starts)
    curve = len(curve_places(moved.radii, moved.reading, closed=closed))
    whole, half = _ascent(moved.ascent_steps), _ascent((moved.ascent_steps + 1) // 2)
    first = few * (starts * (curve + math.log2(REACH)) + read * (starts * (whole + half) + 2 * (2 * read + COLD)))
    if moved.reading == ERROR:
        first += few * len(apart(moved.radii)) * starts * whole
    onward = more * read * (2 + half + WARM)
    along = curve * (1 + read + PASSES * (3 + half) if closed else more * 2 * (1 + read))
    last = 2 * curve + read * (5 + (COLD if closed else WARM))
    return _width(moved, closed) * (first + onward + along + last)


def stronger(moved: PerturbationConfig, closed: bool, data: tuple[float, float], ball: str) -> float:
    """Of the search that measures what the usual one misses, at two radii of a ball."""
    (few, more), usual = data, PerturbationConfig()
    starts = _starts(closed, ball, 2 * STRONGER * max(usual.starts, moved.starts))
    steps = max(usual.ascent_steps, moved.ascent_steps)
    onward = (few + more) * FINALISTS * _ascent((steps + 1) // 2)
    return 2 * _width(moved, closed) * (few * starts * _ascent(steps) + onward + 2 * FINALISTS)


def drawn(moved: PerturbationConfig) -> float:
    """Of random draws in a ball."""
    return moved.repeats * (moved.radii.count + len(THRESHOLDS) * (COLD + 1.0))


def worst_at(moved: PerturbationConfig, closed: bool, data: tuple[float, float], ball: str, radii: int) -> float:
    """Of a search for the worst push at so many radii."""
    few, more = data
    whole, half = _ascent(moved.ascent_steps), _ascent((moved.ascent_steps + 1) // 2)
    return radii * (few * _starts(closed, ball, moved.starts) * whole + more * (4 + half) + 3)


def _width(moved: PerturbationConfig, closed: bool) -> float:
    """The difference of two sums of modes has twice the modes."""
    return 2.0 if closed and moved.reading == DRIFT else 1.0


def _ascent(steps: int) -> int:
    """Its start, and a gradient for each step."""
    return 3 * steps + 1


def _starts(closed: bool, ball: str, drawn: int) -> int:
    """Those that theory predicts to be bad, and random ones."""
    return (2 if ball == "recurrent" else 4) + drawn * (CLOSED if closed else 1)
