"""The cells of a study, seen by the paths of their configurations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from memsweep import registry
from memsweep.config.claims.comparisons import MISSING, at_path, fits
from memsweep.config.schema.axes import ROWS, root
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.search import Search
from memsweep.config.schema.trial import TrialConfig


class Cells:
    """What values the fields of a study have.

    Args:
        rows: a trial for each cell.
        axes: of the grid, dotted path -> values as written.
        search: what is searched in the cells.

    Attributes:
        axes: those of the grid, ``rows`` taken apart by section, and the searched choices.
        searched: paths that are searched.
    """

    def __init__(self, rows: Sequence[TrialConfig], axes: Mapping[str, Sequence[Any]], search: Search | None) -> None:
        self.rows = rows
        self.grid = axes
        space = search.space if search is not None else {}
        self.searched = frozenset(space)
        choices = {path: domain.values for path, domain in space.items() if not domain.is_numeric}
        self.axes: dict[str, Sequence[Any]] = {**_by_section(axes), **choices}
        self._known: dict[tuple[int, str], Any] = {}

    @cached_property
    def _parts(self) -> dict[str, dict[Any, dict[str, Any]]]:
        """Section -> its different values in the rows -> the section as plain data: there are far fewer than rows."""
        found: dict[str, dict[Any, dict[str, Any]]] = {}
        for name in (field.name for field in dataclasses.fields(TrialConfig)):
            objects = {id(part): part for row in self.rows if (part := getattr(row, name)) is not None}
            found[name] = {part: {name: to_dict(part)} for part in dict.fromkeys(objects.values())}
        return found

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Every path of every row's configuration, parts and their fields."""
        found: dict[str, None] = {}
        for parts in self._parts.values():
            for data in parts.values():
                found |= dict.fromkeys(_paths(data, ""))
        return tuple(found)

    def fields(self, axis: str) -> tuple[str, ...]:
        """What an axis of the grid sets: itself, or the fields in its values where they are mappings."""
        found: dict[str, None] = {}
        for value in self.grid[axis]:
            found |= dict.fromkeys(_leaves(value, root(axis)))
        return tuple(found)

    def value(self, row: TrialConfig, path: str) -> Any:
        """What a row has at a path; ``MISSING`` where it has no such field."""
        section = path.split(".")[0]
        part = getattr(row, section)
        if part is None:
            return MISSING
        known = (id(part), path)  # rows share their parts, and hashing one takes longer than all else here
        if known not in self._known:
            self._known[known] = at_path(self._parts[section][part], path)
        return self._known[known]

    def values(self, path: str) -> list[Any]:
        """The different values that a path may have, in order."""
        if path in self.axes:
            return list(self.axes[path])
        parts = self._parts.get(path.split(".")[0], {})
        found = {key(value): value for data in parts.values() if (value := at_path(data, path)) is not MISSING}
        return list(found.values())

    def chosen(self, *sides: Mapping[str, Any]) -> list[TrialConfig]:
        """The cells that fit these conditions, searched fields aside."""
        wanted = {path: value for side in sides for path, value in side.items() if path not in self.searched}
        return [row for row in self.rows if all(fits(self.value(row, path), wanted[path]) for path in wanted)]

    def reported(self) -> frozenset[str]:
        """What all tasks report of each replica."""
        classes = {registry.get(registry.TASK, row.task.name) for row in self.rows}
        return frozenset.intersection(*(frozenset(getattr(each, "reports", ())[:1]) for each in classes))


def _by_section(axes: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The axes, and in the place of ``rows`` one for each section that they name."""
    found: dict[str, Sequence[Any]] = {axis: values for axis, values in axes.items() if axis != ROWS}
    for section in dict.fromkeys(section for row in axes.get(ROWS, ()) for section in row):
        told = {key(row[section]): row[section] for row in axes[ROWS] if section in row}
        found[section] = [*found.get(section, ()), *told.values()]
    return found


def key(value: Any) -> str:
    """A value as text: equal for equal values."""
    return json.dumps(value, sort_keys=True, default=str)


def _paths(data: Mapping[str, Any], path: str) -> Iterator[str]:
    for key, value in data.items():
        here = f"{path}.{key}" if path else str(key)
        yield here
        if isinstance(value, Mapping):
            yield from _paths(value, here)


def _leaves(value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, Mapping) or not value:
        yield path
    else:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}".lstrip("."))
