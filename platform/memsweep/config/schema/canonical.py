"""Configs as plain data and back: what is stored, hashed, sent to workers, logged and compared."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.config.core.reflect import default, keys, nested_config, value_of
from memsweep.config.schema.trial import TrialConfig

LEAVES = (str, int, float, bool, type(None))
"""Types whose values are plain data as they are."""
MISSING = object()
"""The value at a path that a config lacks. It equals no value, ``null`` neither."""


def to_dict(config: Any) -> dict[str, Any]:
    """A config dataclass as nested plain data: dicts, lists, strings, numbers, booleans, None.

    Every field is present, defaults among them; a section that is not there (``chain: null``) is left out. The Config
    of a registered part carries its ``name`` first.
    """
    data: dict[str, Any] = {"name": config.name} if getattr(config, "kind", None) in registry.NAMED else {}
    cls: type = type(config)
    for key, field in keys(cls).items():
        value = value_of(config, field)
        if value is not None or nested_config(cls, field) is None:
            data[key] = plain(value)
    return data


def plain(value: Any) -> Any:
    """The value of a field as plain data."""
    if type(value) in LEAVES:  # most values of a large grid
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def trial_from_dict(data: Mapping[str, Any]) -> TrialConfig:
    """The trial that ``to_dict`` wrote; the exact inverse.

    Raises:
        ConfigError: the data is no valid trial (a part is not registered here, or a field has changed since).
    """
    trial: TrialConfig = config_from(TrialConfig, data, "the stored configuration of a trial")
    return trial


def plain_at(config: Any, path: str) -> Any:
    """The plain value of a field by its dotted path below a config; a part is its name, or a mapping with its fields.

    Returns:
        ``MISSING`` where there is no such field, or no such section.
    """
    for key in path.split("."):
        if isinstance(config, Mapping):  # arguments, whose names are not the engine's
            config = config.get(key, MISSING)
            continue
        if key == "name" and getattr(config, "kind", None) in registry.NAMED:
            config = config.name
            continue
        cls: type = type(config)
        if key not in keys(cls):
            return MISSING
        field = keys(cls)[key]
        config = value_of(config, field)
        if config is None and nested_config(cls, field) is not None:
            return MISSING
    value = plain(config)
    return value["name"] if isinstance(value, dict) and set(value) == {"name"} else value


def flatten(data: Mapping[str, Any]) -> dict[str, Any]:
    """Nested plain data as dotted path -> value; a part without fields is its name, and a list is one value. A list of
    units is a text.

    ``{"model": {"name": "rnn", "parameterization": {"name": "exp"}}}`` becomes
    ``{"model.name": "rnn", "model.parameterization": "exp"}``.
    """
    flat: dict[str, Any] = {}
    _flatten(data, "", flat)
    return flat


def _flatten(data: Mapping[str, Any], path: str, flat: dict[str, Any]) -> None:
    for key, value in data.items():
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping) and value:
            if path and set(value) == {"name"}:
                flat[here] = value["name"]
            else:
                _flatten(value, here, flat)
        elif isinstance(value, list) and value and all(isinstance(each, Mapping) and "name" in each for each in value):
            flat[here] = ", ".join(
                f"{count} × {text}" if (count := len([*same])) > 1 else text
                for text, same in itertools.groupby(map(_unit_text, value))
            )
        else:
            flat[here] = value


def _unit_text(unit: Mapping[str, Any]) -> str:
    """A unit by its name, a user's by its factory, with the fields that are not its defaults."""
    try:
        config = registry.get(registry.UNIT, unit["name"]).Config
        usual = {key: plain(default(field)) for key, field in keys(config).items()}
    except KeyError:  # a plugin's that is not here
        usual = {}
    given = {key: value for key, value in unit.items() if key != "name" and value != usual.get(key, MISSING)}
    name = given.pop("factory", unit["name"])
    return f"{name} ({', '.join(f'{key} {value}' for key, value in given.items())})" if given else str(name)
