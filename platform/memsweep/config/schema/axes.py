"""The axes of a grid: dotted paths with lists of values."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from memsweep.config.core.elsewhere import nearest
from memsweep.config.core.merge import by_path, leaves
from memsweep.config.core.problems import lies_in, sentence, show
from memsweep.config.core.reflect import keys
from memsweep.config.schema.chain import CHAIN
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import did_you_mean

Axes = dict[str, tuple[Any, ...]]

_MOST_LEVELS = 32

ROWS = "rows"
"""The axis whose values are whole rows of a table: settings of several sections that belong together."""


def root(axis: str) -> str:
    """The path under which an axis sets the fields in its values; empty for ``rows``, whose values name sections."""
    return "" if axis == ROWS else axis


def flatten_axes(grid: Any, problems: list[str]) -> dict[str, Any]:
    """The grid of a study file with dotted paths in place of nested mappings; values as they were written."""
    if grid is None or grid == {}:
        return {}
    if not isinstance(grid, Mapping):
        problems.append(sentence("grid", "must be a mapping of dotted paths to lists of values", show(grid)))
        return {}
    return by_path(leaves(grid), "grid", problems)


def valid_axes(written: Mapping[str, Any], problems: list[str]) -> Axes:
    """The valid axes; the reasons against the others are added to ``problems``."""
    axes: Axes = {}
    for path, values in written.items():
        if problem := _problem(path, values):
            problems.append(problem)
            continue
        twice = duplicates(values)
        if twice:
            rule = f"names a value twice: {', '.join(twice)}. Every value makes a trial of its own"
            problems.append(sentence(f"grid.{path}", rule))
        axes[path] = tuple(value for index, value in enumerate(values) if not twice or value not in values[:index])
    problems += _overlaps(axes)
    return axes


def _overlaps(axes: Axes) -> Iterator[str]:
    """A sentence for each axis that would replace values of rows, or of another axis over a group of fields."""
    for group, axis in itertools.permutations(axes, 2):
        if group != ROWS and not lies_in(axis, group):
            continue
        over = list(_fields(axis, axes[axis]))
        for path, value in _fields(group, axes[group]):
            if any(field == path and other != value for field, other in over):
                named = "" if path == axis else f"{path} "
                rule = f"{named}is set by the axis {group} of the grid, too. Take it out of one of them"
                yield sentence(f"grid.{axis}", rule)
                break


def _fields(axis: str, values: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """The fields that the values of an axis set, each with its value; a part is its name."""
    for value in values:
        for path, inner in leaves(value, root(axis)):
            if inner != {}:
                yield path.removesuffix(".name"), inner


def _problem(path: str, values: Any) -> str | None:
    section = path.split(".")[0]
    sections = keys(TrialConfig)
    if path == ROWS:
        return _rows_problem(values, [name for name in sections if name != CHAIN])
    if section not in sections:
        reason = (
            "holds for the whole study and cannot be swept"
            if section in ("name", "resources", "protocol", "keep", "claims", "search", "confirm", "decide")
            else "no such field"
        )
        meant = did_you_mean(section, sections) if "." in path else ""
        meant = meant or nearest(path, "grid.") or did_you_mean(section, sections)
        meant = " Rules give some trials other ones (resources.rules)." if section == "resources" else meant
        start = f"A path of the grid begins with {', '.join(sections)}, or is {ROWS}"
        return sentence(f"grid.{path}", f"{reason}.{meant} {start}")
    if path.count(".") > _MOST_LEVELS:
        return sentence(f"grid.{path}", f"is nested more than {_MOST_LEVELS} levels deep, and no field is")
    if not isinstance(values, list | tuple):
        return sentence(f"grid.{path}", "must be a list of the values to try: [...]", show(values))
    if not values:
        return sentence(f"grid.{path}", "is empty. Give it at least one value, or leave the axis out")
    return None


def _rows_problem(values: Any, sections: Iterable[str]) -> str | None:
    rule = f"must be a list of rows, each a mapping of sections ({', '.join(sections)}) to their settings"
    if not isinstance(values, list | tuple) or not values:
        return sentence(f"grid.{ROWS}", rule, show(values))
    for row in values:
        if not isinstance(row, Mapping) or not set(row) <= set(sections):
            return sentence(f"grid.{ROWS}", rule, show(row))
    return None


def duplicates(values: Any) -> list[str]:
    """The values that occur more than once, spelled out; at most five."""
    seen: dict[str, int] = {}
    for value in values:
        key = json.dumps(value, sort_keys=True, default=str)
        seen[key] = seen.get(key, 0) + 1
    return [show(json.loads(key)) for key, count in seen.items() if count > 1][:5]
