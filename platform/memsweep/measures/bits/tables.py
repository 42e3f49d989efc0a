"""Bits to hold, and errors in the usual number formats, as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from memsweep.measures.bits.kinds import FORMATS
from memsweep.measures.bits.needed import BitsRow, FormatsRow, whole_bits
from memsweep.report.analysis.losses import Spread
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import percent
from memsweep.report.values.table import SHOWN, Cell, Column, Table, condition_columns, spread_cell
from memsweep.stability.verdict.judgement import SLOPE_LIMIT
from memsweep.stability.verdict.radius import THRESHOLD

ROUNDED = {
    "fixed_recurrent": "recurrent weights, fixed point",
    "certified_recurrent": "recurrent weights, fixed point, every rounding (certificate)",
    "channel_recurrent": "recurrent weights, fixed point by channel",
    "stochastic_recurrent": "recurrent weights, fixed point, stochastic",
    "float_recurrent": "recurrent weights, floating point",
    "fixed_weights": "all weights, fixed point",
    "certified_weights": "all weights, fixed point, every rounding (certificate)",
    "channel_weights": "all weights, fixed point by channel",
    "stochastic_weights": "all weights, fixed point, stochastic",
    "float_weights": "all weights, floating point",
    "fixed_states": "states, fixed point",
    "channel_states": "states, fixed point by channel",
    "stochastic_states": "states, fixed point, stochastic",
    "feedback_states": "states, fixed point with error feedback",
    "float_states": "states, floating point",
    "formats_recurrent": "recurrent weights",
    "formats_weights": "all weights",
    "formats_states": "states",
}
"""What is rounded, and to which numbers."""
_OLDER = "measured on grids of 2^b + 1 values, an earlier definition: bits are those that store them"
BITS_MEAN = (
    f"Bits: the least at which rounding, there and with more bits, keeps the error at {percent(THRESHOLD)} "
    "of L₀; median over the seeds that fit [least, most]. In fixed point b bits are the 2^b − 1 integers from "
    "−(2^(b−1) − 1) to 2^(b−1) − 1, so that int8 has −127 to 127. It is measured for these weights and "
    "sequences, and no bound for others; a certificate holds for every rounding of these weights. "
    f"Slope: bits for each doubling of the horizon, 95 % over seeds. They grow where the whole interval is "
    f"above {-SLOPE_LIMIT:g}, and are constant where it is below."
)
_LOST = "✗"
FORMATS_MEAN = (
    "The error with weights or states in a number format, in per cent of L₀: medians over the seeds that fit without "
    "rounding [least, most]. It is measured for these weights and sequences, and no bound for others. In float8 each "
    f"tensor, or state, has a scale that brings its largest number to the format's largest. {_LOST}: some seed that "
    f"fits exceeds {percent(THRESHOLD)}."
)


def bits_table(rows: Sequence[BitsRow], names: Sequence[str], labels: Labels) -> Table[BitsRow]:
    """Bits by horizon, and their slope; the CSV file has a row per seed."""
    horizons = sorted({horizon for row in rows for horizon in row.bits})

    def at(horizon: int) -> Column[BitsRow]:
        return Column(f"T = {horizon}", lambda row: None, cell=lambda row: _cell(row, horizon), views=SHOWN)

    columns: list[Column[BitsRow]] = [
        *condition_columns(names, labels),
        Column("width", lambda row: row.width, varies=True),
        *map(at, horizons),
    ]
    if any(len(row.bits) > 1 for row in rows):
        columns += [
            Column("slope", lambda row: row.slope, unit="bits a doubling"),
            Column("growth", lambda row: str(row.growth)),
        ]
    return Table("bits", "Bits to hold", rows, columns, group=_group, stored=_frame(rows, names))


def formats_table(rows: Sequence[FormatsRow], names: Sequence[str], labels: Labels) -> Table[FormatsRow]:
    """Errors by format at a condition's longest horizon and greatest width; the CSV file has all, a row per seed."""
    shown = dict[tuple[Any, ...], FormatsRow]()
    for row in rows:
        key = (row.rounding, *row.condition.values())
        shown[key] = max(shown.get(key, row), row, key=lambda each: (each.horizon, each.width))

    def at(name: str) -> Column[FormatsRow]:
        return Column(name, lambda row: None, cell=lambda row: _format_cell(row.by_format[name]), unit="%", views=SHOWN)

    columns: list[Column[FormatsRow]] = [
        *condition_columns(names, labels),
        Column("width", lambda row: row.width, varies=True),
        Column("horizon", lambda row: row.horizon, varies=True),
        *map(at, FORMATS),
    ]
    about = ["rounding", "width", "horizon", "seed", "format", "share"]
    parts = [
        row.errors.assign(
            **{name: row.condition[name] for name in names}, rounding=row.rounding, width=row.width, horizon=row.horizon
        )
        for row in rows
    ]
    stored = pd.concat(parts, ignore_index=True)[[*names, *about]] if parts else pd.DataFrame(columns=[*names, *about])
    return Table("formats", "Number formats", [*shown.values()], columns, lambda row: ROUNDED[row.rounding], stored)


def _format_cell(share: Spread) -> Cell:
    cell = spread_cell(share, lambda value: percent(value).removesuffix(" %"))
    lost = f" {_LOST}" if share.high > THRESHOLD else ""
    return Cell(cell.text + lost, "bad" if lost else "", shorter=tuple(text + lost for text in cell.shorter))


def _group(row: BitsRow) -> str:
    return f"{ROUNDED[row.rounding]}; {_OLDER}" if row.older else ROUNDED[row.rounding]


def _cell(row: BitsRow, horizon: int) -> Cell:
    return spread_cell(row.bits.get(horizon, Spread.of([])), lambda bits: bits_text(bits, row))


def bits_text(value: float, row: BitsRow) -> str:
    """A number of bits, and what lies beyond the measured ones as that."""
    if value <= row.fewest:
        return f"≤{row.fewest}"
    return f">{row.most}" if math.isinf(value) else f"{value:g}"


def _frame(rows: Sequence[BitsRow], names: Sequence[str]) -> pd.DataFrame:
    parts = [
        row.radii.assign(
            **{name: row.condition[name] for name in names},
            rounding=row.rounding,
            bits=whole_bits(row.radii["radius_low"].replace(0.0, np.nan)),
            fewest=row.fewest,
            most=row.most,
            older=row.older,
            slope=row.slope.estimate,
            slope_low=row.slope.low,
            slope_high=row.slope.high,
            growth=str(row.growth),
        )
        for row in rows
    ]
    measured = ["rounding", "width", "horizon", "seed", "threshold", "bits", "fewest", "most", "older", "valid"]
    columns = [*names, *measured, "slope", "slope_low", "slope_high", "growth"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
