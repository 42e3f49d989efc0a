"""Reads keys, types, defaults and named parts off the configuration dataclasses."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from memsweep import registry
from memsweep.errors import RegistryError


@functools.lru_cache(maxsize=512)
def keys(cls: type | None) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a config dataclass by their YAML key (``from_`` is written ``from``); other types have none."""
    return {key_of(field): field for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}


def decider(cls: type | None, key: str) -> str | None:
    """The key of the field that decides whether this field exists and what its default is, if one does."""
    field = keys(cls).get(key)
    return field.metadata.get("depends_on") if field is not None else None


def key_of(field: dataclasses.Field[Any]) -> str:
    """The YAML key of a field."""
    return field.name.rstrip("_")


@functools.lru_cache(maxsize=512)
def hints(cls: type) -> dict[str, Any]:
    """The resolved type of each field, by field name.

    Raises:
        RegistryError: an annotation has a name that its module does not import.
    """
    try:
        return typing.get_type_hints(cls)
    except NameError as error:
        raise RegistryError(
            f"the types of {cls.__module__}.{cls.__qualname__} cannot be resolved ({error}): "
            "import every name that they use at the top of that file."
        ) from error


def default(field: dataclasses.Field[Any]) -> Any:
    """The field's default value, or ``dataclasses.MISSING`` where it must be given."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def registered_kind(field: dataclasses.Field[Any]) -> str | None:
    """The kind of part that this field names (``task``, ``model``, ``parameterization``), if it names one."""
    kind: str | None = field.metadata.get("registered")
    return kind


def config_of(cls: type, field: dataclasses.Field[Any], data: Any) -> type | None:
    """The config dataclass of the fields below this one, which depends on the written value.

    Args:
        data: the plain value of the field: a registered name, or a mapping (with or without ``name``).

    Returns:
        None for a plain value, and where the name is not registered.
    """
    kind = registered_kind(field)
    if kind is None:
        return nested_config(hints(cls)[field.name])
    name = part_name(data)
    if name is None:
        fallback = default(field)
        return None if fallback is dataclasses.MISSING else type(fallback)
    return part_config(kind, name)


def nested_config(hint: Any) -> type | None:
    """The dataclass of a field's type: the type itself, or the one dataclass of ``X | None``."""
    for candidate in (hint, *typing.get_args(hint)):
        if isinstance(candidate, type) and dataclasses.is_dataclass(candidate):
            return candidate
    return None


def part_name(data: Any) -> str | None:
    """The name in ``exp`` or ``{name: exp, ...}``."""
    name = data.get("name") if isinstance(data, Mapping) else data
    return name if isinstance(name, str) else None


def part_config(kind: str, name: str) -> type | None:
    """The Config of a registered part, or None."""
    if name not in registry.names(kind):
        return None
    config: type = registry.get(kind, name).Config
    return config


def parts() -> Iterator[tuple[str, str]]:
    """(kind, name) of everything that is registered."""
    for kind in registry.KINDS:
        for name in registry.names(kind):
            yield kind, name
