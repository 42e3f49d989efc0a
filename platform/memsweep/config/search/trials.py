"""The trials that the ends of the searched domains make of a study's cells, and what is wrong with them.

The ends of every domain, or each of its choices, are set in the cells, and the results are built like any trial. So a
field's own limits, and settings that exclude each other, are reported before anything runs. A search refuses other
suggestions when they are made.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memsweep.config.core.build import INVALID, build
from memsweep.config.core.merge import edited
from memsweep.config.core.problems import Problem, sentence, show
from memsweep.config.core.reflect import layout
from memsweep.config.grid.causes import Causes
from memsweep.config.schema.axes import Axes, root
from memsweep.config.schema.canonical import MISSING, plain_at
from memsweep.config.schema.search import Domain, same
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.domains import Space, fields_of, order, overlap, set_paths
from memsweep.config.search.suggestion import fixed_of, in_order, shortest_form

_HOME = "search"
_MOST_BUILT = 3_000
_MOST_TOGETHER = 128
"""Combinations of values that are built in one cell; where there are more, each value beside the others' first."""
_EVERY = 16
"""A domain of so many whole numbers is represented by all of them."""


def extreme_trials(
    space: Space, cells: Sequence[TrialConfig], axes: Axes, base: Mapping[str, Any], problems: list[str]
) -> list[TrialConfig]:
    """The trials that the ends of the domains make of the cells; what is wrong with others is added to ``problems``.

    Args:
        space: what is searched.
        cells: the valid trials of the study's grid.
        axes: of the grid.
        base: plain data of the study's base trial.
        problems: collects what is wrong, each mistake once.
    """
    values = {path: _ends(domain) for path, domain in space.items()}
    combinations = _combinations(space, values)
    # as many cells in equal distances as can be built
    chosen = range(0, len(cells), math.ceil(len(cells) * len(combinations) / _MOST_BUILT) or 1)
    sizes = [len(axis) for axis in axes.values()]
    # where cells are left out, a cell's number does not tell its place on the axes
    places = list(itertools.product(*map(range, sizes))) if len(cells) == math.prod(sizes) else []
    # where some cells are left out, a value of an axis that causes a problem may be among them: none is named
    causes = Causes({**values, **(axes if len(chosen) == len(cells) else {})}, home=_HOME)
    set_fields, changed = list(_set_by(base)), set_paths(space)
    wrong: dict[str, None] = {}
    trials: list[TrialConfig] = []
    for number in chosen:
        at_cell = dict(zip(axes, places[number], strict=True)) if places else {}
        entry = {axis: axes[axis][index] for axis, index in at_cell.items()}
        suggestions = _suggestions(space, combinations, fixed_of(cells[number], space))
        if {} in suggestions:
            wrong |= {_nothing_searched(entry): None}
        base, cell_trials = shortest_form(cells[number]), list[TrialConfig]()
        for suggestion in suggestions:
            at = {path: values[path].index(value) for path, value in suggestion.items()}
            refused = list[Problem]()
            trial = build(TrialConfig, edited(TrialConfig, base, in_order(suggestion)), "", refused)
            cell_trials += [trial] if trial is not INVALID else []
            causes.add(refused, at | at_cell if len(chosen) == len(cells) else at)
        trials += cell_trials
        wrong |= dict.fromkeys(_lost(cells[number], entry, cell_trials, changed, set_fields))
    problems += [*wrong, *causes.sentences()]
    return trials


def _nothing_searched(cell: Mapping[str, Any]) -> str:
    words = ", ".join(f"{axis}={show(value)}" for axis, value in cell.items())
    where = f" (in the cell {words})" if words else ""
    return sentence(_HOME, f"nothing is searched where no condition holds{where}. Search a field there")


def _combinations(space: Space, values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Combinations in which every value of every searched field occurs: all where they are few, else one by one."""
    paths = order(space)
    if math.prod(map(len, values.values())) <= _MOST_TOGETHER:
        return [dict(zip(paths, each, strict=True)) for each in itertools.product(*(values[path] for path in paths))]
    usual = {path: values[path][0] for path in paths}
    return [{**usual, **_enabling(space, path), path: value} for path in paths for value in values[path]]


def _suggestions(
    space: Space, combinations: Sequence[Mapping[str, Any]], fixed: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The different suggestions in a cell: of each combination, the fields whose conditions hold there."""
    suggestions: dict[str, dict[str, Any]] = {}
    for combination in combinations:
        suggestion: dict[str, Any] = {}
        for path, value in combination.items():
            if space[path].applies({**fixed, **suggestion}):
                suggestion[path] = value
        suggestions[repr(suggestion)] = suggestion
    return list(suggestions.values())


def _enabling(space: Space, path: str) -> dict[str, Any]:
    """Values of searched fields under which the conditions of a field hold."""
    enabled: dict[str, Any] = {}
    for other, wanted in space[path].when.items():
        if other in space:
            enabled |= {**_enabling(space, other), other: wanted[0]}
    return enabled


def _ends(domain: Domain) -> tuple[Any, ...]:
    if domain.is_whole and domain.high - domain.low < _EVERY:
        return tuple(range(int(domain.low), int(domain.high) + 1))
    return domain.ends


def _lost(
    cell: TrialConfig,
    entry: Mapping[str, Any],
    trials: Sequence[TrialConfig],
    changed: Sequence[str],
    set_fields: Sequence[str],
) -> Iterator[str]:
    """Fields that the study sets and that a suggestion would change although it does not name them.

    A default follows from other fields (of another model, say), and a value that equals it cannot be told from it.

    Args:
        cell, entry: a trial of the grid, and axis -> its value there.
        trials: the cell's trials under suggestions, which set the paths ``changed``.
        set_fields: paths that the study's base sets.
    """
    on_axes = dict.fromkeys(leaf for axis, value in entry.items() for leaf in fields_of(root(axis), value))
    for path in {**dict.fromkeys(set_fields), **on_axes}:
        section, _, key = path.partition(".")
        part: type = type(getattr(cell, section, None))
        if any(overlap(path, leaf) for leaf in changed) or (path not in on_axes and key in layout(part).deciders):
            continue
        before = plain_at(cell, path)
        after = next((now for trial in trials if not same(now := plain_at(trial, path), before)), before)
        # a part without such a field reports it itself
        if any(value is None or value is MISSING for value in (before, after)) or same(before, after):
            continue
        advice = f"Search it, too: {path}: {{choice: [{show(before)}]}}"
        if path in on_axes:
            advice = "Take the axis out of the grid, or the field that decides it out of the search"
        rule = f"a suggestion would set {path} to {show(after)}, and the study says {show(before)}"
        yield sentence(_HOME, f"{rule}. {advice}")


def _set_by(data: Mapping[str, Any]) -> Iterator[str]:
    """Paths of the fields that plain data of a trial sets; those inside a nested part belong to it and are left out."""
    for section, inner in data.items():
        for key, value in inner.items() if isinstance(inner, Mapping) else ():
            if key != "name" and value is not None and not isinstance(value, Mapping):
                yield f"{section}.{key}"
