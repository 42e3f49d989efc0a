"""Chains of a grid: checks their fields, and gives each trial its place in its chain.

See memsweep.config.schema.chain for the meaning of a chained trial.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memsweep.config.core import values
from memsweep.config.core.problems import UNKNOWN, WHOLE, Problem, sentence, show
from memsweep.config.core.reflect import default, hints, keys
from memsweep.config.schema.axes import ROWS, Axes
from memsweep.config.schema.canonical import flatten, to_dict
from memsweep.config.schema.chain import CHAIN, resolve_chain, value_at
from memsweep.config.schema.trial import ChainConfig, TrialConfig
from memsweep.errors import ConfigError, did_you_mean, one_of

Trials = Mapping[tuple[int, ...], TrialConfig]
"""The trials of a grid by the indices of their values on the axes, in the order of the grid."""

_WITHOUT = "take the chain out (chain=null)"


def draft_chains(written: Any) -> list[ChainConfig]:
    """A chain with an invalid field, as it was written, so that its paths can be checked in the same pass."""
    if not isinstance(written, Mapping):
        return []
    fields = {key: written[key] for key in ("along", "into", "first") if key in written}
    return [ChainConfig(**{"along": None, "first": None} | fields)]


def chain_problems(chains: Sequence[ChainConfig], axes: Axes, parts: Mapping[str, Sequence[Any]]) -> list[str]:
    """What is wrong with the chains of a study, each mistake once.

    Args:
        chains: the ``chain`` sections of its trials, or a draft where none is valid.
        axes: the axes of its grid.
        parts: the other valid sections of its trials by name (``training``).
    """
    found: dict[Problem, None] = {}
    for chain in chains:
        if chain.earlier:
            rule = "follows from the grid and cannot be set. Leave it out"
            found[Problem("chain.earlier", rule)] = None
        # The path of a draft may have another type than text; build reports that.
        found |= dict.fromkeys(_wrong_along(chain, axes, parts) if isinstance(chain.along, str) else ())
        found |= dict.fromkeys(_wrong_into(chain, axes, parts) if isinstance(chain.into, str) else ())
    return [str(problem) for problem in found]


def link_chains(trials: Trials, axes: Axes, problems: list[str]) -> Trials:
    """The trials of a grid, each chained one with the values of the axis before its own.

    Args:
        trials: of a grid whose chains ``chain_problems`` accepts.
        axes: the axes of the grid.
        problems: collects what is wrong.
    """
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
            wrong |= dict.fromkeys(_wrong_first(trial, trial.chain))
        else:
            linked[indices] = _after(before.chain, before, trial)
            wrong |= dict.fromkeys(_wrong_step(before, linked[indices], trial.chain))
    problems += wrong
    return linked


def _after(chain: ChainConfig, before: TrialConfig, trial: TrialConfig) -> TrialConfig:
    """The trial as the successor of ``before`` in a chain."""
    earlier = (*chain.earlier, value_at(before, chain.along))
    return dataclasses.replace(trial, chain=dataclasses.replace(chain, earlier=earlier))


def _wrong_first(trial: TrialConfig, chain: ChainConfig) -> list[str]:
    try:
        resolve_chain(trial, None)
    except ConfigError as error:
        return [sentence("chain.first", f"does not do for {chain.into}: {problem}") for problem in error.problems]
    return []


def _wrong_step(before: TrialConfig, trial: TrialConfig, chain: ChainConfig) -> list[str]:
    """Refuses an axis that changes further fields: the predecessor that a config implies would not be in the study."""
    one, other = (flatten(to_dict(config)) for config in (before, trial))
    apart = {path for path in one | other if one.get(path) != other.get(path)}
    more = sorted(apart - {chain.along, "chain.earlier"})
    if not more:
        return []
    rule = f"the axis {chain.along} changes {', '.join(more)}, too. A chain runs along an axis that changes one field"
    return [sentence("chain.along", f"{rule}: choose another, or {_WITHOUT}")]


def _wrong_along(chain: ChainConfig, axes: Axes, parts: Mapping[str, Sequence[Any]]) -> Iterator[Problem]:
    if chain.along not in axes:
        rule = f"{show(chain.along)} is no axis of the grid.{did_you_mean(chain.along, axes)} Axes: {one_of(axes)}"
        yield Problem("chain.along", f"{rule}. Make it one, or {_WITHOUT}", kind=UNKNOWN)
        return
    if chain.along == ROWS:
        yield Problem("chain.along", "whole rows have no order to carry along: name an axis of one field", kind=WHOLE)
        return
    section, _, rest = chain.along.partition(".")
    if section == CHAIN:
        yield Problem("chain.along", "a chain cannot run along a field of its own", show(chain.along))
        return
    held = [value_at(part, rest) if rest else part for part in parts.get(section, ())]
    if any(not isinstance(value, bool | int | float | str) for value in held):
        rule = f"the values of {chain.along} are no numbers, texts or truth values, and have no order to carry along"
        yield Problem("chain.along", rule, kind=WHOLE)


def _wrong_into(chain: ChainConfig, axes: Axes, parts: Mapping[str, Sequence[Any]]) -> Iterator[Problem]:
    section, _, rest = chain.into.partition(".")
    if section not in parts or not rest:
        hint = "" if section in parts else did_you_mean(section, parts)
        rule = f"{show(chain.into)} names no field.{hint} A path begins with {', '.join(parts)} and goes on below it"
        yield Problem("chain.into", f"{rule}, as in training.stop_below", kind=UNKNOWN)
        return
    if chain.into in axes:
        yield Problem("chain.into", f"{chain.into} is an axis of the grid, and the chain would write over it")
        return
    for part in parts[section] or _plain_part(section):
        yield from _wrong_field(chain, part, section, rest.split("."))


def _wrong_field(chain: ChainConfig, part: Any, path: str, rest: Sequence[str]) -> Iterator[Problem]:
    """Checks the field at ``rest`` below ``part``, a config that lies at ``path``."""
    key, *below = rest
    cls: type = type(part)
    known = keys(cls) if dataclasses.is_dataclass(cls) else {}
    field = known.get(key)
    if field is None:
        rule = f"names no field: {path} has no field {key!r}.{did_you_mean(key, known)} Fields: {one_of(known)}"
        yield Problem("chain.into", rule, kind=UNKNOWN)
        return
    if below:
        yield from _wrong_field(chain, getattr(part, field.name), f"{path}.{key}", below)
        return
    hint = hints(cls)[field.name]
    if float not in (hint, *typing.get_args(hint)):
        yield Problem("chain.into", "must name a field that takes any number, fractions too", show(chain.into))
        return
    value, usual = getattr(part, field.name), default(field)
    if isinstance(usual, float) and value != usual:
        rule = f"the study sets {chain.into} to {show(value)}, and the chain would write over it. Leave one of them out"
        yield Problem("chain.into", rule)
    if type(chain.first) in (int, float):
        refused: list[Problem] = []
        values.scalar(float, field, chain.first, "chain.first", refused)
        yield from refused


def _plain_part(section: str) -> list[Any]:
    """The defaults of a section without a valid part, where its class is known without a name."""
    usual = default(keys(TrialConfig)[section])
    return [] if usual is dataclasses.MISSING else [usual]
