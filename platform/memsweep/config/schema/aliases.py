"""Other names of registered parts in what a person wrote: they become the parts' own before anything is compared.

An axis of a grid, an override and a claim may each spell a rule in their own way; a study knows it by one name.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from memsweep import registry
from memsweep.config.core.problems import join
from memsweep.config.core.reflect import hints, keys, nested_config
from memsweep.config.schema.search import CHOICE
from memsweep.config.schema.trial import TrialConfig


def by_own_names(value: Any, path: str = "") -> Any:
    """Plain data with the aliases in it replaced, wherever a field stands that names a part.

    Args:
        value: of a study file, or a part of one: the base, a grid, a search with its conditions.
        path: where ``value`` stands, dotted; keys may be dotted, too.
    """
    if isinstance(value, Mapping):
        return {key: by_own_names(inner, join(path, key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [by_own_names(item, path) for item in value]
    return registry.rule_name(value) if isinstance(value, str) and _names_rule(path) else value


def _names_rule(path: str) -> bool:
    field = path.removesuffix(f".{CHOICE}")
    return any(field == known or field.endswith(f".{known}") for known in _rule_paths())


@functools.cache
def _rule_paths() -> tuple[str, ...]:
    """Dotted paths of a trial's fields that hold the name of a rule."""
    sections = {key: nested_config(hints(TrialConfig)[field.name]) for key, field in keys(TrialConfig).items()}
    return tuple(
        f"{section}.{key}"
        for section, config in sections.items()
        if config is not None
        for key, field in keys(config).items()
        if field.metadata.get("named") == registry.RULE
    )
