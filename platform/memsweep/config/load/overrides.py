"""The ``key=value`` words of a command line, in Hydra's grammar, sorted by what they change."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memsweep.config.core.merge import dependents, put
from memsweep.config.core.problems import show
from memsweep.config.core.reflect import keys
from memsweep.config.load.words import MOST_VALUES, TooManyError, listed, refused, too_deep
from memsweep.config.schema.axes import ROWS

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

GRID = "grid"
SEARCH = "search"
_LONGEST_REASON = 100
_FORM = "Write key=value, for example training.steps=100, model.width=2,4,8 or 'name=\"my study\"'"


REMOVED: Final = object()
"""Stands for the value of a field that an override takes out."""


@dataclass
class Overrides:
    """What a command line changes in a study.

    Attributes:
        values: (dotted path, value) of the base configuration.
        axes: (dotted path, values) of the grid, new or replaced.
        removed: dotted paths to take out of the base.
        removed_axes: dotted paths to take out of the grid ("" for all of it).
        search: (dotted path below ``search``, value) in the order of the command line; REMOVED takes a field out.
        groups: words for Hydra itself: they choose a file of a config group.
        problems: sentences.
    """

    values: list[tuple[str, Any]] = field(default_factory=list)
    axes: list[tuple[str, Any]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    removed_axes: list[str] = field(default_factory=list)
    search: list[tuple[str, Any]] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def parse(words: Sequence[str], folder: Path) -> Overrides:
    """Sort the overrides of a command line.

    Args:
        words: as they were typed.
        folder: where the study file lies; its subfolders are Hydra's config groups.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser, result = OverridesParser.create(), Overrides(problems=refused(words))
    for word in words if not result.problems else ():
        try:
            override = parser.parse_override(word)
        except Exception as error:  # Hydra's own errors, and Python's: too many digits, too deep
            reason = next(iter(str(error).splitlines()), type(error).__name__)[:_LONGEST_REASON]
            result.problems.append(f"the override {show(word)} cannot be read ({reason}). {_FORM}.")
            continue
        _sort(override, word, folder, result)
    return result


def _sort(override: Override, word: str, folder: Path, result: Overrides) -> None:
    path = override.key_or_group
    if re.split(r"[./]", path)[0] == "hydra":
        result.problems.append(
            f"the override {show(word)} sets Hydra itself, which memsweep does not use. Leave it out."
        )
    elif not path:
        result.problems.append(f"the override {show(word)} cannot be read (it names nothing). {_FORM}.")
    elif "/" in path or override.package is not None or os.path.isdir(folder / path):
        _sort_group(word, result)
    elif deep := too_deep(path, override.value()):
        result.problems.append(f"the override {show(word)} cannot be read ({deep}). Make it flatter.")
    elif path == GRID or path.startswith(f"{GRID}."):
        _sort_grid(override, path.removeprefix(GRID).removeprefix("."), word, result)
    elif path == SEARCH or path.startswith(f"{SEARCH}."):
        _sort_search(override, path.removeprefix(SEARCH).removeprefix("."), word, result)
    elif override.is_delete():
        result.removed.append(path)
    elif override.is_sweep_override():
        result.axes += _axis(override, path, word, result)
    else:
        result.values.append((path, override.value()))


def _sort_group(word: str, result: Overrides) -> None:
    if "${" in word:
        result.problems.append(
            f"the override {show(word)} chooses a file by an interpolation. Write the file's name itself."
        )
    else:
        result.groups.append(word)


def _sort_grid(override: Override, path: str, word: str, result: Overrides) -> None:
    if override.is_delete():
        result.removed_axes.append(path)
    elif override.is_sweep_override():
        result.axes += _axis(override, path, word, result)
    else:
        value = override.value()
        if path or isinstance(value, Mapping):
            result.axes += leaves(path, value)
        else:
            result.problems.append(f"the override {show(word)} gives no axes. Write {GRID}.model.width=[2,4].")


def _sort_search(override: Override, path: str, word: str, result: Overrides) -> None:
    if override.is_delete():
        result.search.append((path, REMOVED))
    elif override.is_sweep_override():
        result.problems.append(
            f"the override {show(word)} lists values for a search, which has one of each setting. Write one value, "
            f"{SEARCH}.trials=40 say, or a domain: '{SEARCH}.training.learning_rate={{log_uniform: [1e-4, 1e-1]}}'."
        )
    else:
        result.search.append((path, override.value()))


def leaves(path: str, value: Any) -> list[tuple[str, Any]]:
    """A nested value as dotted paths: ``grid={model: {width: [2, 4]}}`` is the axis model.width."""
    if isinstance(value, Mapping) and value:
        return [leaf for key, inner in value.items() for leaf in leaves(f"{path}.{key}".lstrip("."), inner)]
    return [(path, value)]


def _axis(override: Override, path: str, word: str, result: Overrides) -> list[tuple[str, Any]]:
    room = MOST_VALUES - sum(len(values) for _, values in result.axes if isinstance(values, list))
    try:
        return [(path, listed(override, max(0, room)))]
    except TooManyError as error:
        result.problems.append(
            f"the override {show(word)} has {error} values, which makes more than {MOST_VALUES:,} in all axes. Take "
            "values out."
        )
        return []
    except Exception:  # a sweep without a list of values, or with bounds that are no numbers
        form = f"{path}=1,2,3 or {path}=range(1,10)"
        result.problems.append(f"the override {show(word)} does not list its values. For a grid write {form}.")
        return []


def fix(axes: dict[str, Any], path: str, value: Any, config: type | None) -> set[str]:
    """Make an override of a base value win over the axes that sweep it.

    Args:
        axes: the grid, changed in place. An axis of this very path keeps the one value; an axis over a group of
            fields that holds this path keeps the entries that agree, or else loses the field. Where an axis would
            still drop the value from the base, the value becomes an axis of its own.
        path: what the override sets.
        value: to what.
        config: the config dataclass of the section (the first word of the path), where it is known.

    Returns:
        The paths of values that the base cannot carry, because they belong to a part that only the axes choose.
    """
    partial = isinstance(value, Mapping) and value and "name" not in value  # some fields of a group, not all of it
    if path in axes and not partial:
        axes[path] = [value]
        return set()
    if isinstance(value, Mapping) and value:
        return set().union(*[fix(axes, f"{path}.{key}", inner, config) for key, inner in value.items()])
    dropped = _depends_on_axis(axes, path, config)
    carried = False
    for group in [group for group in axes if _holds(group, path) and isinstance(axes[group], list)]:
        if group == ROWS and "." not in path:
            _choose(axes, path, value)
            continue
        _narrow(axes, group, path.removeprefix(f"{group}.").split("."), value, config)
        carried |= group in axes and "." in group  # a nested part of another name replaces the base's part
    if carried or dropped:
        axes[path] = [value]
    return {path} if carried else set()


def _depends_on_axis(axes: Mapping[str, Any], path: str, config: type | None) -> bool:
    """Whether a row may change the field on which this one depends, and so drop its value from the base."""
    section, _, key = path.partition(".")
    field = keys(config).get(key) if config is not None else None
    decider = field.metadata.get("depends_on") if field is not None else None
    return decider is not None and any(name in axes for name in (section, f"{section}.{decider}", ROWS))


def _holds(group: str, path: str) -> bool:
    """Whether the values of an axis may set the field at a path below it."""
    return group == ROWS or path.startswith(f"{group}.")


def _narrow(axes: dict[str, Any], group: str, at: list[str], value: Any, config: type | None) -> None:
    entries, below = axes[group], config if "." not in group else None
    kept = [entry for entry in entries if _at(entry, at) in (value, _ABSENT)]
    if not any(_at(entry, at) == value for entry in entries):
        kept = []
        for entry in entries:
            stripped = _stripped(entry, at, value, config) if group == ROWS else _without(entry, at, value, below)
            if stripped not in kept:
                kept.append(stripped)
    axes[group] = kept
    if kept == [{}]:
        del axes[group]


def _stripped(row: Any, at: list[str], value: Any, config: type | None) -> Any:
    """A whole row without one field of one of its sections."""
    section, *path = at
    if not isinstance(row, Mapping) or section not in row or not path:
        return row
    rest = _without(row[section], path, value, config)
    return {key: rest if key == section else inner for key, inner in row.items() if key != section or rest}


def _choose(axes: dict[str, Any], section: str, name: Any) -> None:
    """Keep the rows whose section has this name; where none has, the rows lose the section: it was another's."""
    rows = [row for row in axes[ROWS] if _at(row, [section, "name"]) in (name, _ABSENT)]
    if not any(_at(row, [section, "name"]) == name for row in rows):
        rest = [{key: inner for key, inner in row.items() if key != section} for row in axes[ROWS]]
        rows = [row for index, row in enumerate(rest) if row not in rest[:index]]
    axes[ROWS] = rows
    if rows == [{}]:
        del axes[ROWS]


_ABSENT = object()


def _at(entry: Any, path: Sequence[str]) -> Any:
    for key in path:
        entry = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(entry, Mapping) or key not in entry:
            return _ABSENT
        entry = entry[key]
    return entry


def _without(entry: Any, path: Sequence[str], value: Any, config: type | None) -> Any:
    """The entry without one field, and without what depended on that field's old value."""
    entry = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, Mapping) or _at(entry, path) is _ABSENT:
        return entry
    changed: dict[str, Any] = {}
    put(changed, path, value)
    fallen = {path[0], *dependents(config, entry, changed)} if len(path) == 1 else set()
    rest = {key: inner for key, inner in entry.items() if key not in fallen}
    if len(path) > 1:
        below = _without(rest.pop(path[0]), path[1:], value, None)
        rest |= {path[0]: below} if below else {}
    return rest
