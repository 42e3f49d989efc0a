"""Which columns tell one condition of a study from another: task and model, and the config fields that differ."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from memsweep.config.schema.canonical import to_dict
from memsweep.models.module.config import ModuleConfig
from memsweep.report.read.study import fields_of

KERNEL, PARAMETERIZATION = "task.kernel", "model.parameterization"
ALWAYS = ("task", KERNEL, "model", PARAMETERIZATION)
"""Columns that name a condition in every study whose configs have the field, whether they differ or not."""
SIZES = {"width": "model.width", "horizon": "task.horizon"}
"""The axes of a slope: they tell no conditions apart."""
SEARCHED = "searched"
"""The value of a column of ALWAYS whose field was searched: the winners of all sizes are one condition."""

_NEVER = (
    *SIZES.values(),
    "chain.earlier",  # follows from the width, or from another axis that the chain runs along
    "training.checkpoint_every",  # cannot change a number
)
_SEEDS = ("training.seeds", "training.first_seed")
OF_A_SEARCH = ("training.until", "training.turns", *_SEEDS, "training.data_seed")
"""Fields that tell no conditions of a search apart, besides the searched ones."""

_Fields = Mapping[str, Any]
"""Dotted path -> value, of one trial's config."""

_OF_A_MODULE = fields_of({"model": to_dict(ModuleConfig(factory=""))})
"""The defaults of a user's module. Most of its fields say how to call the factory: a reader needs the others."""


@dataclass(frozen=True)
class Grouping:
    """How the trials of a study fall into conditions.

    Attributes:
        conditions: identity -> {column: value}, None where a trial's config lacks the field.
        columns: the columns: dotted paths of config fields; a part's name stands at the part's own path.
        coupled: fields that change only together with width or horizon, whose effect is part of the slopes.
        fixed: the fields of task and model that have one value throughout; of a user's module, without the defaults.
    """

    conditions: Mapping[str, Mapping[str, Any]]
    columns: tuple[str, ...]
    coupled: tuple[str, ...]
    fixed: Mapping[str, Any]

    def members(self) -> Iterator[tuple[Mapping[str, Any], list[str]]]:
        """Every condition with the identities of its trials, in the order of the trials."""
        together: dict[tuple[Any, ...], list[str]] = {}
        for identity, values in self.conditions.items():
            together.setdefault(tuple(values.values()), []).append(identity)
        for identities in together.values():
            yield self.conditions[identities[0]], identities


def find_grouping(
    records: Mapping[str, Mapping[str, Any]], replicas: pd.DataFrame, ignored: Collection[str] = ()
) -> Grouping:
    """Find the fields whose values tell the conditions of a study apart.

    A field becomes a column when it differs between trials of one width and horizon, or between conditions. A field
    that is tied to width or horizon (fewer steps for wide models) is no column, which would leave each condition a
    single width. Seeds are pooled, unless two trials of a condition and size have the same seed.

    Args:
        records: identity -> record; of each, its config.
        replicas: columns identity, width, horizon and seed, a row per trained seed.
        ignored: dotted paths of fields that tell nothing apart: the searched ones.
    """
    fields = {identity: fields_of(record["config"]) for identity, record in records.items()}
    sizes = _sizes(replicas)
    always = [name for name in ALWAYS if any(name in values for values in fields.values())]
    others = _others(fields.values(), always, ignored)
    told, coupled = _varied(others, always, fields, sizes)
    columns = [*always, *told]
    conditions = _conditions(columns, fields, ignored)
    if _share_seeds(replicas, conditions, sizes):
        columns += [
            name for name in _SEEDS if name not in ignored and len({each.get(name) for each in fields.values()}) > 1
        ]
        conditions = _conditions(columns, fields, ignored)
    of_parts = [name for name in others if _order(name)[0] < 2]
    return Grouping(conditions, tuple(columns), tuple(sorted(coupled)), _fixed([*always, *of_parts], fields.values()))


def _others(configs: Collection[_Fields], always: Collection[str], ignored: Iterable[str]) -> list[str]:
    """The fields besides ``always`` that may tell conditions apart: the task's, then the model's, then all others."""
    names = sorted({name for fields in configs for name in fields}.difference(always), key=_order)
    return [name for name in names if not _within(name, (*_NEVER, *_SEEDS, *ignored))]


def _varied(
    names: Iterable[str], always: Iterable[str], fields: Mapping[str, _Fields], sizes: Mapping[str, tuple[Any, ...]]
) -> tuple[list[str], list[str]]:
    """The columns that the fields which differ make besides ``always``, and the fields that are tied to the size.

    Names of models are columns first, because a field is tied or not within the conditions of the columns so far.
    """
    differ = {name: values for name in names if len(values := _values(name, fields.values())) > 1}
    columns = [name for name, values in differ.items() if _names_a_model(name, values)]
    coupled: list[str] = []
    for name in [name for name in differ if name not in columns]:
        rows = {key: [values.get(column) for column in (*always, *columns)] for key, values in fields.items()}
        (coupled if _tied_to_size(name, rows, fields, sizes) else columns).append(name)
    return sorted(columns, key=_order), coupled


def _conditions(
    columns: Iterable[str], fields: Mapping[str, _Fields], ignored: Collection[str]
) -> dict[str, dict[str, Any]]:
    """identity -> {column: value}; a searched field has one value throughout."""
    return {
        identity: {name: SEARCHED if _within(name, ignored) else values.get(name) for name in columns}
        for identity, values in fields.items()
    }


def _fixed(names: Iterable[str], configs: Collection[_Fields]) -> dict[str, Any]:
    """Of these fields those that have one value throughout; of a user's module, without the defaults."""
    fixed = {name: value for name in names if (value := _common(name, configs)) is not None}
    if fixed.get("model") != "module":
        return fixed
    return {name: value for name, value in fixed.items() if name in ALWAYS or _OF_A_MODULE.get(name) != value}


def planned_replicas(configs: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """The ``replicas`` that trials with these configs will have, as ``find_grouping`` needs them."""
    rows = []
    for identity, config in configs.items():
        fields, training = fields_of(config), config["training"]
        sizes = [fields.get(path) for path in SIZES.values()]
        rows += [(identity, *sizes, training["first_seed"] + seed) for seed in range(training["seeds"])]
    return pd.DataFrame(rows, columns=["identity", *SIZES, "seed"])


def group(table: pd.DataFrame, columns: Iterable[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The parts of a table with equal values in ``columns`` (nulls are equal), in order of first appearance."""
    names = [name for name in columns if name in table.columns]
    if table.empty:
        return
    for key, part in table.groupby(names, dropna=False, sort=False):
        yield {name: plain_value(value) for name, value in zip(names, key, strict=True)}, part


def plain_value(value: Any) -> Any:
    """A table's entry as a Python value: NumPy scalars unwrapped, every kind of null as None."""
    if hasattr(value, "item"):
        value = value.item()
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    return value


def _order(name: str) -> tuple[int, str]:
    """The task's fields, then the model's, then all others."""
    return 0 if _within(name, ("task",)) else 1 if _within(name, ("model",)) else 2, name


def _names_a_model(name: str, values: Iterable[Any]) -> bool:
    """Whether a field of task or model has words as values, and so tells models apart whatever their sizes."""
    return _order(name)[0] < 2 and any(isinstance(value, str) for value in values)


def _within(name: str, paths: Iterable[str]) -> bool:
    return any(name == path or name.startswith(path + ".") for path in paths)


def _values(name: str, configs: Iterable[_Fields]) -> set[Any]:
    """The values of a field in the configs that have it."""
    return {config[name] for config in configs if name in config}


def _common(name: str, configs: Collection[_Fields]) -> Any:
    """The value that all configs have; None where they differ."""
    values = {config.get(name) for config in configs}
    return values.pop() if len(values) == 1 else None


def _sizes(replicas: pd.DataFrame) -> dict[str, tuple[Any, ...]]:
    """identity -> (width, horizon)."""
    if replicas.empty:
        return {}
    first = replicas.drop_duplicates("identity")
    sides = [[plain_value(value) for value in first[name]] for name in SIZES]
    return dict(zip(first["identity"], zip(*sides, strict=True), strict=True))


def _tied_to_size(
    name: str,
    conditions: Mapping[str, Any],
    fields: Mapping[str, _Fields],
    sizes: Mapping[str, tuple[Any, ...]],
) -> bool:
    """Whether a field differs within a condition, but never between its trials of one width and horizon."""
    at_size: dict[Any, set[Any]] = {}
    in_condition: dict[Any, set[Any]] = {}
    for identity, values in fields.items():
        condition = tuple(conditions[identity])
        at_size.setdefault((condition, sizes.get(identity)), set()).add(values.get(name))
        in_condition.setdefault(condition, set()).add(values.get(name))
    crossed = any(len(values) > 1 for values in at_size.values())
    return not crossed and any(len(values) > 1 for values in in_condition.values())


def _share_seeds(replicas: pd.DataFrame, conditions: Mapping[str, Any], sizes: Mapping[str, Any]) -> bool:
    """Whether two trials of one condition, width and horizon have a seed in common."""
    if replicas.empty:
        return False
    trials = {identity: (tuple(conditions[identity].values()), sizes[identity]) for identity in sizes}
    keys = [(trials[identity], seed) for identity, seed in zip(replicas["identity"], replicas["seed"], strict=True)]
    return len(set(keys)) < len(keys)
