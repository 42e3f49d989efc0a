"""Edits of a study's tree: values at dotted paths, and later settings over earlier ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from memsweep.config.core.problems import join, sentence
from memsweep.config.core.reflect import Layout, as_part, config_of, default, layout


def edited(cls: type | None, tree: Mapping[str, Any], edits: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """``tree`` with a value at each of these dotted paths, by the rules of ``merge``; later edits win over earlier."""
    return merge(cls, tree, nested(edits))


def nested(edits: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Values at dotted paths as one nested entry; later ones win over earlier."""
    entry: dict[str, Any] = {}
    for path, value in edits:
        put(entry, path.split("."), value)
    return entry


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


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted paths below ``path`` that a nested value sets, each with its value."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(inner, join(path, key))
    else:
        yield path, value


def by_path(values: Iterable[tuple[str, Any]], section: str, problems: list[str]) -> dict[str, Any]:
    """Dotted path -> value, as it is written first; a path that is written again is added to ``problems``."""
    found: dict[str, Any] = {}
    for path, value in values:
        if path in found:
            rule = "is written twice, once with dots and once nested. Keep one of them"
            problems.append(sentence(f"{section}.{path}", rule))
        found.setdefault(path, value)
    return found


def merge(cls: type | None, tree: Mapping[str, Any], *entries: Mapping[str, Any]) -> dict[str, Any]:
    """A new tree: ``tree`` with the keys of the entries over it, one entry after the other.

    Where an entry changes a field on which others depend (``depends_on``), the tree's values of the others are
    dropped, unless the entry sets them too, because they belonged to the old choice.

    Args:
        cls: the config dataclass that all describe (None: not known; then plain nested merging).
        tree: plain data.
        entries: plain data; a nested part of another name replaces the tree's part wholly.
    """
    result: dict[str, Any] = _copy(tree)
    for entry in entries:
        result = _over(cls, result, entry)
    return result


def _over(cls: type | None, tree: dict[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """``tree``, which is changed, under an entry."""
    known = layout(cls)
    dropped = dropped_keys(known, tree, entry)
    for key, value in entry.items():
        tree[key] = _value_over(cls, known, key, tree.get(key), value)
    for key in dropped:
        tree.pop(key, None)
    return tree


def _value_over(cls: type | None, known: Layout, key: str, held: Any, value: Any) -> Any:
    kind = known.parts.get(key)
    if kind is not None:
        held, value = as_part(kind, held), as_part(kind, value)
        named = "name" in value if isinstance(value, Mapping) else False
        # a trial's task and model keep what stands beside the name; smaller parts are replaced with the name
        is_small = kind not in ("task", "model")
        if named and isinstance(held, Mapping) and value["name"] != held.get("name") and is_small:
            return _copy(value)
    if not isinstance(held, dict) or not isinstance(value, Mapping):
        return _copy(value)
    below = config_of(cls, known.fields[key], {**held, **value}) if cls is not None and key in known.fields else None
    return _over(below, held, value)


def dropped_keys(known: Layout, tree: Mapping[str, Any], entry: Mapping[str, Any]) -> list[str]:
    """Keys whose values in the tree are dropped, because ``entry`` changes the field on which they depend."""
    dropped = []
    for key, other in known.deciders.items():
        if other not in entry or key in entry:
            continue
        before = tree[other] if other in tree else default(known.fields[other]) if other in known.fields else None
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
