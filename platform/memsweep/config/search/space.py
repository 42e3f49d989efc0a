"""What is wrong with the searched fields of a study, seen on the cells in which they are searched.

Every domain is tried out: its ends, or each of its choices, are laid over the cells, and what comes of it is built like
any trial. So a field's own limits, and what fields together refuse, are found before anything runs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memsweep.config.core.build import INVALID, build
from memsweep.config.core.merge import merged
from memsweep.config.core.problems import Problem, sentence
from memsweep.config.grid.causes import Causes
from memsweep.config.schema.axes import Axes
from memsweep.config.schema.search import Domain
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.cells import Cell, indices_of, lost, representatives, set_by, touched_by
from memsweep.config.search.conditions import order
from memsweep.config.search.paths import wrong_kind
from memsweep.config.search.suggestion import fixed_of, nested_values, written

_HOME = "search"
_MOST_BUILT = 3_000
_MOST_TOGETHER = 128
"""Combinations of values that are tried in one cell; where there are more, each value beside the others' first."""
_EVERY = 16
"""A domain of so many whole numbers is tried with all of them."""

Space = Mapping[str, Domain]


def tried(
    space: Space, cells: Sequence[TrialConfig], axes: Axes, base: Mapping[str, Any], problems: list[str]
) -> list[TrialConfig]:
    """The trials that the ends of the domains make of the cells; what is wrong with others is added to ``problems``.

    Args:
        space: what is searched.
        cells: the valid rows of the study's grid.
        axes: of the grid.
        base: plain data of the study's base trial.
        problems: collects what is wrong, each mistake once.
    """
    values = {path: _values(domain) for path, domain in space.items()}
    looked = representatives(cells, max(1, _MOST_BUILT // _count(values)))
    at_cells = indices_of(cells, axes, looked)
    seen = {axis: sorted({at[axis] for at in at_cells.values()}) for axis in axes} if at_cells else {}
    shown = {axis: tuple(axes[axis][index] for index in indices) for axis, indices in seen.items()}
    causes = Causes({**values, **shown}, home=_HOME)
    touched, said = touched_by(space), list(set_by(base))
    told: dict[str, None] = {}
    made: list[TrialConfig] = []
    for number in looked:
        entry = {axis: axes[axis][index] for axis, index in at_cells.get(number, {}).items()}
        at_cell = {axis: seen[axis].index(index) for axis, index in at_cells.get(number, {}).items()}
        cell = Cell(cells[number], entry, at_cell)
        trials, wrong = _in_cell(cell, space, values, causes)
        made += trials
        told |= dict.fromkeys([*wrong, *lost(cell, trials, touched, said)])
    problems += [*told, *causes.sentences()]
    return made


def _in_cell(
    cell: Cell, space: Space, values: Mapping[str, Sequence[Any]], causes: Causes
) -> tuple[list[TrialConfig], list[str]]:
    """The valid trials of one cell, and sentences; what the others are refused for goes to ``causes``."""
    base, made = written(cell.config), list[TrialConfig]()
    wrong: dict[str, str | None] = {}
    for suggestion in _suggestions(space, values, fixed_of(cell.config, space)):
        if not suggestion:
            where = f" (in the cell {cell})" if cell.entry else ""
            return [], [sentence(_HOME, f"nothing is searched where no condition holds{where}. Search a field there")]
        data = merged(TrialConfig, base, nested_values(suggestion))
        for path in suggestion:
            if path not in wrong:
                wrong[path] = wrong_kind(path, space[path], data)
        found: list[Problem] = []
        trial = build(TrialConfig, data, "", found)
        if trial is not INVALID:
            made.append(trial)
        at = {path: values[path].index(value) for path, value in suggestion.items()}
        causes.add([problem for problem in found if not wrong.get(problem.path)], {**at, **cell.at})
    return made, [rule for rule in wrong.values() if rule]


def _suggestions(
    space: Space, values: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Suggestions in which every value occurs: all combinations where they are few, else one value after the other."""
    paths = order(space)
    if math.prod(map(len, values.values())) <= _MOST_TOGETHER:
        seen: list[dict[str, Any]] = []
        for together in itertools.product(*(values[path] for path in paths)):
            one = _applying(space, paths, dict(zip(paths, together, strict=True)), fixed)
            if one not in seen:
                seen.append(one)
                yield one
        return
    usual = {path: values[path][0] for path in paths}
    for path in paths:
        for value in values[path]:
            one = _applying(space, paths, {**usual, **_enabling(space, path), path: value}, fixed)
            if path in one or path == paths[0]:
                yield one


def _count(values: Mapping[str, Sequence[Any]]) -> int:
    """Suggestions for one cell, at most."""
    sizes = [len(some) for some in values.values()]
    return math.prod(sizes) if math.prod(sizes) <= _MOST_TOGETHER else sum(sizes)


def _applying(
    space: Space, paths: Sequence[str], wanted: Mapping[str, Any], fixed: Mapping[str, Any]
) -> dict[str, Any]:
    """The wanted values of those fields whose conditions hold among them."""
    found: dict[str, Any] = {}
    for path in paths:
        if space[path].applies({**fixed, **found}):
            found[path] = wanted[path]
    return found


def _enabling(space: Space, path: str) -> dict[str, Any]:
    """Values of searched fields under which the conditions of a field hold, as far as they are searched."""
    found: dict[str, Any] = {}
    for other, wanted in space[path].when.items():
        if other in space:
            found |= {**_enabling(space, other), other: wanted[0]}
    return found


def _values(domain: Domain) -> tuple[Any, ...]:
    if domain.is_whole and domain.high - domain.low < _EVERY:
        return tuple(range(int(domain.low), int(domain.high) + 1))
    return domain.ends
