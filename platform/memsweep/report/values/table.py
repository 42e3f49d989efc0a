"""Tables of a report: one list of columns, which page, terminal and CSV file show alike.

A new number is one ``Column``: its name, its unit, how it is computed from a row, and how it is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import pandas as pd

from memsweep.report.analysis.losses import Spread
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import figure, interval, number, show, slope_text
from memsweep.stability.verdict.trend import Slope

Row = TypeVar("Row")

PAGE, TERMINAL, CSV = "page", "terminal", "csv"
ALL = frozenset({PAGE, TERMINAL, CSV})
SHOWN = frozenset({PAGE, TERMINAL})
EXPORTED = frozenset({CSV})
NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """One value as readers see it.

    Attributes:
        text: the value.
        tone: decides its colour: a verdict, an agreement, ``bad``; empty for plain text.
        detail: heading and text that the page unfolds.
        shorter: what a terminal writes where the text does not fit, the longest form first.
    """

    text: str
    tone: str = ""
    detail: tuple[str, str] | None = None
    shorter: tuple[str, ...] = ()

    def form(self, level: int) -> str:
        """What a terminal writes: the higher the level, the shorter."""
        forms = (self.text, *self.shorter)
        return forms[min(level, len(forms) - 1)]


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column.

    Attributes:
        name: its heading.
        value: computes its value from a row; the CSV file holds it as it is.
        form: writes the value for readers.
        cell: writes a row's value where text alone does not do; None: ``form`` of the value.
        key: its name in the CSV file; empty: ``name``.
        unit: behind the heading, in brackets.
        ends: whether values are a Spread or a Slope, whose ends are two more columns of the CSV file.
        views: where it is shown.
        optional: whether it is left out where no row has a value.
        varies: whether a terminal leaves it out where all rows agree, and says their value below the table.
        style: CSS class of its cells; ``name``: long, may be cut.
    """

    name: str
    value: Callable[[Row], Any]
    form: Callable[[Any], str] | None = None
    cell: Callable[[Row], Cell] | None = None
    key: str = ""
    unit: str = ""
    ends: bool = False
    views: frozenset[str] = ALL
    optional: bool = False
    varies: bool = False
    style: str = "nowrap"

    @property
    def heading(self) -> str:
        """The name with its unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the CSV file."""
        key = self.key or self.name
        return (key, f"{key}_low", f"{key}_high") if self.ends else (key,)

    def show(self, row: Row) -> Cell:
        """A row's value as readers see it."""
        if self.cell is not None:
            return self.cell(row)
        value = self.value(row)
        return _cell(value) if self.form is None else Cell(self.form(value))

    def export(self, row: Row) -> dict[str, Any]:
        """A row's value as the CSV file holds it."""
        value = self.value(row)
        if not self.ends or value is None:
            return dict.fromkeys(self.keys, value)
        middle = value.estimate if isinstance(value, Slope) else value.middle
        return dict(zip(self.keys, (middle, value.low, value.high), strict=True))


Line = tuple[Cell, ...]
"""One row as a view shows it."""


@dataclass(frozen=True)
class View:
    """A table as one view shows it.

    Attributes:
        columns: those that it shows.
        groups: heading -> lines; one group without a heading where the table has none.
        throughout: heading -> text of the columns left out because all rows agree.
    """

    columns: tuple[Column[Any], ...]
    groups: Mapping[str, Sequence[Line]]
    throughout: Mapping[str, str]


@dataclass(frozen=True)
class Table(Generic[Row]):
    """Rows and their columns.

    Attributes:
        name: stem of the CSV file.
        title: says what it holds.
        group: heading of the group that a row belongs to; rows of a group follow each other.
        stored: what the CSV file holds where it is not made from the columns.
    """

    name: str
    title: str
    rows: Sequence[Row]
    columns: Sequence[Column[Row]]
    group: Callable[[Row], str] | None = None
    stored: pd.DataFrame | None = None

    def view(self, where: str) -> View:
        """The table as the page or a terminal shows it."""
        columns = [column for column in self.columns if where in column.views]
        grid = {column.name: [column.show(row) for row in self.rows] for column in columns}
        texts = {name: [cell.text for cell in cells] for name, cells in grid.items()}
        columns = [c for c in columns if not (c.optional and {*texts[c.name]} <= {"", NOTHING})]
        alike = self._alike(columns, texts) if where == TERMINAL else []
        kept = [column for column in columns if column not in alike]
        groups = self._grouped([grid[column.name] for column in kept])
        return View(tuple(kept), groups, {column.name: texts[column.name][0] for column in alike})

    def _grouped(self, cells: Sequence[Sequence[Cell]]) -> dict[str, list[Line]]:
        groups: dict[str, list[Line]] = {}
        for row, *line in zip(self.rows, *cells, strict=True):
            groups.setdefault(self.group(row) if self.group else "", []).append(tuple(line))
        return groups

    def _alike(self, columns: Sequence[Column[Row]], texts: Mapping[str, Sequence[str]]) -> list[Column[Row]]:
        """The columns of what varies in a study that have one text in all of several rows."""
        return [c for c in columns if c.varies and len({*texts[c.name]}) == 1 < len(self.rows)]

    def varying(self) -> Table[Row]:
        """The same table without the columns of what varies in a study that have one text in all rows, be it one."""
        alike = [c for c in self.columns if c.varies and len({c.show(row).text for row in self.rows}) == 1]
        return replace(self, columns=[column for column in self.columns if column not in alike])

    def frame(self) -> pd.DataFrame:
        """The table as the CSV file holds it."""
        if self.stored is not None:
            return self.stored
        columns = [column for column in self.columns if CSV in column.views]
        rows = [{key: value for c in columns for key, value in c.export(row).items()} for row in self.rows]
        return pd.DataFrame(rows, columns=[key for column in columns for key in column.keys])


def condition_columns(
    names: Sequence[str], labels: Labels, condition: Callable[[Any], Mapping[str, Any]] = lambda row: row.condition
) -> Iterator[Column[Any]]:
    """Memory and machine by their labels, for readers; the fields that tell conditions apart, for the CSV file."""

    def exported(name: str) -> Column[Any]:
        return Column(name, lambda row: condition(row)[name], views=EXPORTED)

    yield from map(exported, names)
    yield Column("memory", lambda row: labels.memory(condition(row)), varies=True, views=SHOWN, style="name")
    yield Column("under", lambda row: labels.machine(condition(row)), views=SHOWN, style="name")


def spread_text(spread: Spread, digits: int = 3) -> str:
    """``0.12 [0.11, 0.15]``: median, smallest and largest over seeds."""
    if spread.low == spread.high or math.isnan(spread.middle):
        return figure(spread.middle, digits)
    return interval(spread.middle, spread.low, spread.high, digits)


def spread_cell(spread: Spread, form: Callable[[float], str] = "{:g}".format) -> Cell:
    """``3 [2, 4]``: median, least and most over seeds, each as ``form`` writes it; the median where they agree."""
    if math.isnan(spread.middle):
        return Cell(NOTHING)
    middle, low, high = map(form, (spread.middle, spread.low, spread.high))
    return Cell(middle if low == high else f"{middle} [{low}, {high}]", shorter=(middle,))


def _cell(value: Any) -> Cell:
    if isinstance(value, Spread):
        return Cell(spread_text(value), shorter=(figure(value.middle),))
    if isinstance(value, Slope):
        return Cell(slope_text(value), shorter=(number(value.estimate),) if value.available else ())
    return Cell(figure(value) if isinstance(value, float) else show(value))
