"""Replaces aliases of learning rules by their registered names, so that axes, overrides and claims can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from memsweep import registry
from memsweep.config.core.problems import join
from memsweep.config.schema.search import CHOICE

RULE: Final = "training.rule"


def replace_aliases(value: Any, path: str = "") -> Any:
    """Plain data with the aliases replaced in every field that names a learning rule.

    Args:
        value: a study, its grid, its search, or the value of one field.
        path: dotted path of ``value``; keys may be dotted, too.
    """
    if isinstance(value, Mapping):
        return {key: replace_aliases(inner, join(path, key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_aliases(item, path) for item in value]
    # the path may begin with grid, rows, search or a side of a comparison
    names_rule = f".{path}".removesuffix(f".{CHOICE}").endswith(f".{RULE}")
    return registry.rule_name(value) if names_rule and isinstance(value, str) else value
