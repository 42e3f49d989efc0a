"""The form of stored data, where it is read: its version, and the types of its values.

A record, a plan, a round of a search, a failure and a table each carry the version of their form. A reader takes every
version that it knows, and refuses a newer one in a sentence. A change of a form adds a migration where the form is
defined: a function that makes content of the next version from content of one. Types are checked, too, because a seal
proves a file unchanged, not well formed.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from memsweep.errors import StoreError

T = TypeVar("T")


class OtherSchemaError(StoreError):
    """A file of a version that this one does not know: nothing is wrong with it, and nothing can be said of it."""


@dataclass(frozen=True)
class Form(Generic[T]):
    """The form of one kind of stored file.

    Attributes:
        version: that is written.
        migrations: version -> function from content of it to content of the next one.
    """

    version: int
    migrations: Mapping[int, Callable[[T], T]] = field(default_factory=dict)

    @property
    def oldest(self) -> int:
        """The oldest version that is read."""
        return min([self.version, *self.migrations])

    def migrated(self, content: T, version: int, where: str) -> T:
        """The content of a file in the form of today.

        Args:
            content: as the file holds it.
            version: of the file.
            where: the file, for the message.

        Raises:
            OtherSchemaError: see ``require_known``.
        """
        self.require_known(version, where)
        for step in range(version, self.version):
            content = self.migrations[step](content)
        return content

    def require_known(self, version: int, where: str) -> None:
        """Refuse a version that cannot be read.

        Raises:
            OtherSchemaError: the version is newer than today's, or older than the oldest migration.
        """
        if self.oldest <= version <= self.version:
            return
        known = f"{self.oldest} to {self.version}" if self.oldest < self.version else f"{self.version} only"
        age = "a newer" if version > self.version else "an older"
        way = "Install that version" if version > self.version else "Read it with the version that wrote it"
        raise OtherSchemaError(
            f"{where} was written by {age} version of memsweep, whose files have schema {version}; this version reads "
            f"schema {known}. {way}, or run the study again in another results folder (--results)."
        )


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
