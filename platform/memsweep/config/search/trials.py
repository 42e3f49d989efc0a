"""The trials that the ends of the searched domains make of a study's cells, and what is wrong with them.

The ends of every domain, or each of its choices, are set in the cells, and the results are built like any trial. So a
field's own limits, and settings that exclude each other, are reported before anything runs. A search refuses other
suggestions when they are made.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from memsweep.config.core.build import INVALID, build
from memsweep.config.core.merge import merge
from memsweep.config.core.problems import Problem, sentence, show
from memsweep.config.core.reflect import keys
from memsweep.config.grid.causes import Causes
from memsweep.config.schema.axes import Axes, root
from memsweep.config.schema.search import Domain, same
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.domains import Space, leaves, meet, order, touched
from memsweep.config.search.suggestion import fixed_of, nested_values, plain_at, written

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
        cells: the valid rows of the study's grid.
        axes: of the grid.
        base: plain data of the study's base trial.
        problems: collects what is wrong, each mistake once.
    """
    values = {path: _ends(domain) for path, domain in space.items()}
    chosen = _representatives(cells, max(1, _MOST_BUILT // _count(values)))
    sizes = [len(axis) for axis in axes.values()]
    complete = len(cells) == math.prod(sizes)  # else a cell's number does not tell its place on the axes
    # where some cells are left out, a value of an axis that causes a problem may be among them: none is named
    causes = Causes({**values, **(axes if len(chosen) == len(cells) else {})}, home=_HOME)
    set_fields, changed = list(_set_by(base)), touched(space)
    wrong: dict[str, None] = {}
    trials: list[TrialConfig] = []
    for number in chosen:
        at_cell = dict(zip(axes, map(int, np.unravel_index(number, sizes)), strict=True)) if complete and sizes else {}
        entry = {axis: axes[axis][index] for axis, index in at_cell.items()}
        at_cell = at_cell if len(chosen) == len(cells) else {}
        cell_trials, lines = _in_cell(cells[number], entry, space, values, causes, at_cell)
        trials += cell_trials
        wrong |= dict.fromkeys([*lines, *_lost(cells[number], entry, cell_trials, changed, set_fields)])
    problems += [*wrong, *causes.sentences()]
    return trials


def _in_cell(
    cell: TrialConfig,
    entry: Mapping[str, Any],
    space: Space,
    values: Mapping[str, Sequence[Any]],
    causes: Causes,
    at_cell: Mapping[str, int],
) -> tuple[list[TrialConfig], list[str]]:
    """The valid trials of one cell, and sentences; what the others are refused for goes to ``causes``."""
    base, trials = written(cell), list[TrialConfig]()
    for suggestion in _suggestions(space, values, fixed_of(cell, space)):
        if not suggestion:
            words = ", ".join(f"{axis}={show(value)}" for axis, value in entry.items())
            where = f" (in the cell {words})" if words else ""
            return [], [sentence(_HOME, f"nothing is searched where no condition holds{where}. Search a field there")]
        problems: list[Problem] = []
        trial = build(TrialConfig, merge(TrialConfig, base, nested_values(suggestion)), "", problems)
        if trial is not INVALID:
            trials.append(trial)
        at = {path: values[path].index(value) for path, value in suggestion.items()}
        causes.add(problems, {**at, **at_cell})
    return trials, []


def _suggestions(
    space: Space, values: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Suggestions in which every value occurs: all combinations where they are few, else one value after the other."""
    paths = order(space)
    if math.prod(map(len, values.values())) <= _MOST_TOGETHER:
        combinations = (dict(zip(paths, each, strict=True)) for each in itertools.product(*(values[p] for p in paths)))
    else:
        usual = {path: values[path][0] for path in paths}
        combinations = ({**usual, **_enabling(space, p), p: value} for p in paths for value in values[p])
    seen: set[str] = set()
    for wanted in combinations:
        suggestion: dict[str, Any] = {}
        for path in paths:
            if space[path].applies({**fixed, **suggestion}):
                suggestion[path] = wanted[path]
        if repr(suggestion) not in seen:
            seen.add(repr(suggestion))
            yield suggestion


def _enabling(space: Space, path: str) -> dict[str, Any]:
    """Values of searched fields under which the conditions of a field hold."""
    enabled: dict[str, Any] = {}
    for other, wanted in space[path].when.items():
        if other in space:
            enabled |= {**_enabling(space, other), other: wanted[0]}
    return enabled


def _count(values: Mapping[str, Sequence[Any]]) -> int:
    """Suggestions for one cell, at most."""
    sizes = [len(some) for some in values.values()]
    return math.prod(sizes) if math.prod(sizes) <= _MOST_TOGETHER else sum(sizes)


def _ends(domain: Domain) -> tuple[Any, ...]:
    if domain.is_whole and domain.high - domain.low < _EVERY:
        return tuple(range(int(domain.low), int(domain.high) + 1))
    return domain.ends


def _representatives(cells: Sequence[TrialConfig], most: int) -> list[int]:
    """Numbers of the cells that are tried: all where they are few, else one of each form, and others in between.

    A form is a task and a model with their settings that are words or parts.
    """
    if len(cells) <= most:
        return list(range(len(cells)))
    forms: dict[tuple[Any, ...], int] = {}
    known: dict[int, tuple[Any, ...]] = {}
    for number, cell in enumerate(cells):
        for part in (cell.task, cell.model):
            if id(part) not in known:  # rows share their parts
                fields = tuple(v if isinstance(v, str) else type(v) for v in vars(part).values())
                known[id(part)] = (type(part), fields)
        forms.setdefault((known[id(cell.task)], known[id(cell.model)]), number)
    return sorted({*list(forms.values())[:most], *range(0, len(cells), math.ceil(len(cells) / most))})


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
        cell: the row.
        entry: axis -> its value there.
        trials: made of the cell by suggestions.
        changed: paths that suggestions set.
        set_fields: paths that the study's base sets.
    """
    on_axes = dict.fromkeys(leaf for axis, value in entry.items() for leaf in leaves(root(axis), value))
    for path in {**dict.fromkeys(set_fields), **on_axes}:
        if any(meet(path, leaf) for leaf in changed) or (path not in on_axes and _depends(path, cell)):
            continue
        before = _value(cell, path)
        after = next((now for trial in trials if not same(now := _value(trial, path), before)), before)
        if None in (before, after) or same(before, after):  # None: a part has no such field, which it reports itself
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


def _value(config: TrialConfig, path: str) -> Any:
    try:
        return plain_at(config, path)
    except KeyError:
        return None


def _depends(path: str, config: TrialConfig) -> bool:
    """Whether the default of a section's field follows from another field."""
    section, _, key = path.partition(".")
    part: type = type(getattr(config, section, None))
    field = keys(part).get(key) if dataclasses.is_dataclass(part) else None
    return field is not None and field.metadata.get("depends_on") is not None
