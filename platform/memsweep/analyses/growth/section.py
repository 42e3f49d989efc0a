"""Numbers against width and horizon, as a table, a sentence and metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from memsweep.analyses.growth.slopes import MOVED, GrowthRow, growing, growth_rows
from memsweep.report.analysis.contents import Contents
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import joined, show, slope_text
from memsweep.report.values.section import Place, Rank, Section, slope_metrics
from memsweep.report.values.table import CSV, EXPORTED, SHOWN, TERMINAL, Column, Table, condition_columns

WORDS = (
    "Medians over the seeds that have a value at every size [least, most]. Slope: of the log number against the log "
    "size, least squares over all sizes for each seed, 95 % over seeds: 0 where the number does not depend on the "
    "size, 1 where it is proportional to it. A change of the outputs that grows with the width at one learning rate "
    "says that this rate does not transfer to wider models."
)


_MOST_LINES = 6  # conditions that one sentence compares


def section(contents: Contents) -> Section:
    """The slopes as a table, those of each trial, and the first of them in a sentence.

    Numbers that are measured in training come before the ranking of the trained models: they are what was asked.
    """
    rows = growth_rows(contents.measured, contents.grouping)
    table = _table(rows, contents.grouping.columns, contents.labels)
    return Section(
        table.title,
        WORDS,
        table,
        metrics=_metrics(rows),
        answer=[*filter(None, [_sentence(rows, contents.labels)])],
        rank=Rank.BEFORE if rows and rows[0].step is not None else Rank.AFTER,
        heading=table.title,
        places={TERMINAL: Place.COMPARED, CSV: Place.COMPARED},
    )


def _table(rows: Sequence[GrowthRow], names: Sequence[str], labels: Labels) -> Table[GrowthRow]:
    """Numbers at the least and the greatest size, and their slope."""
    known = growing()

    def group(row: GrowthRow) -> str:
        return f"{_name(row, known)}, by the {row.axis}"

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


def _name(row: GrowthRow, known: Mapping[str, str]) -> str:
    """The quantity of a row in words, and after how many steps of training."""
    if moved := MOVED.fullmatch(row.quantity):
        name, bits, radius = moved.groups()
        how = f"weights rounded to {bits} bits" if bits else f"worst push of radius {radius} that was found"
        return f"{name.replace('_', ' ')}, {how}"
    steps = "" if row.step is None else f", after {row.step} step{'s' if row.step > 1 else ''}"
    return f"{known.get(row.quantity, row.quantity.replace('_', ' '))}{steps}"


def _from_to(ends: tuple[float, float]) -> str:
    return f"{ends[0]:g} to {ends[1]:g}"


def _sentence(rows: Sequence[GrowthRow], labels: Labels) -> str:
    """``From width 4 to 64 at T = 100 the trained capacity goes as m^(+0.31 [+0.22, +0.40]) under `exp`.``

    Of the first number that the table has, at the last step at which it was measured, and at the greatest of the other
    sizes. Empty where no slope is known, or where there are more conditions than a sentence can compare.
    """
    alike = [row for row in rows if (row.quantity, row.axis) == (rows[0].quantity, rows[0].axis)]
    last = [row for row in alike if row.step == max(one.step or 0 for one in alike) or row.step is None]
    of_condition = {frozenset(row.condition.items()): row for row in sorted(last, key=lambda row: row.other or 0)}
    known = [row for row in of_condition.values() if row.slope.available]
    if not known or len(of_condition) > _MOST_LINES:
        return ""
    letter = {"width": "m", "horizon": "T"}[rows[0].axis]
    memories = {labels.memory(row.condition) for row in known}
    places = {_place(row) for row in known}
    parts = [
        f"{letter}^({slope_text(row.slope)})"
        + (f" on {labels.memory(row.condition)}" if len(memories) > 1 else "")
        + f" under `{labels.machine(row.condition)}`"
        + (f" (from {_place(row)})" if len(places) > 1 else "")
        for row in known
    ]
    begins = "The" if len(places) > 1 else f"From {_place(known[0])} the"
    return f"{begins} {_name(known[0], growing())} goes as {joined(parts)}."


def _place(row: GrowthRow) -> str:
    """``width 4 to 64 at T = 100``: the sizes of a slope."""
    other = {"width": "T =", "horizon": "width"}[row.axis]
    at = "" if row.other is None else f" at {other} {show(row.other)}"
    return f"{row.axis} {show(row.sizes[0])} to {show(row.sizes[-1])}{at}"


def _metrics(rows: Sequence[GrowthRow]) -> dict[str, dict[str, float]]:
    """``growth_sharpness_horizon/slope``, at the end of training or after the last step that was measured."""
    found = defaultdict[str, dict[str, float]](dict)
    after_the_last_step = {(row.quantity, row.axis, row.identities): row for row in rows}
    for row in after_the_last_step.values():
        for identity in row.identities:
            found[identity].update(slope_metrics(row.slope, f"growth_{row.quantity}_{row.axis}"))
    return found
