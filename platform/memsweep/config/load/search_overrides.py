"""The section ``search`` of a study file under the overrides of a command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memsweep.config.core.merge import leaves, put, remove
from memsweep.config.load.overrides import REMOVED, SEARCH, Overrides
from memsweep.config.schema.search import KINDS
from memsweep.config.search.domains import SECTIONS, WHEN, flatten_fields, split_fields
from memsweep.errors import did_you_mean


def overlay_search(section: Any, changes: Overrides) -> Any:
    """The section ``search`` under the overrides, not yet checked; what is wrong is added to ``changes.problems``.

    A field to which the command line gives a value or an axis is not searched. None stands for no search.
    """
    if section is not None and not isinstance(section, Mapping):
        return section  # read_search says what is wrong
    fields, settings = split_fields(section or {})
    fields = flatten_fields(fields, changes.problems)
    searched = section is not None
    for path, value in changes.search:
        if path == "":
            searched = value is not REMOVED and value is not None
            fields, settings = ({}, {}) if not searched else (fields, settings)
        if value is REMOVED:
            _remove(fields, settings, path, changes.problems)
        elif path or searched:
            searched = True
            _set(fields, settings, path, value)
    return _without_fixed(fields, settings, changes) if searched else None


def _set(fields: dict[str, Any], settings: dict[str, Any], path: str, value: Any) -> None:
    if not path:
        more, other = split_fields(value) if isinstance(value, Mapping) else ({}, {})
        fields |= flatten_fields(more, [])
        settings |= other
    elif path.split(".")[0] not in SECTIONS:
        put(settings, path.split("."), value)
    else:
        parent, _, last = path.rpartition(".")
        held = fields.get(parent)
        if last == WHEN and isinstance(held, Mapping):
            fields[parent] = {**held, WHEN: value}
        elif last in KINDS:
            condition = {WHEN: held[WHEN]} if isinstance(held, Mapping) and WHEN in held else {}
            fields[parent] = {last: value, **condition}
        else:
            fields |= flatten_fields({path: value}, [])


def _remove(fields: dict[str, Any], settings: dict[str, Any], path: str, problems: list[str]) -> None:
    if not path:
        return
    removed = [field for field in fields if f"{field}.".startswith(f"{path}.")]
    for field in removed:
        del fields[field]
    if not remove(settings, path.split(".")) and not removed:
        names = [*fields, *settings]
        known = f"{did_you_mean(path, names)} There: {', '.join(map(str, names)) or 'nothing'}"
        problems.append(f"the override '~{SEARCH}.{path}' removes a setting that the search does not have.{known}.")


def _without_fixed(fields: dict[str, Any], settings: dict[str, Any], changes: Overrides) -> dict[str, Any]:
    """The section without the searched fields to which the command line gives a value or an axis."""
    fixed = [leaf for path, value in [*changes.values, *changes.axes] for leaf, _ in leaves(value, path)]
    searched = {
        path: value for path, value in fields.items() if not any(f"{leaf}.".startswith(f"{path}.") for leaf in fixed)
    }
    return {**searched, **settings}
