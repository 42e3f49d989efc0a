"""The tree of a study: its protocol, its file and the command line as one mapping of plain data.

A word of the command line is an edit at a path of this tree (``memsweep.config.load.overrides`` says what a path
means). An edit of a field wins over every axis that sets this field, so the axes are narrowed to it. A field to which
the command line gives a value or an axis is not searched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from memsweep.config.core.merge import as_mapping, dropped_keys, leaves, merge, nested, put, remove
from memsweep.config.core.problems import lies_in
from memsweep.config.core.reflect import config_of, keys, layout
from memsweep.config.load.overrides import AXIS, FIELD, GRID, REMOVED, SEARCH, SEARCHED, Overrides
from memsweep.config.schema.axes import ROWS, flatten_axes
from memsweep.config.schema.canonical import MISSING
from memsweep.config.schema.claims import at_path
from memsweep.config.schema.protocols import PROTOCOL, for_trials
from memsweep.config.schema.search import KINDS
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.domains import SECTIONS, WHEN, flatten_fields, split_fields
from memsweep.errors import did_you_mean


def study_tree(written: Mapping[str, Any], changes: Overrides) -> dict[str, Any]:
    """The study with everything that is said of it, not yet checked.

    Args:
        written: what its file says.
        changes: the command line; what is wrong is added to its ``problems``.

    Returns:
        The study's sections. ``grid`` has dotted paths; ``search`` too, and is None where nothing is searched.
    """
    own = {key: value for key, value in written.items() if key not in (GRID, SEARCH)}
    named = None if PROTOCOL in changes.removed(FIELD) else own.get(PROTOCOL)
    protocol = for_trials(dict(changes.values).get(PROTOCOL, named))
    fields = [leaf for path, value in changes.values for leaf in leaves(value, path)]
    search = _searched(written.get(SEARCH), changes, [path for path, _ in fields])
    axes = flatten_axes(written.get(GRID), changes.problems)
    _remove_axes(axes, changes)
    tree = merge(TrialConfig, protocol, own, nested(fields))
    if of_axes := _fix(axes, tree, changes.values):
        tree = merge(TrialConfig, protocol, own, nested(field for field in fields if field[0] not in of_axes))
    for path, values in changes.axes:
        if not _joined(axes, path, values, _section(tree, path)):
            _cross(axes, path)
            axes[path] = values
    for path in changes.removed(FIELD):
        if not remove(tree, path.split(".")):
            changes.problems.append(
                f"the override '~{path}' removes a field that the study does not set. Leave it out."
            )
    return {**tree, GRID: axes, SEARCH: search}


def _remove_axes(axes: dict[str, Any], changes: Overrides) -> None:
    for path in changes.removed(AXIS):
        removed = [axis for axis in axes if not path or lies_in(axis, path)]
        if not removed:
            known = f"{did_you_mean(path, axes)} There: {', '.join(axes) or 'no axes'}"
            changes.problems.append(f"the override '~grid.{path}' removes an axis that is not there.{known}.")
        for axis in removed:
            del axes[axis]


def _fix(axes: dict[str, Any], tree: Mapping[str, Any], values: Iterable[tuple[str, Any]]) -> set[str]:
    """Makes values of fields win over the axes, which are changed in place.

    Returns:
        The paths of values that only the axes can hold, because they belong to a part that only the axes choose.
    """
    of_axes = set[str]()
    for path, value in values:
        of_axes |= _fix_one(axes, path, value, _section(tree, path))
    return of_axes


def _section(tree: Mapping[str, Any], path: str) -> type | None:
    """The class of the section that a path begins with, where it is known."""
    fields, section = keys(TrialConfig), path.partition(".")[0]
    return config_of(TrialConfig, fields[section], tree.get(section, {})) if section in fields else None


def _fix_one(axes: dict[str, Any], path: str, value: Any, config: type | None) -> set[str]:
    """Makes the value of one field, or of a group of them, win; arguments and result as of ``_fix``.

    An axis of this very path keeps the one value. An axis over a group of fields that holds this path keeps the entries
    that agree, or else loses the field. Where an axis would still drop the value from the tree, the value becomes an
    axis of its own. ``config`` is the class of the section that the path begins with, where it is known.
    """
    partial = isinstance(value, Mapping) and value and "name" not in value  # some fields of a group, not all of it
    if path in axes and not partial:
        axes[path] = [value]
        return set()
    if isinstance(value, Mapping) and value:
        return set().union(*[_fix_one(axes, f"{path}.{key}", inner, config) for key, inner in value.items()])
    dropped = _depends_on_axis(axes, path, config)
    moved = _narrow_groups(axes, path, value, config)
    if moved or dropped:
        axes[path] = [value]
    return {path} if moved else set()


def _narrow_groups(axes: dict[str, Any], path: str, value: Any, config: type | None) -> bool:
    """Narrows the axes whose values hold a field; whether one stays whose part would replace that of the tree."""
    groups = [group for group in axes if (group == ROWS or lies_in(path, group)) and isinstance(axes[group], list)]
    for group in groups:
        _narrow(axes, group, path, value, config)
    return any(group in axes and "." in group for group in groups)


def _depends_on_axis(axes: Mapping[str, Any], path: str, config: type | None) -> bool:
    """Whether a trial may change the field on which this one depends, and so drop its value from the tree."""
    section, _, key = path.partition(".")
    other = layout(config).deciders.get(key)
    return other is not None and any(name in axes for name in (section, f"{section}.{other}", ROWS))


def _narrow(axes: dict[str, Any], group: str, path: str, value: Any, config: type | None) -> None:
    """Keep the entries of an axis that agree with the value; where none has it, all entries lose the field."""
    at = path.removeprefix(f"{group}.")
    names_part = group == ROWS and "." not in at  # model=lru: the whole section of a row is another part's
    held = f"{at}.name" if names_part else at
    kept = [entry for entry in axes[group] if at_path(entry, held) in (value, MISSING)]
    if not any(at_path(entry, held) == value for entry in axes[group]):
        below = config if path.count(".") == 1 else None  # the class of a section, whose field the path names
        kept = _distinct(
            _without(entry if group == ROWS else as_mapping(entry), at, value, below) for entry in axes[group]
        )
    axes[group] = kept
    if kept == [{}]:
        del axes[group]


def _joined(axes: dict[str, Any], path: str, values: Sequence[Any], config: type | None) -> bool:
    """Gives the entries of an axis these values of a field, each with the fields that depend on it in its own entries.

    What else the entries set is crossed with the values.

    Returns:
        Whether an axis has such fields; else none is changed.
    """
    section, _, key = path.partition(".")
    tied = [f"{section}.{name}" for name, other in layout(config).deciders.items() if other == key]
    for group in [group for group in axes if group in (ROWS, section) and isinstance(axes[group], list)]:
        prefix = "" if group == ROWS else group
        entries = [dict(leaves(as_mapping(entry), prefix)) for entry in axes[group]]
        with_tied = [path in entry for entry in entries if {*tied} & {*entry}]
        if not with_tied or not all(with_tied):  # an entry without the field has its value from the tree
            continue
        found = [
            nested([*rest.items(), (path, value), *own.items()])
            for value in values
            for own in _distinct(_part(entry, tied) for entry in entries if entry.get(path) == value) or [{}]
            for rest in _distinct(_part(entry, entry.keys() - {path, *tied}) for entry in entries)
        ]
        axes[group] = found if group == ROWS else [entry[section] for entry in found]
        return True
    return False


def _part(entry: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name in names}


def _distinct(entries: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        found += [] if entry in found else [entry]
    return found


def _cross(axes: dict[str, Any], path: str) -> None:
    """Takes a field that becomes an axis of its own out of the entries that set it: their rest is crossed with it.

    Entries that differ in this field alone become one. A part that becomes an axis replaces that of entries.
    """
    for group in [group for group in axes if (group == ROWS or lies_in(path, group)) and group != path]:
        at, entries = path.removeprefix(f"{group}."), axes[group]
        if isinstance(entries, list) and any(_is_value(at_path(entry, at)) for entry in entries):
            kept = [entry if group == ROWS else as_mapping(entry) for entry in entries]
            kept = [_without(entry, at, None, None) if _is_value(at_path(entry, at)) else entry for entry in kept]
            axes[group] = _distinct(kept)
            if axes[group] == [{}]:
                del axes[group]


def _is_value(found: Any) -> bool:
    return found is not MISSING and not isinstance(found, Mapping)


def _without(entry: Any, path: str, value: Any, config: type | None) -> Any:
    """The entry without one field, and without the fields that depended on its old value."""
    if not isinstance(entry, Mapping) or at_path(entry, path) is MISSING:
        return entry
    key, _, below = path.partition(".")
    if below:
        rest = _without(as_mapping(entry[key]), below, value, config)
        return {name: rest if name == key else inner for name, inner in entry.items() if name != key or rest}
    dropped = {key, *dropped_keys(layout(config), entry, nested([(key, value)]))}
    return {name: inner for name, inner in entry.items() if name not in dropped}


def _searched(section: Any, changes: Overrides, fixed: Sequence[str]) -> Any:
    """The section ``search`` under the edits; None where nothing is searched.

    Args:
        section: as the file writes it.
        changes: the command line.
        fixed: the fields to which it gives a value.
    """
    if section is not None and not isinstance(section, Mapping):
        return section  # read_search says what is wrong
    fields, settings = split_fields(section or {})
    fields = flatten_fields(fields, changes.problems)
    searched = section is not None
    for path, value in changes.of(SEARCHED):
        if not path:
            searched = value is not REMOVED and value is not None
            fields, settings = (fields, settings) if searched else ({}, {})
        if value is REMOVED:
            _remove_searched(fields, settings, path, changes.problems)
        elif path or searched:
            searched = True
            _search(fields, settings, path, value)
    fixed = [*fixed, *(leaf for path, value in changes.axes for leaf, _ in leaves(value, path))]
    return {**_free(fields, fixed), **settings} if searched else None


def _free(fields: Mapping[str, Any], fixed: Sequence[str]) -> dict[str, Any]:
    return {path: value for path, value in fields.items() if not any(lies_in(leaf, path) for leaf in fixed)}


def _search(fields: dict[str, Any], settings: dict[str, Any], path: str, value: Any) -> None:
    """Sets a domain among the searched fields, a setting of the search, or (at the empty path) any of them."""
    parent, _, last = path.rpartition(".")
    held = fields.get(parent)
    condition = {WHEN: held[WHEN]} if isinstance(held, Mapping) and WHEN in held else {}
    if not path:
        more, other = split_fields(value) if isinstance(value, Mapping) else ({}, {})
        fields |= flatten_fields(more, [])
        settings |= other
    elif path.split(".")[0] not in SECTIONS:
        put(settings, path.split("."), value)
    elif last == WHEN and isinstance(held, Mapping):
        fields[parent] = {**held, WHEN: value}
    elif last in KINDS:
        fields[parent] = {last: value, **condition}
    else:
        fields |= flatten_fields({path: value}, [])


def _remove_searched(fields: dict[str, Any], settings: dict[str, Any], path: str, problems: list[str]) -> None:
    if not path:
        return
    removed = [field for field in fields if lies_in(field, path)]
    for field in removed:
        del fields[field]
    if not remove(settings, path.split(".")) and not removed:
        names = [*fields, *settings]
        known = f"{did_you_mean(path, names)} There: {', '.join(map(str, names)) or 'nothing'}"
        problems.append(f"the override '~{SEARCH}.{path}' removes a setting that the search does not have.{known}.")
