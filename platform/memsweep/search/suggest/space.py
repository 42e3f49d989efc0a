"""A search's domains: which fields apply, their Optuna distributions, and draws from them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from memsweep.config.schema.search import CHOICE, INT, LOG_INT, LOG_UNIFORM, Domain, same
from memsweep.config.search.domains import order

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Space = Mapping[str, Domain]


def ordered(space: Space) -> list[str]:
    """The fields by name, but each after those that its condition names."""
    return order({path: space[path] for path in sorted(space)})


def distributions(space: Space, fixed: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """Optuna's distribution of each field that can apply in a cell, in the order in which they are suggested.

    Args:
        space: all domains.
        fixed: the cell's own values of fields that are not searched.

    Returns:
        Dotted path -> distribution; of a choice, over the indices of its values. A field that depends on another
        searched one is among them, and is suggested where it applies.
    """
    made: dict[str, BaseDistribution] = {}
    for path in ordered(space):
        when = space[path].when
        at_cell = Domain(space[path].kind, when={other: when[other] for other in when if other not in space})
        if at_cell.applies(fixed) and all(other in made for other in when if other in space):
            made[path] = distribution(space[path])
    return made


def distribution(domain: Domain) -> BaseDistribution:
    """Optuna's name for a domain. Choices become indices: Optuna takes no lists or mappings as categories."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if domain.kind == CHOICE:
        return CategoricalDistribution(range(len(domain.values)))
    if domain.kind in (INT, LOG_INT):
        return IntDistribution(int(domain.low), int(domain.high), log=domain.kind == LOG_INT)
    return FloatDistribution(float(domain.low), float(domain.high), log=domain.kind == LOG_UNIFORM)


def inward(domain: Domain, value: Any) -> Any:
    """A field's value as Optuna hears it: the index of a choice, a plain int or float."""
    if domain.kind == CHOICE:
        return next(index for index, choice in enumerate(domain.values) if same(value, choice))
    return round(value) if domain.kind in (INT, LOG_INT) else float(value)


def outward(domain: Domain, value: Any) -> Any:
    """The field's value, in plain Python, for what Optuna suggested."""
    if domain.kind == CHOICE:
        return domain.values[int(value)]
    return int(value) if domain.kind in (INT, LOG_INT) else float(value)


def draw(domain: Domain, random: np.random.Generator) -> Any:
    """A value of the domain; every value of a choice, and every number (or logarithm of one), is equally likely."""
    if domain.kind == CHOICE:
        return domain.values[int(random.integers(len(domain.values)))]
    if domain.kind == INT:
        return int(random.integers(int(domain.low), int(domain.high) + 1))
    if domain.kind == LOG_INT:
        # each whole number owns the half below and above it
        number = math.exp(random.uniform(math.log(domain.low - 0.5), math.log(domain.high + 0.5)))
        return min(max(round(number), int(domain.low)), int(domain.high))
    if domain.kind == LOG_UNIFORM:
        number = math.exp(random.uniform(math.log(domain.low), math.log(domain.high)))
    else:
        number = float(random.uniform(domain.low, domain.high))
    return min(max(number, float(domain.low)), float(domain.high))


def draw_all(space: Space, fixed: Mapping[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """A value for each field that applies."""
    values: dict[str, Any] = {}
    for path in ordered(space):
        if space[path].applies({**fixed, **values}):
            values[path] = draw(space[path], random)
    return values


def all_suggestions(space: Space, fixed: Mapping[str, Any], limit: int) -> list[dict[str, Any]] | None:
    """All suggestions that there are, in a fixed order; None where they are more than ``limit``, or not countable."""
    suggestions: list[dict[str, Any]] = [{}]
    for path in ordered(space):
        domain = space[path]
        longer: list[dict[str, Any]] = []
        for values in suggestions:
            if not domain.applies({**fixed, **values}):
                longer.append(values)
                continue
            if (choices := _listed(domain, limit)) is None:
                return None
            longer += [values | {path: choice} for choice in choices]
        if len(longer) > limit:
            return None
        suggestions = longer
    return suggestions


def _listed(domain: Domain, limit: int) -> list[Any] | None:
    if domain.kind == CHOICE:
        return list(domain.values)
    if domain.low == domain.high:
        return [outward(domain, domain.low)]
    if domain.is_whole and domain.high - domain.low < limit:
        return list(range(int(domain.low), int(domain.high) + 1))
    return None


def suggestion_key(values: Mapping[str, Any]) -> str:
    """A text that is equal for equal suggestions alone."""
    plain = {path: float(value) if type(value) is int else value for path, value in values.items()}
    return json.dumps(plain, sort_keys=True, default=str)
