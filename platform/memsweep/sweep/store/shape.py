"""Checks the types of stored data where it is read. A seal proves a file unchanged, not well formed."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from memsweep.errors import StoreError

LARGEST = 2**63
"""No whole number of ours reaches it; one that does fits into no table, and the largest into no float."""


def require(value: Any, kind: Any, where: str, advice: str) -> None:
    """Refuse a value that is not of a type.

    Args:
        value: plain data, or a dataclass of it.
        kind: a type, union, ``Mapping``, sequence, ``TypedDict`` or dataclass of such; ``Any`` for all values.
        where: the file, for the message.
        advice: what to do, a sentence.

    Raises:
        StoreError: names the first place with another type.
    """
    if wrong := mismatch(value, kind):
        raise StoreError(f"{where} is malformed: {wrong}. {advice}".rstrip())


def mismatch(value: Any, kind: Any, at: str = "it") -> str:
    """The fault in the type of a value: place, allowed type, type that was got; empty if there is none."""
    origin = typing.get_origin(kind)
    if kind is Any:
        return ""
    if origin in (typing.Union, types.UnionType):
        return "" if any(not mismatch(value, one) for one in typing.get_args(kind)) else _sentence(value, kind, at)
    if typing.is_typeddict(kind) or dataclasses.is_dataclass(kind):
        return _of_fields(value, kind, at)
    if origin is not None and issubclass(origin, Mapping):
        return _of_mapping(value, kind, at)
    if origin is not None and issubclass(origin, Sequence):
        return _of_sequence(value, kind, at)
    return "" if _is_scalar(value, kind) else _sentence(value, kind, at)


def _of_mapping(value: Any, kind: Any, at: str) -> str:
    if not isinstance(value, Mapping):
        return _sentence(value, kind, at)
    of_key, of_value = typing.get_args(kind)
    pairs = [(f"a key of {at}", key, of_key) for key in value]
    return _first([*pairs, *((f"{at}.{key}", inner, of_value) for key, inner in value.items())])


def _of_sequence(value: Any, kind: Any, at: str) -> str:
    if not isinstance(value, list | tuple):
        return _sentence(value, kind, at)
    of_item = typing.get_args(kind)[0]
    return _first([(f"{at}[{number}]", item, of_item) for number, item in enumerate(value)])


def _of_fields(value: Any, kind: Any, at: str) -> str:
    hints = _hints(kind)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, typing.cast(type, kind)):
            return _sentence(value, kind, at)
        return _first([(f"{at}.{name}", getattr(value, name), hint) for name, hint in hints.items()])
    if not isinstance(value, dict):
        return _sentence(value, kind, at)
    if missing := sorted(kind.__required_keys__ - value.keys()):
        return f"{at} lacks {', '.join(missing)}"
    return _first([(f"{at}.{name}", value[name], hint) for name, hint in hints.items() if name in value])


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _first(pairs: Sequence[tuple[str, Any, Any]]) -> str:
    return next((wrong for at, value, kind in pairs if (wrong := mismatch(value, kind, at))), "")


def _is_scalar(value: Any, kind: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return isinstance(value, kind)
    if kind in (int, float):
        whole = type(value) is int and abs(value) < LARGEST
        return whole or (kind is float and type(value) is float)
    return value is None if kind in (None, types.NoneType) else isinstance(value, kind)


def _sentence(value: Any, kind: Any, at: str) -> str:
    name = kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
    return f"{at.removeprefix('it.')[:200]} must be {name}, got {type(value).__name__}"
