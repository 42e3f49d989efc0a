"""How measured numbers grow with the width or the horizon: the slope of the log number against the log size.

A slope is that of the least squares over all sizes for each seed, with Student's interval over seeds, as that of an
effective state size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from memsweep.report.analysis.losses import Spread
from memsweep.report.analysis.slopes import slope_of
from memsweep.report.naming.conditions import SIZES, Grouping, group
from memsweep.report.read.study import Study
from memsweep.stability.verdict.trend import Slope
from memsweep.sweep.store import tables

MOVED = re.compile(r"(.+)_(?:(\d+)_bits|radius_([^_]+))")
"""The name of a metric that was measured again, with rounded weights or with the worst push that a search found."""
LEAST = 3
"""Sizes from which on there is a row."""


@dataclass(frozen=True)
class GrowthRow:
    """One number of one condition at several widths, or horizons.

    Attributes:
        condition: column -> value, as in a Finding.
        quantity: a column that ``growing`` has, or the task's metric; with ``_4_bits`` or ``_radius_0.1`` behind it
            where the weights were rounded or moved.
        step: of training; None at its end.
        axis: ``width`` or ``horizon``.
        other: the value of the other one, which is the same throughout; None where there is none.
        values: ``[seeds, sizes]``, of the seeds that have a value at every size.
        identities: of the trials behind them.
    """

    condition: Mapping[str, Any]
    quantity: str
    step: int | None
    axis: str
    other: float | None
    values: pd.DataFrame
    identities: tuple[str, ...]

    @property
    def sizes(self) -> list[float]:
        """Increasing."""
        return [float(size) for size in self.values.columns]

    def at(self, size: float) -> Spread:
        """The number there, over the seeds."""
        return Spread.of(self.values[size])

    @cached_property
    def slope(self) -> Slope:
        """0 where the number does not depend on the size, 1 where it is proportional to it.

        Not available where a value of some seed is infinite or not positive.
        """
        return slope_of(self.values)


def growing() -> dict[str, str]:
    """The columns of all tables whose growth is reported -> what each of them is, in words."""
    return {column: words for name in tables.names() for column, words in tables.definition(name).grows.items()}


def growth_rows(study: Study, grouping: Grouping) -> list[GrowthRow]:
    """A row for each condition, number, axis and value of the other axis, where there are several sizes.

    Of numbers that are measured in training, after the first step that was measured and after the last.
    """
    rows = [
        GrowthRow(condition, quantity, step, axis, other, values, behind)
        for condition, identities in grouping.members()
        for quantity, step, table in _measured(study, identities)
        for axis in SIZES
        for other, values, behind in _by_size(table, axis)
    ]
    order = {quantity: place for place, quantity in enumerate(growing())}
    return sorted(rows, key=lambda row: (order.get(row.quantity, -1), row.quantity, row.axis != "width", row.step or 0))


def _measured(study: Study, identities: list[str]) -> Iterator[tuple[str, int | None, pd.DataFrame]]:
    """Quantity, step, and a row for each replica: ``identity``, ``seed``, ``width``, ``horizon`` and ``value``."""
    sizes = ["identity", "seed", *SIZES]
    replicas = study.of("replicas", identities)
    for named, part in group(replicas.dropna(subset=["metric"]), ["metric"]):
        yield named["metric"], None, part[sizes].assign(value=part["test_metric"])
    others = study.of("metrics", identities)
    again = others[others["metric"].astype(str).str.fullmatch(MOVED)]
    for named, part in group(again.merge(replicas[sizes], on=["identity", "seed"]), ["metric"]):
        yield named["metric"], None, part[[*sizes, "value"]]
    for name in tables.names():
        if columns := tables.definition(name).grows:
            yield from _at_steps(study.of(name, identities), columns)


def _at_steps(table: pd.DataFrame, columns: Iterable[str]) -> Iterator[tuple[str, int | None, pd.DataFrame]]:
    """As ``_measured``, of columns of one table: after the first and the last step, where it has steps."""
    sizes = ["identity", "seed", *SIZES]
    if "step" not in table:
        yield from ((column, None, table[sizes].assign(value=table[column])) for column in columns)
        return
    steps = sorted(table.loc[table["step"] > 0, "step"].unique())
    for step in dict.fromkeys([*steps[:1], *steps[-1:]]):
        part = table[table["step"] == step]
        yield from ((column, int(step), part[sizes].assign(value=part[column])) for column in columns)


def _by_size(table: pd.DataFrame, axis: str) -> Iterator[tuple[float | None, pd.DataFrame, tuple[str, ...]]]:
    """The values ``[seeds, sizes]`` along an axis and their trials, for each value of the other one."""
    (other,) = {*SIZES} - {axis}
    for at, part in group(table.dropna(subset=[axis]), [other]):
        values = part.pivot_table(index="seed", columns=axis, values="value").dropna()
        if values.shape[1] >= LEAST and len(values):
            yield at[other], values, tuple(part["identity"].astype(str).unique())
