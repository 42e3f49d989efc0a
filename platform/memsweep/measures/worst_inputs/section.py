"""The perturbation error over weights and inputs: for each condition, size and ball, by radius."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import Spread
from memsweep.report.naming.conditions import Grouping, Labels, group
from memsweep.report.naming.numbers import figure, show
from memsweep.report.read.study import Study
from memsweep.report.values.chart import Chart, chart, size_words, spread_point
from memsweep.report.values.section import Section
from memsweep.report.values.table import SHOWN, Cell, Column, Table, condition_columns, spread_cell

WORDS = (
    "The largest error of the last output that a search finds with weights moved by at "
    "most the radius, over all inputs of at most a bounded size, as a share of the largest output of the target over "
    "these inputs: 1 is as far off as an output of zero. No more than a lower bound. Medians over seeds "
    "[least, most]."
)


def section(contents: Contents) -> Section:
    """The errors by radius as table and chart, and their medians for each trial."""
    rows = worst_rows(contents.measured, contents.grouping)
    table = _table(rows, contents.grouping.columns, contents.labels)
    return Section(table.title, WORDS, table, [*_charts(rows, contents.labels)], _metrics(rows))


@dataclass(frozen=True)
class WorstRow:
    """The largest errors of the last output found over weights and inputs, of one condition, size and ball.

    Attributes:
        condition: column -> value, as in a Finding.
        ball: which weights move.
        bound: of the size of every input.
        errors: ``identity``, ``seed``, ``radius``, ``error``, ``zero_error`` and ``share``, the former of the latter.
    """

    condition: Mapping[str, Any]
    width: int | None
    horizon: int
    ball: str
    bound: float
    errors: pd.DataFrame

    @cached_property
    def by_radius(self) -> dict[float, Spread]:
        """Radius -> the error as a share of the largest output of the target, over the seeds."""
        radii = self.errors["radius"]
        return {float(r): Spread.of(self.errors.loc[radii == r, "share"]) for r in sorted(radii.unique())}


def worst_rows(study: Study, grouping: Grouping) -> list[WorstRow]:
    """A row per condition, size, ball and bound that was measured."""
    rows = []
    for condition, identities in grouping.members():
        table = study.of("worst_inputs", identities).dropna(subset=["width", "horizon"])
        errors = table.assign(share=table["error"] / table["zero_error"])
        for of, part in group(errors, ["width", "horizon", "ball", "bound"]):
            rows.append(WorstRow(condition, of["width"], of["horizon"], of["ball"], of["bound"], part))
    return rows


def _table(rows: Sequence[WorstRow], names: Sequence[str], labels: Labels) -> Table[WorstRow]:
    """The errors by radius; the CSV file has a row per seed and radius."""
    radii = sorted({radius for row in rows for radius in row.by_radius})

    def at(radius: float) -> Column[WorstRow]:
        def cell(row: WorstRow) -> Cell:
            return spread_cell(row.by_radius.get(radius, Spread.of([])), figure)

        return Column(f"moved by {radius:g}" if radius else "as trained", lambda row: None, cell=cell, views=SHOWN)

    columns: list[Column[WorstRow]] = [
        *condition_columns(names, labels),
        Column("width", lambda row: row.width, varies=True),
        Column("horizon", lambda row: row.horizon, varies=True),
        Column("ball", lambda row: row.ball, varies=True),
        Column("bound", lambda row: row.bound, varies=True),
        *map(at, radii),
    ]
    parts = [row.errors.assign(**{name: row.condition[name] for name in names}) for row in rows]
    stored = [*names, "width", "horizon", "seed", "ball", "norm", "bound", "radius", "error", "zero_error", "share"]
    frame = pd.concat(parts, ignore_index=True)[stored] if parts else pd.DataFrame(columns=stored)
    title = "Error over weights and inputs (a lower bound)"
    return Table("worst_inputs", title, rows, columns, stored=frame)


def _charts(rows: Sequence[WorstRow], labels: Labels) -> Iterator[Chart]:
    several = len({(row.width, row.horizon, row.bound) for row in rows}) > 1
    together: dict[str, dict[str, list[list[float]]]] = {}
    for row in rows:
        inputs = [f"inputs to {show(row.bound)}"] if several else []
        title = ", ".join([labels.memory(row.condition), *size_words(row.width, row.horizon, several=several), *inputs])
        line = [spread_point(radius, share) for radius, share in row.by_radius.items()]
        together.setdefault(title, {})[f"{labels.machine(row.condition)}, {row.ball}"] = line
    for title, lines in together.items():
        unit = "share of the target's largest output"
        yield chart(title, "radius", unit, "y", lines, levels=[[1, "an output of 0"]])


def _metrics(rows: Sequence[WorstRow]) -> dict[str, dict[str, float]]:
    """``worst_inputs_all/share_0.1``, by ball and radius: the median error over the seeds."""
    found = defaultdict[str, dict[str, float]](dict)
    for row in rows:
        for identity, errors in row.errors.groupby("identity", observed=True):
            shares = {f"share_{r:g}": Spread.of(share).middle for r, share in errors.groupby("radius")["share"]}
            known = {name: share for name, share in shares.items() if math.isfinite(share)}
            found[str(identity)].update({f"worst_inputs_{row.ball}/{name}": share for name, share in known.items()})
    return found
