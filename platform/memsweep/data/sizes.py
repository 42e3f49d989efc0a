"""The field of a task's config that makes its sequences longer, by whatever name the task has for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memsweep import registry


def horizon_field(config: Any) -> str | None:
    """Its name, ``delay`` for example; None where no field makes sequences longer."""
    name: str = registry.get(registry.TASK, config.name).horizon_field
    return name if hasattr(config, name) else None


def horizon_of(config: Any) -> int | None:
    """The sequence length T of a task; None where no field makes sequences longer."""
    field = horizon_field(config)
    return None if field is None else int(registry.get(registry.TASK, config.name)(config).horizon)


def at_horizon(config: Any, horizon: int) -> Any:
    """The config of a task with sequences of another length.

    Raises:
        ValueError: no value of its field gives this length.
    """
    field = horizon_field(config)
    if field is None:
        raise ValueError(f"the length of a sequence of {config.name} is no setting")
    value, now = getattr(config, field), horizon_of(config)
    if horizon == now:
        return config
    if field == "horizon":
        return replace(config, horizon=horizon)
    step = (horizon_of(replace(config, **{field: value + 1})) or 0) - (now or 0)
    more, rest = divmod(horizon - (now or 0), step) if step else (0, 1)
    if rest:
        raise ValueError(f"{config.name} has no sequences of {horizon} steps: one more of {field} adds {step} steps")
    return replace(config, **{field: value + more})
