"""Chains: trials that take a number from the result of the trial before them along one axis of the grid.

A chained trial is a function of its own config like any other: the config holds the values of the axis before its
own, so every trial that it depends on can be derived from it.
"""

from __future__ import annotations

import math
from typing import Any, Final

from memsweep.config.core.merge import put
from memsweep.config.core.reflect import keys, value_of
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.trial import ChainConfig, TrialConfig

CHAIN: Final = "chain"


def predecessor(config: TrialConfig) -> TrialConfig | None:
    """The trial whose result this one takes a number from; None without a chain and for the first trial of one.

    Raises:
        ConfigError: there is no such trial, because the config was not made by a grid.
    """
    chain = config.chain
    if chain is None or not chain.earlier:
        return None
    data = to_dict(config)
    put(data, chain.along.split("."), chain.earlier[-1])
    data[CHAIN]["earlier"] = list(chain.earlier[:-1])
    return trial_from_dict(data)


def chain_value(chain: ChainConfig, carried: float | None) -> float:
    """The value that the chain gives to its field in a trial.

    Args:
        chain: the trial's place in its chain.
        carried: the number ``chain.carry`` of the predecessor's summary, unscaled; None for the first trial.

    Raises:
        ValueError: a number for a first trial, none for a later one, or one that is not finite.
    """
    if (carried is None) is bool(chain.earlier):
        where = f"{len(chain.earlier)} trials" if chain.earlier else "no trial"
        raise ValueError(f"a trial with {where} before it in its chain cannot take the value {carried}")
    if carried is None:
        return chain.first
    if not math.isfinite(carried):
        raise ValueError(f"the carried {chain.carry} is {carried}, and only a finite number can be carried on")
    return chain.factor * carried


def resolve_chain(config: TrialConfig, carried: float | None) -> TrialConfig:
    """The trial with the carried value in its field and without a chain, as the engine runs it.

    Args:
        config: a chained trial.
        carried: as for ``chain_value``.

    Raises:
        ValueError: the trial is not chained, or ``chain_value`` refuses.
        ConfigError: the field does not accept the value.
    """
    if config.chain is None:
        raise ValueError("the trial is not chained: there is no field to put a carried value into")
    data = to_dict(config)
    del data[CHAIN]
    put(data, config.chain.into.split("."), chain_value(config.chain, carried))
    return trial_from_dict(data)


def value_at(config: Any, path: str) -> Any:
    """The value of the field at a dotted path below a config."""
    for key in path.split("."):
        cls: type = type(config)
        config = value_of(config, keys(cls)[key])
    return config
