"""Reads keys, types, defaults and named parts off the configuration dataclasses.

A dataclass may be open (``setting(opens=...)``): each registered part of a kind is a field of it, which is set by the
part's Config and is null where a study does not ask for it. Of a flat part (``is_flat``) the fields stand beside the
dataclass's own, each with its default. So the dataclass names no part.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import operator
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from memsweep import registry
from memsweep.config.core.fields import setting
from memsweep.errors import RegistryError


class Layout(NamedTuple):
    """The facts about the fields of a config dataclass; each attribute is by YAML key.

    Attributes:
        fields: all of them, in order.
        types: the resolved type of each.
        parts: the kind of the registered part that a field names; of these fields alone.
        deciders: the key of the field on which another depends; of the dependent fields alone.
    """

    fields: Mapping[str, dataclasses.Field[Any]]
    types: Mapping[str, Any]
    parts: Mapping[str, str]
    deciders: Mapping[str, str]


def layout(cls: type | None) -> Layout:
    """The fields of a config dataclass, looked up once; other types have none.

    Raises:
        RegistryError: as of ``hints``.
    """
    return _layout(cls, tuple(keys(cls)))


@functools.lru_cache(maxsize=512)
def _layout(cls: type | None, names: tuple[str, ...]) -> Layout:
    fields = keys(cls)
    types = hints(cls) if cls is not None and fields else {}
    return Layout(
        fields,
        {key: types[field.name] for key, field in fields.items()},
        {key: kind for key, field in fields.items() if (kind := registered_kind(field)) is not None},
        {key: other for key in fields if (other := fields[key].metadata.get("depends_on")) is not None},
    )


def keys(cls: type | None) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a config dataclass by their YAML key (``from_`` is written ``from``); other types have none."""
    own, opened = _own_keys(cls)
    return own if opened is None else _with_parts(cls, _names(opened))


@functools.lru_cache(maxsize=512)
def _own_keys(cls: type | None) -> tuple[dict[str, dataclasses.Field[Any]], dataclasses.Field[Any] | None]:
    """The fields that a dataclass writes down, by key, and the one that opens it for parts."""
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    opened = next((field for field in fields if field.metadata.get("opens")), None)
    return {key_of(field): field for field in fields if field is not opened}, opened


def _names(opened: dataclasses.Field[Any]) -> tuple[str, ...]:
    """The parts that are fields of a dataclass which this field opens."""
    kind, when = opened.metadata["opens"], opened.metadata["when"]
    return tuple(name for name in registry.names(kind) if registry.get(kind, name).when == when)


@functools.lru_cache(maxsize=16)
def _with_parts(cls: type | None, names: tuple[str, ...]) -> dict[str, dataclasses.Field[Any]]:
    """The fields of an open dataclass: its own; where it is opened those of flat parts, and one for each other part."""
    own, opened = _own_keys(cls)
    assert opened is not None, "please report this: the dataclass is not open"
    parts = [registry.get(opened.metadata["opens"], name) for name in names]
    flat = {key: field for part in parts if part.is_flat for key, field in _own_keys(part.Config)[0].items()}
    named = {part.Config.name: _field_of(part) for part in parts if not part.is_flat}
    first = itertools.takewhile(lambda field: field is not opened, dataclasses.fields(cls))  # type: ignore[arg-type]
    return {key_of(field): field for field in first} | flat | named | own


@functools.lru_cache(maxsize=16)
def _flat_configs(cls: type, names: tuple[str, ...]) -> dict[str, type]:
    """Key of a field of an open dataclass that a flat part has -> the part's Config."""
    opened = _own_keys(cls)[1]
    kind = opened.metadata["opens"] if opened is not None else ""
    configs = [part.Config for part in (registry.get(kind, name) for name in names) if part.is_flat]
    return {key: config for config in configs for key in _own_keys(config)[0]}


def _flat(cls: type) -> dict[str, type]:
    opened = _own_keys(cls)[1]
    return {} if opened is None else _flat_configs(cls, _names(opened))


@functools.cache
def _field_of(part: Any) -> dataclasses.Field[Any]:
    """A part as a field of an open dataclass; what it means is the first paragraph of the part's docstring."""
    meaning = " ".join(inspect.cleandoc(part.__doc__ or "").partition("\n\n")[0].split()).removesuffix(".")
    doc = f"{meaning[:1].lower()}{meaning[1:]}; null: it is not measured"
    field: dataclasses.Field[Any] = setting(None, doc, added=True)
    field.name, field.type = part.Config.name, part.Config | None
    return field


def arguments_of(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a config dataclass from the values of its fields: an open one takes its parts as one tuple.

    The Config of a flat part is there where a value of it is not the default.
    """
    own, opened = _own_keys(cls)
    if opened is None:
        return dict(given)
    names, flat = {field.name for field in own.values()}, _flat(cls)
    parts = [value for name, value in given.items() if name not in {*names, *flat} and value is not None]
    for config in dict.fromkeys(flat.values()):
        part = config(**{name: value for name, value in given.items() if flat.get(name) is config})
        parts += [part] if part != config() else []
    parts.sort(key=lambda part: part.name)
    return {name: value for name, value in given.items() if name in names} | {opened.name: tuple(parts)}


def flat_parts(config: Any) -> Iterator[Any]:
    """The Configs of flat parts that an open config holds."""
    cls: type = type(config)
    opened, configs = _own_keys(cls)[1], {*_flat(cls).values()}
    if opened is not None:
        yield from (part for part in getattr(config, opened.name) if type(part) in configs)


def value_of(config: Any, field: dataclasses.Field[Any]) -> Any:
    """The value of one of a config's ``keys``; of a part of an open one its Config, or None if it is not asked for."""
    cls: type = type(config)
    own, opened = _own_keys(cls)
    if opened is None or key_of(field) in own:
        return getattr(config, field.name)
    wanted = _flat(cls).get(key_of(field))
    if wanted is None:
        return next((part for part in getattr(config, opened.name) if part.name == field.name), None)
    part = next((part for part in getattr(config, opened.name) if type(part) is wanted), None)
    return default(field) if part is None else getattr(part, field.name)


def owner_of(cls: type, key: str) -> type:
    """The dataclass that declares a field: of a field of a flat part, the part's Config."""
    return _flat(cls).get(key, cls)


def values_of(config: Any) -> dict[str, Any]:
    """The values of all of a config's ``keys``, by the name of the field."""
    return {field.name: value_of(config, field) for field in keys(type(config)).values()}


def key_of(field: dataclasses.Field[Any]) -> str:
    """The YAML key of a field."""
    return field.name.rstrip("_")


def hints(cls: type) -> dict[str, Any]:
    """The resolved type of each field, by field name.

    Raises:
        RegistryError: an annotation has a name that its module does not import.
    """
    own = _own_hints(cls)
    if _own_keys(cls)[1] is None:
        return own
    flat = (_own_hints(config) for config in dict.fromkeys(_flat(cls).values()))
    return functools.reduce(operator.or_, flat, {field.name: field.type for field in keys(cls).values()}) | own


@functools.lru_cache(maxsize=512)
def _own_hints(cls: type) -> dict[str, Any]:
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
        return nested_config(cls, field)
    name = part_name(as_part(kind, data))
    if name is None:
        fallback = default(field)
        return None if fallback is dataclasses.MISSING else type(fallback)
    return part_config(kind, name)


def nested_config(cls: type, field: dataclasses.Field[Any]) -> type | None:
    """The dataclass of a field's type: the type itself, or the one dataclass of ``X | None``."""
    hint = hints(cls)[field.name]
    candidates = (each for each in (hint, *typing.get_args(hint)) if isinstance(each, type))
    return next(filter(dataclasses.is_dataclass, candidates), None)


def part_name(data: Any) -> str | None:
    """The name in ``exp`` or ``{name: exp, ...}``."""
    name = data.get("name") if isinstance(data, Mapping) else data
    return name if isinstance(name, str) else None


def as_part(kind: str, data: Any) -> Any:
    """``exp`` as ``{name: exp}``, and a unit of a user, ``{factory: ...}``, with its name; other values as they are."""
    if isinstance(data, str):
        return {"name": data}
    is_foreign = kind == registry.UNIT and isinstance(data, Mapping) and _FACTORY in data and "name" not in data
    return {"name": _FOREIGN, **data} if is_foreign else data


_FACTORY, _FOREIGN = "factory", "module"
"""The field that says what code of a user makes a unit, and the name of the unit that has it."""


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
