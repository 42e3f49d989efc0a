"""Effective state sizes, errors over inputs, and other numbers against width and horizon, as tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from memsweep.report.analysis.capacity.sizes import SizeRow
from memsweep.report.analysis.capacity.worst_inputs import WorstInputsRow
from memsweep.report.analysis.growth import MOVED, GrowthRow
from memsweep.report.analysis.losses import Spread
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import figure
from memsweep.report.rows.table import EXPORTED, SHOWN, Cell, Column, Table, condition_columns, spread_cell

MAPS = {
    "block": "at the middle of the horizon, above {} of the largest",
    "hankel": "over all time, linear layers in closed form, above {} of the largest",
    "truncation": "linear layers pruned by balanced truncation, error at most {} of the gain",
}
"""What is counted, by the map and the tolerance."""
SIZES_MEAN = (
    "Effective state size: how many singular values of the map from past inputs to later outputs exceed a share of the "
    "largest. So many numbers of the past do those outputs show, at most one for each state. Medians over seeds "
    "[least, most]; of models that are not linear, of derivatives at test sequences. Of pruned layers: the states that "
    "must be kept, by the largest error over the frequencies that were tried. Slope: of log size against log "
    "width, 95 % over seeds: 1 where each state adds one, 0 where more states add none."
)

WORST_INPUTS_MEAN = (
    "The largest error of the last output that a search finds with weights moved by at "
    "most the radius, over all inputs of at most a bounded size, as a share of the largest output of the target over "
    "these inputs: 1 is as far off as an output of zero. No more than a lower bound. Medians over seeds "
    "[least, most]."
)


GROWTH = {
    "output_change": "change of the outputs since the start (root mean square)",
    "time_scale_low": "shortest time scale of a mode, steps",
    "time_scale": "median time scale of the modes, steps",
    "time_scale_high": "longest time scale of a mode, steps",
    "sharpness": "largest curvature of the loss",
    "ceiling": "learning rate that the curvature allows",
}
"""What is measured in training, by its name in the results."""
GROWTH_MEAN = (
    "Medians over the seeds that have a value at every size [least, most]. Slope: of the log number against the log "
    "size, least squares over all sizes for each seed, 95 % over seeds: 0 where the number does not depend on the "
    "size, 1 where it is proportional to it. A change of the outputs that grows with the width at one learning rate "
    "says that this rate does not transfer to wider models."
)


def growth_table(rows: Sequence[GrowthRow], names: Sequence[str], labels: Labels) -> Table[GrowthRow]:
    """Numbers at the least and the greatest size, and their slope."""

    def group(row: GrowthRow) -> str:
        return f"{growth_name(row)}, by the {row.axis}"

    columns: list[Column[GrowthRow]] = [
        *condition_columns(names, labels),
        Column("quantity", lambda row: row.quantity, views=EXPORTED),
        Column("step", lambda row: row.step, views=EXPORTED),
        Column("axis", lambda row: row.axis, views=EXPORTED),
        Column("of", lambda row: (row.sizes[0], row.sizes[-1]), _from_to, views=SHOWN),
        Column("from", lambda row: row.sizes[0], views=EXPORTED),
        Column("to", lambda row: row.sizes[-1], views=EXPORTED),
        Column("other size", lambda row: row.other, key="other", varies=True),
        Column("seeds", lambda row: len(row.values), varies=True),
        Column("at the least", lambda row: row.at(row.sizes[0]), key="least", ends=True),
        Column("at the greatest", lambda row: row.at(row.sizes[-1]), key="greatest", ends=True),
        Column("slope", lambda row: row.slope, ends=True),
    ]
    return Table("growth", "Growth with width and horizon", rows, columns, group)


def growth_name(row: GrowthRow) -> str:
    """What a row is about, and after how many steps of training."""
    if moved := MOVED.fullmatch(row.quantity):
        name, bits, radius = moved.groups()
        how = f"weights rounded to {bits} bits" if bits else f"worst push of radius {radius} that was found"
        return f"{name.replace('_', ' ')}, {how}"
    steps = "" if row.step is None else f", after {row.step} step{'s' if row.step > 1 else ''}"
    return f"{GROWTH.get(row.quantity, row.quantity.replace('_', ' '))}{steps}"


def _from_to(ends: tuple[float, float]) -> str:
    return f"{ends[0]:g} to {ends[1]:g}"


def capacity_table(rows: Sequence[SizeRow], names: Sequence[str], labels: Labels) -> Table[SizeRow]:
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


def worst_inputs_table(rows: Sequence[WorstInputsRow], names: Sequence[str], labels: Labels) -> Table[WorstInputsRow]:
    """The errors by radius; the CSV file has a row per seed and radius."""
    radii = sorted({radius for row in rows for radius in row.by_radius})

    def at(radius: float) -> Column[WorstInputsRow]:
        def cell(row: WorstInputsRow) -> Cell:
            return spread_cell(row.by_radius.get(radius, Spread.of([])), figure)

        return Column(f"moved by {radius:g}" if radius else "as trained", lambda row: None, cell=cell, views=SHOWN)

    columns: list[Column[WorstInputsRow]] = [
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
