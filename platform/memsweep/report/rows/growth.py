"""Numbers against width and horizon, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from memsweep.report.analysis.growth import MOVED, GrowthRow
from memsweep.report.naming.labels import Labels
from memsweep.report.values.table import EXPORTED, SHOWN, Column, Table, condition_columns

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
