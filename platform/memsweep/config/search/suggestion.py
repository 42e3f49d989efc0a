"""The trial of a suggestion in a cell of the grid, and the same trial with fresh seeds and data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.config.core.merge import edited
from memsweep.config.core.reflect import default, keys, registered_kind, value_of
from memsweep.config.schema.canonical import MISSING, plain, plain_at, to_dict
from memsweep.config.schema.search import Domain
from memsweep.config.schema.training import Turn
from memsweep.config.schema.trial import TrialConfig, usual_training


def config_of(
    cell: TrialConfig, values: Mapping[str, Any], *, until: int = 0, turns: Sequence[Turn] = ()
) -> TrialConfig:
    """A cell's trial with the values of a suggestion laid over it, by the rules of an entry of a grid.

    What depends on a field that the values change falls to its own default (``depends_on``), a named part is replaced
    with its name, and a task or model of another name keeps the fields that the cell sets to other than their default.

    Args:
        cell: a trial of the study's grid.
        values: dotted path -> plain value; a part may be its name or ``{name: ..., its fields}``.
        until: optimizer steps after which training ends early; 0 for all of them.
        turns: settings of earlier stretches of the training.

    Raises:
        ConfigError: these values together are no valid trial.
    """
    data = edited(TrialConfig, shortest_form(cell), in_order(values))
    training = data.setdefault("training", {})
    training |= {"until": until} if until else {}
    training |= {"turns": [to_dict(turn) for turn in turns]} if turns else {}
    trial: TrialConfig = config_from(TrialConfig, data, f"the suggestion {_values_text(values)}")
    return trial


def with_fresh_seeds(config: TrialConfig, seeds: int, first_seed: int) -> TrialConfig:
    """The trial with other initial weights, and with the data streams of the next ``data_seed``: all else is equal."""
    data_seed = config.training.data_seed + 1
    training = dataclasses.replace(config.training, seeds=seeds, first_seed=first_seed, data_seed=data_seed)
    return dataclasses.replace(config, training=training)


def fresh_first_seed(cells: Sequence[TrialConfig]) -> int:
    """The seed after the last that any cell of a search has."""
    return max(cell.training.first_seed + cell.training.seeds for cell in cells)


def fixed_of(cell: TrialConfig, space: Mapping[str, Domain]) -> dict[str, Any]:
    """The cell's own values of the fields that conditions (``when``) name and that are not searched.

    Args:
        cell: a trial of the study's grid.
        space: dotted path -> domain.

    Returns:
        Dotted path -> plain value; without the fields that this cell does not have.
    """
    named = dict.fromkeys(path for domain in space.values() for path in domain.when if path not in space)
    return {path: value for path in named if (value := plain_at(cell, path)) is not MISSING}


def in_order(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """A suggestion as edits of a trial: groups come before the fields inside them, whatever their order."""
    return sorted(values.items(), key=lambda item: item[0].count("."))


def shortest_form(trial: TrialConfig) -> dict[str, Any]:
    """The trial as the shortest study file would write it: without the fields that have their default.

    So a default that follows from another field follows from that field's new value when something is laid over it.
    """
    data = _shortest(trial, None)
    for name, value in usual_training(trial.task, trial.model, trial.perturbation).items():
        if getattr(trial.training, name) == value:
            data["training"].pop(name, None)
    return data


def _shortest(config: Any, usual: Any) -> dict[str, Any]:
    """Fields of a config that differ from ``usual`` (None: from the defaults of its class); named parts always."""
    data: dict[str, Any] = {"name": config.name} if getattr(config, "kind", None) in registry.NAMED else {}
    for key, field in keys(type(config)).items():
        value = value_of(config, field)
        before = default(field) if usual is None else value_of(usual, field)
        if registered_kind(field) is not None:
            data[key] = _shortest(value, None)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            data[key] = _shortest(value, before if isinstance(before, type(value)) else None)
        elif type(value) is not type(before) or value != before:
            data[key] = plain(value)
    return data


def _values_text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{path}={value}" for path, value in values.items()) or "without values"
