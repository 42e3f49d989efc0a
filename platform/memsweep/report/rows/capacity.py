"""Effective state sizes as a table."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from memsweep.report.analysis.capacity.sizes import SizeRow
from memsweep.report.analysis.losses import Spread
from memsweep.report.naming.labels import Labels
from memsweep.report.rows.table import SHOWN, Cell, Column, Table, condition_columns, spread_cell

MAPS = {
    "block": "at the middle of the horizon, above {} of the largest",
    "hankel": "over all time, linear layers in closed form, above {} of the largest",
    "truncation": "linear layers pruned by balanced truncation, error at most {} of the gain",
}
"""What is spread_cell, by the map and the tolerance."""
SIZES_MEAN = (
    "Effective state size: how many singular values of the map from past inputs to later outputs exceed a share of the "
    "largest. So many numbers of the past do those outputs show, at most one for each state. Medians over seeds "
    "[least, most]; of models that are not linear, of derivatives at test sequences. Of pruned layers: the states that "
    "must be kept, by the largest error over the frequencies that were tried. Slope: of log size against log "
    "width, 95 % over seeds: 1 where each state adds one, 0 where more states add none."
)


def capacity_table(rows: Sequence[SizeRow], names: Sequence[str], labels: Labels) -> Table[SizeRow]:
    """Sizes by width, and their slope; the CSV file has a row per seed."""
    widths = sorted({width for row in rows for width in row.by_width})

    def at(width: int) -> Column[SizeRow]:
        return Column(f"m = {width}", lambda row: None, cell=lambda row: _cell(row, width), views=SHOWN)

    columns: list[Column[SizeRow]] = [
        *condition_columns(names, labels),
        Column("horizon", lambda row: row.horizon, varies=True),
        *map(at, widths),
        Column("slope", lambda row: row.slope),
    ]
    return Table("capacity", "Effective state size", rows, columns, group=_group, stored=_frame(rows, names))


def _group(row: SizeRow) -> str:
    return MAPS[row.map].format(f"{row.tolerance:g}")


def _cell(row: SizeRow, width: int) -> Cell:
    return spread_cell(row.by_width.get(width, Spread.of([])))


def _frame(rows: Sequence[SizeRow], names: Sequence[str]) -> pd.DataFrame:
    parts = [
        row.sizes.assign(
            **{name: row.condition[name] for name in names},
            map=row.map,
            tolerance=row.tolerance,
            horizon=row.horizon,
            slope=row.slope.estimate,
            slope_low=row.slope.low,
            slope_high=row.slope.high,
        )
        for row in rows
    ]
    columns = [*names, "map", "tolerance", "width", "horizon", "seed", "size", "slope", "slope_low", "slope_high"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
