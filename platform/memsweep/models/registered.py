"""The registered models and rules that can do something, for sentences about those that cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memsweep import registry
from memsweep.errors import one_of


def default_config(part: Any) -> Any:
    """The Config of a registered class with all defaults; None where a field must be given."""
    try:
        return part.Config()
    except TypeError:
        return None


def has_group(group: str, model: Any, config: Any) -> bool:
    """Whether a model has weights in a group of ``training.groups``."""
    return any(role.group == group for role in model.roles(config).values())


def models_where(holds: Callable[[Any, Any], bool]) -> str:
    """The registered models of which something holds under their default Config, as one phrase."""
    models = {name: registry.get(registry.MODEL, name) for name in registry.names(registry.MODEL)}
    usual = {name: default_config(model) for name, model in models.items()}
    return one_of(name for name, config in usual.items() if config is not None and holds(models[name], config))


def fitting_rules(model: Any, config: Any) -> list[str]:
    """The names of the registered learning rules by which a model can be trained."""
    names = registry.names(registry.RULE)
    return [name for name in names if registry.get(registry.RULE, name).refusal(model, config) is None]
