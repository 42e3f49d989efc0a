"""The base and the grid of a study under the overrides of a command line.

An override of a field wins over every axis that sets this field, so the axes are narrowed to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memsweep.config.core.merge import as_mapping, dropped_keys, leaves, merge, put, remove
from memsweep.config.core.reflect import config_of, decider, keys
from memsweep.config.load.overrides import GRID, Overrides
from memsweep.config.schema.axes import ROWS, flatten_axes
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import did_you_mean

_ABSENT = object()


def overlay_base(written: Mapping[str, Any], changes: Overrides) -> dict[str, Any]:
    """The study without its grid under the overrides; what is wrong is added to ``changes.problems``."""
    base = _with_values(written, changes.values)
    for path in changes.removed:
        if not remove(base, path.split(".")):
            changes.problems.append(
                f"the override '~{path}' removes a field that the study does not set. Leave it out."
            )
    return base


def overlay_grid(written: Mapping[str, Any], changes: Overrides) -> dict[str, Any]:
    """The axes of a study under the overrides, not yet checked.

    Values that only an axis can hold move from ``changes.values`` to the axes.
    """
    axes = flatten_axes(written.get(GRID), changes.problems)
    for path in changes.removed_axes:
        removed = [axis for axis in axes if not path or f"{axis}.".startswith(f"{path}.")]
        if not removed:
            known = f"{did_you_mean(path, axes)} There: {', '.join(axes) or 'no axes'}"
            changes.problems.append(f"the override '~grid.{path}' removes an axis that is not there.{known}.")
        for axis in removed:
            del axes[axis]
    fields, base = keys(TrialConfig), _with_values(written, changes.values)
    moved: set[str] = set()
    for path, value in changes.values:
        section = path.split(".")[0]
        config = config_of(TrialConfig, fields[section], base.get(section, {})) if section in fields else None
        moved |= _fix(axes, path, value, config)
    values = [leaf for path, value in changes.values for leaf in leaves(value, path)]
    changes.values = [(path, value) for path, value in values if path not in moved]
    axes.update(changes.axes)
    return axes


def _with_values(written: Mapping[str, Any], values: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for path, value in values:
        put(entry, path.split("."), value)
    return merge(TrialConfig, {key: value for key, value in written.items() if key != GRID}, entry)


def _fix(axes: dict[str, Any], path: str, value: Any, config: type | None) -> set[str]:
    """Make an override of a base value win over the axes that set its field; changes ``axes`` in place.

    An axis of this very path keeps the one value. An axis over a group of fields that holds this path keeps the entries
    that agree, or else loses the field. Where an axis would still drop the value from the base, the value becomes an
    axis of its own. ``config`` is the class of the section that the path begins with, where it is known.

    Returns:
        The paths of values that the base cannot hold, because they belong to a part that only the axes choose.
    """
    partial = isinstance(value, Mapping) and value and "name" not in value  # some fields of a group, not all of it
    if path in axes and not partial:
        axes[path] = [value]
        return set()
    if isinstance(value, Mapping) and value:
        return set().union(*[_fix(axes, f"{path}.{key}", inner, config) for key, inner in value.items()])
    dropped = _depends_on_axis(axes, path, config)
    moved = False
    for group in [group for group in axes if group == ROWS or path.startswith(f"{group}.")]:
        if isinstance(axes[group], list):
            _narrow(axes, group, path, value, config)
            moved |= group in axes and "." in group  # a nested part of another name replaces the base's part
    if moved or dropped:
        axes[path] = [value]
    return {path} if moved else set()


def _depends_on_axis(axes: Mapping[str, Any], path: str, config: type | None) -> bool:
    """Whether a trial may change the field on which this one depends, and so drop its value from the base."""
    section, _, key = path.partition(".")
    other = decider(config, key)
    return other is not None and any(name in axes for name in (section, f"{section}.{other}", ROWS))


def _narrow(axes: dict[str, Any], group: str, path: str, value: Any, config: type | None) -> None:
    """Keep the entries of an axis that agree with the value; where none has it, all entries lose the field."""
    at = path.removeprefix(f"{group}.").split(".")
    names_part = group == ROWS and len(at) == 1  # model=lru: the whole section of a row is another part's
    held = [*at, "name"] if names_part else at
    kept = [entry for entry in axes[group] if _at(entry, held) in (value, _ABSENT)]
    if not any(_at(entry, held) == value for entry in axes[group]):
        below = config if path.count(".") == 1 else None  # the class of a section, whose field the path names
        kept = [_without(entry if group == ROWS else as_mapping(entry), at, value, below) for entry in axes[group]]
        kept = [entry for index, entry in enumerate(kept) if entry not in kept[:index]]
    axes[group] = kept
    if kept == [{}]:
        del axes[group]


def _at(entry: Any, path: Sequence[str]) -> Any:
    for key in path:
        entry = as_mapping(entry)
        if not isinstance(entry, Mapping) or key not in entry:
            return _ABSENT
        entry = entry[key]
    return entry


def _without(entry: Any, path: Sequence[str], value: Any, config: type | None) -> Any:
    """The entry without one field, and without the fields that depended on its old value."""
    if not isinstance(entry, Mapping) or _at(entry, path) is _ABSENT:
        return entry
    key, *below = path
    if below:
        rest = _without(as_mapping(entry[key]), below, value, config)
        return {name: rest if name == key else inner for name, inner in entry.items() if name != key or rest}
    changed: dict[str, Any] = {}
    put(changed, path, value)
    dropped = {key, *dropped_keys(config, entry, changed)}
    return {name: inner for name, inner in entry.items() if name not in dropped}
