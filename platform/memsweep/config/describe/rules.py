"""What ``memsweep describe`` says of learning rules and of those that fit a model."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

from memsweep import registry
from memsweep.config.core.reflect import keys, part_config, registered_kind
from memsweep.config.schema.learning_rule import fitting, refusal
from memsweep.errors import one_of


def fitting_lines(kind: str, name: str, columns: int) -> list[str]:
    """Of a model, the rules by which it can learn; of a rule, its other names and whom it fits; of others nothing.

    Args:
        kind, name: of a registered part.
        columns: width of a line.
    """
    if kind == registry.MODEL:
        told = _of_model(name)
    elif kind == registry.RULE:
        told = _of_rule(name)
    else:
        return []
    return [line for text in told for line in textwrap.wrap(text, columns)]


def _of_model(name: str) -> list[str]:
    config = _usual(name)
    if config is None:
        return []
    if _units(config):
        return [f"Rules for unit {unit}: {one_of(fitting(_with(config, unit)))}." for unit in _units(config)]
    return [f"Rules: {one_of(fitting(config))}."]


def _of_rule(rule: str) -> list[str]:
    told = [f"Also called {one_of(registry.other_names(rule))}."] if registry.other_names(rule) else []
    fits = [found for name in registry.names(registry.MODEL) if (found := _fit(rule, name))]
    return [*told, f"Models that can learn by it: {', '.join(fits) or '(none)'}."]


def _fit(rule: str, model: str) -> str:
    """``residual_stack (units gru, lru)``, or empty where the rule does not fit the model at all."""
    config = _usual(model)
    if config is None:
        return ""
    units = _units(config)
    able = [unit for unit in units if refusal(rule, _with(config, unit)) is None]
    if units:
        return f"{model} (units {one_of(able)})" if able else ""
    return model if refusal(rule, config) is None else ""


def _usual(model: str) -> Any:
    """A model's Config as it is by default; None where a field must be given."""
    try:
        return registry.get(registry.MODEL, model).Config()
    except TypeError:
        return None


def _units(config: Any) -> list[str]:
    """The units that a model may have in its layers; none where its Config names no unit."""
    cls: type = type(config)
    kinds = map(registered_kind, keys(cls).values())
    return registry.names(registry.UNIT) if registry.UNIT in kinds else []


def _with(config: Any, unit: str) -> Any:
    found = part_config(registry.UNIT, unit)
    assert found is not None
    return dataclasses.replace(config, unit=found())
