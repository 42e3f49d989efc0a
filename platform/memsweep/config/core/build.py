"""Builds frozen config dataclasses from plain data and collects all problems."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from memsweep import registry
from memsweep.config.core import values
from memsweep.config.core.arguments import Arguments, arguments_from
from memsweep.config.core.elsewhere import elsewhere
from memsweep.config.core.problems import REQUIRED, UNKNOWN, WHOLE, Problem, join, show
from memsweep.config.core.reflect import (
    Layout,
    arguments_of,
    as_part,
    default,
    flat_parts,
    layout,
    part_config,
    values_of,
)
from memsweep.errors import ConfigError, RegistryError, did_you_mean, one_of

INVALID: Final = values.INVALID
UNSET: Final = "???"  # how YAML configs that Hydra reads mark a value that the user must give

_Config = TypeVar("_Config")


def config_from(cls: type, data: Any, source: str) -> Any:
    """An instance of a config dataclass from plain data.

    Raises:
        ConfigError: with all problems of ``data``; ``source`` says where it came from.
    """
    problems: list[Problem] = []
    instance = build(cls, data, "", problems)
    if problems:
        raise ConfigError([str(problem) for problem in problems], source)
    return instance


def section(cls: type[_Config], data: Any, path: str, problems: list[str]) -> _Config | None:
    """A section of a study as an instance of its class; None with the reasons added to ``problems``."""
    wrong: list[Problem] = []
    instance = build(cls, data, path, wrong)
    problems += map(str, wrong)
    return None if instance is INVALID else instance


def build(cls: type, data: Any, path: str, problems: list[Problem], fallback: Any = None) -> Any:
    """An instance of ``cls``, or INVALID with the reasons added to ``problems``.

    Args:
        cls: a config dataclass.
        data: plain data for it, YAML keys.
        path: where ``data`` stands, for the messages.
        problems: collects what is wrong.
        fallback: an instance of ``cls`` that gives the fields which ``data`` leaves out (None: the class's defaults).

    Raises:
        RegistryError: a field has a type that no setting can have, given or not.
    """
    known = layout(cls)
    if not isinstance(data, Mapping):
        problems.append(Problem(path, f"must be a mapping of fields ({one_of(known.fields)})", show(data)))
        return INVALID
    _check_types(cls)
    before = len(problems)
    problems += [_unknown_field(cls, known, path, key, data[key]) for key in data if key not in known.fields]
    given = values_of(fallback) if isinstance(fallback, cls) else {}
    for key, field in known.fields.items():
        here = f"{path}.{key}" if path else key
        if key in data and data[key] != UNSET:
            given[field.name] = build_field(known, key, data[key], here, problems)
        elif field.name not in given and _is_required(field):
            problems.append(_missing_field(field, here))
    if len(problems) > before:
        return INVALID
    return _construct(cls, given, path, problems)


@functools.cache
def _check_types(cls: type) -> None:
    known = layout(cls)
    for key, field in known.fields.items():
        if field.init and key not in known.parts and not field.metadata.get("each_registered"):
            owner = f" of the {cls.kind} {cls.name}" if hasattr(cls, "kind") and hasattr(cls, "name") else ""
            _check_type(known.types[key], f"{key}{owner}")


def _check_type(hint: Any, path: str) -> None:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType, tuple):
        for one in typing.get_args(hint):
            if one not in (types.NoneType, Ellipsis):
                _check_type(one, path)
    elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
        _check_types(hint)
    elif hint not in (*values.NAMES, Arguments):
        shown = hint.__name__ if origin is None and isinstance(hint, type) else hint
        raise RegistryError(
            f"the field {path} has the type {shown}; a setting may be bool, int, float, str, a config dataclass, "
            "Arguments, tuple[X, ...], X | None, or Any with registered=."
        )


def build_field(known: Layout, key: str, data: Any, path: str, problems: list[Problem]) -> Any:
    """The value of one field from plain data, or INVALID with the reasons added to ``problems``."""
    field = known.fields[key]
    if key in known.parts:
        return _build_part(known.parts[key], field, data, path, problems)
    return _conform(known.types[key], field, data, path, problems)


def _build_part(kind: str, field: dataclasses.Field[Any], data: Any, path: str, problems: list[Problem]) -> Any:
    written, usual = as_part(kind, data), default(field)
    if isinstance(written, Mapping) and written.get("name", UNSET) == UNSET and usual is not dataclasses.MISSING:
        fields = {key: value for key, value in written.items() if key != "name"}
        return build(type(usual), fields, path, problems, usual)
    return _named_part(kind, written, path, problems)


def _named_part(kind: str, data: Any, path: str, problems: list[Problem]) -> Any:
    """The Config of a part that the data name, or INVALID."""
    known, written = one_of(registry.names(kind)), as_part(kind, data)
    if not isinstance(written, Mapping):
        rule = f"must be the name of a {kind}, or {{name: ..., and its fields}}; registered {kind}s: {known}"
        problems.append(Problem(path, rule, f"{show(data)}{values.several_values(data, path)}"))
        return INVALID
    name = written.get("name", UNSET)
    if name == UNSET:
        rule = f"is required: say which {kind}. Registered {kind}s: {known}"
        problems.append(Problem(join(path, "name"), rule, kind=REQUIRED))
        return INVALID
    config = part_config(kind, name) if isinstance(name, str) else None
    if config is None:
        problems.append(Problem(path if isinstance(data, str) else join(path, "name"), registry.unknown(kind, name)))
        return INVALID
    return build(config, {key: value for key, value in written.items() if key != "name"}, path, problems)


def _conform(hint: Any, field: dataclasses.Field[Any], data: Any, path: str, problems: list[Problem]) -> Any:
    """``data`` as a value of the type ``hint``."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        fallback = default(field)
        return build(hint, data, path, problems, fallback if isinstance(fallback, hint) else None)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _conform_union(typing.get_args(hint), field, data, path, problems)
    if origin is tuple:
        return _conform_tuple(typing.get_args(hint), field, data, path, problems)
    if hint is Arguments:
        arguments = arguments_from(data, path, problems)
        return INVALID if arguments is None else arguments
    return values.scalar(hint, field, data, path, problems)


def _conform_union(
    options: tuple[Any, ...], field: dataclasses.Field[Any], data: Any, path: str, problems: list[Problem]
) -> Any:
    if data is None and types.NoneType in options:
        return None
    options = tuple(option for option in options if option is not types.NoneType)
    if len(options) == 1:
        return _conform(options[0], field, data, path, problems)
    for option in options:
        attempt: list[Problem] = []
        value = _conform(option, field, data, path, attempt)
        if not attempt:
            return value
    rule = "must be " + " or ".join(values.NAMES.get(option, "a list or mapping") for option in options)
    problems.append(Problem(path, rule, show(data)))
    return INVALID


def _conform_tuple(
    items: tuple[Any, ...], field: dataclasses.Field[Any], data: Any, path: str, problems: list[Problem]
) -> Any:
    if not isinstance(data, list | tuple):
        problems.append(Problem(path, "must be a list: [...]", show(data)))
        return INVALID
    of_any_length = items[-1:] == (Ellipsis,)
    kind = field.metadata.get("each_registered")
    if not of_any_length and len(items) != len(data):
        problems.append(Problem(path, f"must be a list of {len(items)} values", show(data)))
        return INVALID
    types_of_items = [items[0]] * len(data) if of_any_length else items
    before = len(problems)
    items_built = tuple(
        _named_part(kind, item, f"{path}[{index}]", problems)
        if kind
        else _conform(hint, field, item, f"{path}[{index}]", problems)
        for index, (hint, item) in enumerate(zip(types_of_items, data, strict=True))
    )
    return items_built if len(problems) == before else INVALID


def _construct(cls: type, given: dict[str, Any], path: str, problems: list[Problem]) -> Any:
    try:
        instance = cls(**arguments_of(cls, given))
    except (TypeError, ValueError) as error:  # a __post_init__ that refuses
        problems.append(Problem(path, str(error), kind=WHOLE))
        return INVALID
    checked = [each for each in (instance, *flat_parts(instance)) if hasattr(each, "problems")]
    texts = [text for each in checked for text in each.problems()]
    beside = [each for each in flat_parts(instance) if hasattr(each, "problems_beside")]
    texts += [text for each in beside for text in each.problems_beside(instance)]
    wrong = [Problem(path, text, kind=WHOLE) for text in texts]
    problems += wrong
    return INVALID if wrong else instance


def _unknown_field(cls: type, known: Layout, path: str, key: object, value: Any) -> Problem:
    owner = f"the {cls.kind} {cls.name}" if hasattr(cls, "kind") and hasattr(cls, "name") else path or "a trial"
    found = elsewhere(str(key), path.partition(".")[0])
    meant = found or did_you_mean(key, known.fields)
    several = values.several_values(value, join(path, key)) if found.startswith(" It is a field") else ""
    rule = f"{owner} has no field {key!r}.{meant} Fields: {one_of(known.fields)}"
    return Problem(join(path, key), f"{rule}{several}", kind=UNKNOWN)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _missing_field(field: dataclasses.Field[Any], path: str) -> Problem:
    meaning = field.metadata.get("doc") or "it has no default"
    return Problem(path, f"is required: {meaning}", kind=REQUIRED)
