"""The capacity of the trained states, by condition and size."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import LossRow, Spread
from memsweep.report.naming.conditions import Grouping, Labels, group
from memsweep.report.read.study import Study
from memsweep.report.values.section import Glance, Section
from memsweep.report.values.table import Column, Table, condition_columns

WORDS = (
    "Capacity: the sum over targets of the share of their variance that a linear readout of the states explains. Best: "
    "by least squares on the trained states, corrected for the number of states; of white noise repeated after delays "
    "it is Jaeger's memory capacity, at most the number of independent states. Trained: by the readout as it was "
    "trained. Medians over seeds [least, most]."
)
_BEST = "Capacity: the sum over targets of the share of variance that the best linear readout of the states explains."


@dataclass(frozen=True)
class ReadoutRow:
    """The capacity of one condition and size, over the seeds.

    Attributes:
        condition: column -> value, as in a Finding.
        table: ``identity``, ``seed``, ``best``, ``trained`` and ``states``.
    """

    condition: Mapping[str, Any]
    width: int | None
    horizon: int | None
    table: pd.DataFrame

    def over_seeds(self, column: str) -> Spread:
        """Of a column of the table."""
        return Spread.of(self.table[column])


def section(contents: Contents) -> Section:
    """A table of the capacities, and those of each trial."""
    rows = readout_rows(contents.measured, contents.grouping)
    table = _table(rows, contents.grouping.columns, contents.labels)
    return Section(table.title, WORDS, table, metrics=_metrics(rows), glance=[_glance(contents.measured)])


def readout_rows(study: Study, grouping: Grouping) -> list[ReadoutRow]:
    """A row per condition and size that was measured."""
    return [
        ReadoutRow(condition, of["width"], of["horizon"], part)
        for condition, identities in grouping.members()
        for of, part in group(study.of("linear_readout", identities), ["width", "horizon"])
    ]


def _table(rows: Sequence[ReadoutRow], names: Sequence[str], labels: Labels) -> Table[ReadoutRow]:
    columns: list[Column[ReadoutRow]] = [
        *condition_columns(names, labels),
        Column("width", lambda row: row.width, varies=True),
        Column("horizon", lambda row: row.horizon, varies=True),
        Column("best readout", lambda row: row.over_seeds("best"), key="best", ends=True),
        Column("trained readout", lambda row: row.over_seeds("trained"), key="trained", ends=True),
        Column("independent states", lambda row: row.over_seeds("states"), key="states", ends=True),
    ]
    return Table("linear_readout", "Capacity of the states", rows, columns)


def _metrics(rows: Sequence[ReadoutRow]) -> dict[str, dict[str, float]]:
    """``linear_readout/best``, ``trained`` and ``states``: the medians over the seeds."""
    found = defaultdict[str, dict[str, float]](dict)
    for row in rows:
        for identity, part in row.table.groupby("identity", observed=True):
            medians = {name: Spread.of(part[name]).middle for name in ("best", "trained", "states")}
            known = {f"linear_readout/{name}": value for name, value in medians.items() if math.isfinite(value)}
            found[str(identity)].update(known)
    return found


def _glance(study: Study) -> Glance:
    def best(row: LossRow) -> Spread:
        return Spread.of(study.of("linear_readout", row.identities)["best"])

    return Glance("capacity", "capacity", _BEST, best)
