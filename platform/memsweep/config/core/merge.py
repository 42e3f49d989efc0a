"""Merges later settings into earlier ones: an entry of the grid or an override into the base of a study."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from memsweep.config.core.problems import join
from memsweep.config.core.reflect import config_of, decider, default, keys, part_name, registered_kind


def put(entry: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value at a path of a nested entry; a mapping is merged into the mapping at that path.

    A name on the way (``exp``) becomes ``{"name": "exp"}``, so that its fields can be set.
    """
    *parents, last = path
    node = entry
    for key in parents:
        below = as_mapping(node.get(key, {}))
        node[key] = below if isinstance(below, dict) else {}
        node = node[key]
    held = as_mapping(node.get(last))
    if isinstance(held, dict) and isinstance(value, Mapping):
        for key, inner in value.items():
            put(held, (key,), inner)
        node[last] = held
    else:
        node[last] = _copy(value)


def remove(entry: dict[str, Any], path: Sequence[str]) -> bool:
    """Remove the value at a path of a nested entry; False where there is none."""
    *parents, last = path
    node: Any = entry
    for key in parents:
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, dict) or last not in node:
        return False
    del node[last]
    return True


def leaves(value: Any, path: str = "", whole: Container[str] = ()) -> Iterator[tuple[str, Any]]:
    """The dotted paths below ``path`` that a nested value sets, each with its value; those in ``whole`` stay nested."""
    if isinstance(value, Mapping) and value and path not in whole:
        for key, inner in value.items():
            yield from leaves(inner, join(path, key), whole)
    else:
        yield path, value


def merge(cls: type | None, base: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the keys of ``entry`` over it.

    Where the entry changes a field on which others depend (``depends_on``), the base's values of the others are
    dropped, unless the entry sets them too, because they belonged to the old choice.

    Args:
        cls: the config dataclass that both describe (None: not known; then plain nested merging).
        base: plain data.
        entry: plain data; a nested part of another name replaces the base's part wholly.
    """
    fields = keys(cls)
    result = _copy(base)
    for key, value in entry.items():
        field = fields.get(key)
        result[key] = _over(cls, field, result.get(key), value)
    for key in dropped_keys(cls, base, entry):
        result.pop(key, None)
    return result


def _over(cls: type | None, field: dataclasses.Field[Any] | None, held: Any, value: Any) -> Any:
    if field is not None and registered_kind(field) is not None:
        held, value = as_mapping(held), as_mapping(value)
        named = "name" in value if isinstance(value, Mapping) else False
        if named and isinstance(held, Mapping) and part_name(value) != part_name(held) and not _is_section(field):
            return _copy(value)
    if not isinstance(held, Mapping) or not isinstance(value, Mapping):
        return _copy(value)
    below = config_of(cls, field, {**held, **value}) if cls is not None and field is not None else None
    return merge(below, held, value)


def _is_section(field: dataclasses.Field[Any]) -> bool:
    """A trial's task and model keep what the base says beside the name; smaller parts are replaced with the name."""
    return field.metadata["registered"] in ("task", "model")


def dropped_keys(cls: type | None, base: Mapping[str, Any], entry: Mapping[str, Any]) -> list[str]:
    """Keys whose base values are dropped, because ``entry`` changes the field on which they depend."""
    fields = keys(cls)
    dropped = []
    for key in fields:
        other = decider(cls, key)
        if other is None or other not in entry or key in entry:
            continue
        before = base.get(other, default(fields[other]) if other in fields else None)
        if entry[other] != before:
            dropped.append(key)
    return dropped


def as_mapping(value: Any) -> Any:
    """``exp`` as ``{name: exp}``, so that fields can stand beside the name; other values as they are."""
    return {"name": value} if isinstance(value, str) else value


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list | tuple) else value
