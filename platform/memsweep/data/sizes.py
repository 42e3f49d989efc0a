"""The field of a task's config that makes its sequences longer, by whatever name the task has for it."""

from __future__ import annotations

import functools
from dataclasses import fields, replace
from typing import Any

from memsweep import registry


def horizon_field(config: Any) -> str | None:
    """Its name: ``horizon``, or ``delay`` for example; None where no field makes sequences longer."""
    found = _growing(config)
    return found[0] if found is not None else None


def horizon_of(config: Any) -> int | None:
    """The sequence length T of a task; None where no field makes sequences longer."""
    return None if _growing(config) is None else _length(config)


def at_horizon(config: Any, horizon: int) -> Any:
    """The config of a task with sequences of another length.

    Raises:
        ValueError: no value of its field gives this length.
    """
    found = _growing(config)
    if found is None:
        raise ValueError(f"the length of a sequence of {config.name} is no setting")
    field, step = found
    if field == "horizon":
        return replace(config, horizon=horizon)
    more, rest = divmod(horizon - _length(config), step)
    if rest:
        raise ValueError(f"{config.name} has no sequences of {horizon} steps: one more of {field} adds {step} steps")
    return replace(config, **{field: getattr(config, field) + more})


@functools.lru_cache(maxsize=1024)
def _growing(config: Any) -> tuple[str, int] | None:
    """The field, and the steps that one more of it adds: of several fields the one that adds fewest.

    Of copying it is the delay, and not the number of symbols, which makes another task.
    """
    if hasattr(config, "horizon"):
        return "horizon", 1
    found = []
    for field in fields(config):
        if type(value := getattr(config, field.name)) is not int:
            continue
        try:
            now, one, two = (_length(replace(config, **{field.name: value + more})) for more in range(3))
        except Exception:  # files that are not here, a value that cannot be; foreign code may raise anything
            continue
        if one - now == two - one > 0:
            found.append((one - now, field.name))
    return min(found, key=lambda each: each[0])[::-1] if found else None


def _length(config: Any) -> int:
    return int(registry.get(registry.TASK, config.name)(config).horizon)
