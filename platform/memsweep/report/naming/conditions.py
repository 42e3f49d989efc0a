"""Which columns tell one condition from another: the fixed ones, and the config fields that this study varies."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from memsweep.config.claims.sections import COLUMNS

CONDITION = tuple(column for column in COLUMNS if column != "task")
"""The columns that always name a condition, in the order of ``verdicts.csv``."""

_SHOWN_ELSEWHERE = (
    *("task.kernel", "task.rate", "task.exponent", "task.horizon"),
    *("model.name", "model.width", "model.activation", "model.normalize", "model.parameterization"),
    "chain.earlier",  # follows from the width, or whatever the chain runs along
    "training.checkpoint_every",  # cosmetic: it cannot change a number
)
_SEEDS = ("training.seeds", "training.first_seed")
OF_A_SEARCH = ("training.until", "training.turns", *_SEEDS, "training.data_seed")
"""Fields of a search's rows that tell no conditions apart, beside what is searched."""

_COLUMN_FIELDS = {
    **{name: f"model.{name}" for name in ("activation", "parameterization", "normalize")},
    **{"rate": "task.rate", "exponent": "task.exponent"},
}
_SEARCHED = dict.fromkeys(("activation", "parameterization"), "searched")


@dataclass(frozen=True)
class Grouping:
    """How the trials of a study fall into conditions.

    Attributes:
        extra: identity -> {dotted field: value}, for the fields beyond CONDITION that tell conditions apart.
        columns: the names of these fields, sorted.
        coupled: fields that change only together with width or horizon: part of the slopes, not of the grouping.
    """

    extra: Mapping[str, Mapping[str, Any]]
    columns: tuple[str, ...]
    coupled: tuple[str, ...]

    def attach(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table with one column per extra field."""
        if table.empty:
            return table
        values = {name: [self.extra[identity][name] for identity in table["identity"]] for name in self.columns}
        return table.assign(**values)


def find_grouping(
    records: Mapping[str, Mapping[str, Any]], replicas: pd.DataFrame, ignored: Collection[str] = ()
) -> Grouping:
    """Find the fields that vary within a study beside its condition columns.

    A field becomes a column when it differs between trials of one width and horizon, or between conditions. One
    that is tied to width or horizon (fewer steps for wide models) stays out: as a column it would leave each
    condition a single width. Seeds are pooled, unless two trials would then claim the same seed.

    Args:
        records: identity -> record; of each, its config.
        replicas: the table of all of them.
        ignored: dotted paths of fields that tell nothing apart, whatever they do: those that a search has set.
    """
    from memsweep.config.schema.canonical import flatten

    flat = {identity: {k: _hashable(v) for k, v in flatten(r["config"]).items()} for identity, r in records.items()}
    points = _points(replicas)
    names = sorted(
        {name for fields in flat.values() for name in fields if not _fixed(name) and not _within(name, ignored)}
    )
    columns: list[str] = []
    coupled: list[str] = []
    for name in names:
        if len({fields[name] for fields in flat.values() if name in fields}) < 2:
            continue
        role = _role({identity: flat[identity].get(name) for identity in flat}, points)
        (columns if role == "column" else coupled).append(name)
    if _collide(replicas, points, {i: tuple(flat[i].get(name) for name in columns) for i in flat}):
        columns += [
            name for name in _SEEDS if name not in ignored and len({fields.get(name) for fields in flat.values()}) > 1
        ]
    columns.sort()
    extra = {identity: {name: fields.get(name) for name in columns} for identity, fields in flat.items()}
    return Grouping(extra=extra, columns=tuple(columns), coupled=tuple(coupled))


def group(table: pd.DataFrame, columns: Iterable[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The parts of a table with equal values in ``columns`` (nulls are equal), in order of first appearance."""
    names = [name for name in columns if name in table.columns]
    if table.empty:
        return
    for key, part in table.groupby(names, dropna=False, sort=False):
        yield {name: plain_value(value) for name, value in zip(names, key, strict=True)}, part


def hidden(searched: Collection[str]) -> dict[str, str | None]:
    """The columns of CONDITION whose fields were searched -> what stands there instead.

    The winners of all widths are one condition, whatever each of them took. A column of text says ``searched``, one
    of another type is empty.
    """
    return {
        column: _SEARCHED.get(column)
        for column, path in _COLUMN_FIELDS.items()
        if any(_within(field, (path,)) for field in searched)
    }


def of_winners(conditions: Mapping[str, Any], searched: Collection[str]) -> dict[str, Any]:
    """The condition columns of one winner of a search (see ``hidden``)."""
    return {**conditions, **hidden(searched)}


def plain_value(value: Any) -> Any:
    """A cell as a Python value: NumPy scalars unwrapped, every kind of null as None."""
    if hasattr(value, "item"):
        value = value.item()
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    return value


def _fixed(name: str) -> bool:
    return name in _SEEDS or _within(name, _SHOWN_ELSEWHERE)


def _within(name: str, paths: Iterable[str]) -> bool:
    return any(name == path or name.startswith(path + ".") for path in paths)


def _hashable(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, (list, tuple, dict)) else value


def _points(replicas: pd.DataFrame) -> dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """identity -> (condition, (width, horizon))."""
    if replicas.empty:
        return {}
    rows = replicas.drop_duplicates("identity").to_dict("records")
    return {
        str(row["identity"]): (
            tuple(plain_value(row.get(name)) for name in ("task", *CONDITION)),
            (plain_value(row.get("width")), plain_value(row.get("horizon"))),
        )
        for row in rows
    }


def _role(values: Mapping[str, Any], points: Mapping[str, tuple[tuple[Any, ...], tuple[Any, ...]]]) -> str:
    at_point: dict[Any, set[Any]] = {}
    in_condition: dict[Any, set[Any]] = {}
    for identity, value in values.items():
        condition, size = points.get(identity, ((), ()))
        at_point.setdefault((condition, size), set()).add(value)
        in_condition.setdefault(condition, set()).add(value)
    crossed = any(len(found) > 1 for found in at_point.values())
    tied_to_size = any(len(found) > 1 for found in in_condition.values())
    return "column" if crossed or not tied_to_size else "coupled"


def _collide(replicas: pd.DataFrame, points: Mapping[str, Any], groups: Mapping[str, tuple[Any, ...]]) -> bool:
    """Whether two trials of one group, width and horizon hold a replica of the same seed."""
    if replicas.empty:
        return False
    keys = [(points[i], groups[i], seed) for i, seed in zip(replicas["identity"], replicas["seed"], strict=True)]
    return len(set(keys)) < len(keys)
