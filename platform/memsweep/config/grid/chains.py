"""Chains of a grid: checks their fields, and gives each trial its place in its chain.

See memsweep.config.schema.chain for the meaning of a chained trial.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memsweep.config.core import values
from memsweep.config.core.problems import Problem, sentence, show
from memsweep.config.core.reflect import default, hints, keys, value_of
from memsweep.config.schema.axes import ROWS, Axes
from memsweep.config.schema.canonical import flatten, to_dict
from memsweep.config.schema.chain import CHAIN, resolve_chain, value_at
from memsweep.config.schema.trial import ChainConfig, TrialConfig
from memsweep.errors import ConfigError, did_you_mean, one_of

Trials = Mapping[tuple[int, ...], TrialConfig]
"""The trials of a grid by the indices of their values on the axes, in the order of the grid."""

_WITHOUT = "take the chain out (chain=null)"


def chain_problems(chains: Sequence[ChainConfig], axes: Axes, parts: Mapping[str, Sequence[Any]]) -> list[str]:
    """The problems of a study's chains, each once.

    Args:
        chains: the valid ``chain`` sections of its trials.
        axes: the axes of its grid.
        parts: the other valid sections of its trials by name (``training``).
    """
    return list(dict.fromkeys(text for chain in chains for text in _problems(chain, axes, parts)))


def link_chains(trials: Trials, axes: Axes, problems: list[str]) -> Trials:
    """The trials of a grid whose chains are valid, each chained one with the values of the axis before its own."""
    linked: dict[tuple[int, ...], TrialConfig] = {}
    wrong: dict[str, None] = {}
    order = list(axes)
    for indices, trial in trials.items():
        linked[indices] = trial
        if trial.chain is None:
            continue
        at = order.index(trial.chain.along)
        before = linked[(*indices[:at], indices[at] - 1, *indices[at + 1 :])] if indices[at] else None
        if before is None or before.chain is None:
            wrong |= dict.fromkeys(_first_problems(trial, trial.chain))
        else:
            earlier = (*before.chain.earlier, value_at(before, before.chain.along))
            linked[indices] = dataclasses.replace(trial, chain=dataclasses.replace(before.chain, earlier=earlier))
            wrong |= dict.fromkeys(_step_problems(before, linked[indices], trial.chain))
    problems += wrong
    return linked


def _first_problems(trial: TrialConfig, chain: ChainConfig) -> list[str]:
    try:
        resolve_chain(trial, None)
    except ConfigError as error:
        return [sentence("chain.first", f"does not do for {chain.into}: {problem}") for problem in error.problems]
    return []


def _step_problems(before: TrialConfig, trial: TrialConfig, chain: ChainConfig) -> list[str]:
    """Refuses an axis that changes further fields: the predecessor that a config implies would not be in the study."""
    one, other = (flatten(to_dict(config)) for config in (before, trial))
    apart = {path for path in one | other if one.get(path) != other.get(path)}
    more = sorted(apart - {chain.along, "chain.earlier"})
    if not more:
        return []
    rule = f"the axis {chain.along} changes {', '.join(more)}, too. A chain runs along an axis that changes one field"
    return [sentence("chain.along", f"{rule}: choose another, or {_WITHOUT}")]


def _problems(chain: ChainConfig, axes: Axes, parts: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    if chain.earlier:
        yield sentence("chain.earlier", "follows from the grid and cannot be set. Leave it out")
    yield from _along_problems(chain.along, axes, parts)
    yield from _into_problems(chain, axes, parts)


def _along_problems(along: str, axes: Axes, parts: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    at, (section, _, rest) = "chain.along", along.partition(".")
    if along not in axes:
        rule = f"{show(along)} is no axis of the grid.{did_you_mean(along, axes)} Axes: {one_of(axes)}"
        yield sentence(at, f"{rule}. Make it one, or {_WITHOUT}")
    elif along == ROWS:
        yield sentence(at, "whole rows have no order to carry along: name an axis of one field")
    elif section == CHAIN:
        yield sentence(at, "a chain cannot run along a field of its own", show(along))
    elif any(
        not isinstance(value_at(part, rest) if rest else part, bool | int | float | str)
        for part in parts.get(section, ())
    ):
        rule = f"the values of {along} are no numbers, texts or truth values, and have no order to carry along"
        yield sentence(at, rule)


def _into_problems(chain: ChainConfig, axes: Axes, parts: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    section, _, rest = chain.into.partition(".")
    if section not in parts or not rest:
        hint = "" if section in parts else did_you_mean(section, parts)
        rule = f"{show(chain.into)} names no field.{hint} A path begins with {', '.join(parts)} and goes on below it"
        yield sentence("chain.into", f"{rule}, as in training.stop_below")
    elif chain.into in axes:
        yield sentence("chain.into", f"{chain.into} is an axis of the grid, and the chain would write over it")
    else:
        for part in parts[section]:
            yield from _field_problems(chain, part)


def _field_problems(chain: ChainConfig, part: Any) -> Iterator[str]:
    """The problems of the field ``chain.into`` in a valid section of a trial."""
    path, *below = chain.into.split(".")
    value = part
    for key in below:
        cls: type = type(value)
        known = keys(cls)
        if key not in known:
            rule = f"names no field: {path} has no field {key!r}.{did_you_mean(key, known)} Fields: {one_of(known)}"
            yield sentence("chain.into", rule)
            return
        field, hint = known[key], hints(cls)[known[key].name]
        path, value = f"{path}.{key}", value_of(value, field)
    if float not in (hint, *typing.get_args(hint)):
        yield sentence("chain.into", "must name a field that takes any number, fractions too", show(chain.into))
        return
    usual = default(field)
    if isinstance(usual, float) and value != usual:
        rule = f"the study sets {chain.into} to {show(value)}, and the chain would write over it. Leave one of them out"
        yield sentence("chain.into", rule)
    refused: list[Problem] = []
    values.scalar(float, field, chain.first, "chain.first", refused)
    yield from map(str, refused)
