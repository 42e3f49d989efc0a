"""Effective state sizes by width, and their slope, as a table."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import pandas as pd

from memsweep.measures.capacity.sizes import TOLERANCES, SizeRow, size_rows
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import LossRow, Spread
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import percent
from memsweep.report.values.section import Glance, Section, slope_metrics
from memsweep.report.values.table import SHOWN, Cell, Column, Table, condition_columns, spread_cell

MAPS = {
    "block": "at the middle of the horizon, above {} of the largest",
    "hankel": "over all time, linear layers in closed form, above {} of the largest",
    "truncation": "linear layers pruned by balanced truncation, error at most {} of the gain",
}
"""What is counted, by the map and the tolerance."""
WORDS = (
    "Effective state size: how many singular values of the map from past inputs to later outputs exceed a share of the "
    "largest. So many numbers of the past do those outputs show, at most one for each state. Medians over seeds "
    "[least, most]; of models that are not linear, of derivatives at test sequences. Of pruned layers: the states that "
    "must be kept, by the largest error over the frequencies that were tried. Slope: of log size against log "
    "width, 95 % over seeds: 1 where each state adds one, 0 where more states add none."
)
_KEPT = (
    "Numbers kept: singular values of the map from past inputs to later outputs above "
    f"{percent(max(TOLERANCES))} of the largest."
)


def section(contents: Contents) -> Section:
    """The sizes as a table, those of each trial, and how many numbers each condition keeps."""
    rows = size_rows(contents.measured, contents.grouping)
    table = _table(rows, contents.grouping.columns, contents.labels)
    return Section(table.title, WORDS, table, metrics=_metrics(rows), glance=[_kept(rows)])


def _table(rows: Sequence[SizeRow], names: Sequence[str], labels: Labels) -> Table[SizeRow]:
    """Sizes by width, and their slope; the CSV file has a row per seed."""
    widths = sorted({width for row in rows for width in row.by_width})

    def at(width: int) -> Column[SizeRow]:
        return Column(f"m = {width}", lambda row: None, cell=lambda row: _cell(row, width), views=SHOWN)

    if any(len(row.by_width) > 1 for row in rows):
        sizes = [*map(at, widths), Column[SizeRow]("slope", lambda row: row.slope)]
    else:  # a width for each model, as where they follow from a budget of parameters
        sizes = [
            Column("width", lambda row: max(row.by_width), views=SHOWN, varies=True),
            Column("size", lambda row: None, cell=lambda row: _cell(row, max(row.by_width)), views=SHOWN),
        ]
    columns: list[Column[SizeRow]] = [
        *condition_columns(names, labels),
        Column("horizon", lambda row: row.horizon, varies=True),
        *sizes,
    ]
    return Table("capacity", "Effective state size", rows, columns, group=_group, stored=_frame(rows, names))


def _group(row: SizeRow) -> str:
    kind, _, moved = row.map.partition("_")
    words = MAPS[kind].format(f"{row.tolerance:g}")
    if moved.endswith("_bits"):
        return f"{words}; all weights rounded to {moved.removesuffix('_bits')} bits"
    if moved.startswith("robust_"):
        return f"{words}; lowest found with weights moved by at most {moved.removeprefix('robust_')}"
    return f"{words}; every weight moved by {moved.removeprefix('radius_')}, up or down" if moved else words


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


def _metrics(rows: Sequence[SizeRow]) -> dict[str, dict[str, float]]:
    """``capacity_block_0.01/size``, by map and tolerance: the median over the seeds; and its slope with the width."""
    found = defaultdict[str, dict[str, float]](dict)
    for row in rows:
        about = f"capacity_{row.map}_{row.tolerance:g}"
        for identity, sizes in row.sizes.groupby("identity", observed=True):
            numbers = {f"{about}/size": Spread.of(sizes["size"]).middle} | slope_metrics(row.slope, about)
            found[str(identity)].update({name: value for name, value in numbers.items() if math.isfinite(value)})
    return found


def _kept(rows: Sequence[SizeRow]) -> Glance:
    """Numbers of the past that count above the larger of ``TOLERANCES``, at the longest horizon and largest width."""
    sizes = {
        tuple(row.condition.values()): row
        for row in sorted(rows, key=lambda row: row.horizon)
        if row.map == "block" and row.tolerance == max(TOLERANCES)
    }

    def kept(loss: LossRow) -> Spread:
        row = sizes.get(tuple(loss.condition.values()))
        return row.by_width[max(row.by_width)] if row is not None and row.by_width else Spread.of([])

    return Glance("numbers kept", "numbers_kept", _KEPT, kept)
