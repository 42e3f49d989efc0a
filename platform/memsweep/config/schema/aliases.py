"""Replaces aliases of learning rules by their registered names, so that axes, overrides and claims can be compared."""

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
    """Plain data with the aliases replaced in every field that names a learning rule.

    Args:
        value: a study, its grid, its search, or the value of one field.
        path: dotted path of ``value``; keys may be dotted, too.
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
