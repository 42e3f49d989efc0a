"""Tables of a report: one list of columns, which page, terminal and CSV file show alike.

A new number is one ``Column``: its name, its unit, how it is computed from a row, and how it is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pandas as pd

from memsweep.report.analysis.losses import Spread
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import figure, number, show, slope_text
from memsweep.stability.verdict.rule import SLOPE_LIMIT
from memsweep.stability.verdict.slopes import Slope

Row = TypeVar("Row")

PAGE, TERMINAL, CSV = "page", "terminal", "csv"
ALL = frozenset({PAGE, TERMINAL, CSV})
SHOWN = frozenset({PAGE, TERMINAL})
EXPORTED = frozenset({CSV})
NOTHING = "–"
_GLYPH = (-1.0, 0.5)  # slopes that the small interval pictures span


@dataclass(frozen=True)
class Interval:
    """Where a slope lies in its small picture, in percent of the picture's width; estimate None: not known."""

    estimate: float | None
    low: float
    high: float
    boundary: float


@dataclass(frozen=True)
class Cell:
    """One value as readers see it.

    Attributes:
        text: the value.
        tone: decides its colour: a verdict, an agreement, ``bad``; empty for plain text.
        marked: whether the page draws the verdict's sign beside the text.
        hint: an explanation, on pointing.
        bound: why the errors behind a verdict are lower bounds, shown as a dagger; empty where they are exact.
        notes: (text, tone) of small lines below, on the page.
        items: a list in place of the text, on the page.
        interval: a small picture below the text, on the page.
        link: the anchor of the page that the text leads to.
        detail: heading and text that the page unfolds.
        terminal: what a terminal writes, the longest form first; empty: the text.
    """

    text: str
    tone: str = ""
    marked: bool = False
    hint: str = ""
    bound: str = ""
    notes: tuple[tuple[str, str], ...] = ()
    items: tuple[str, ...] = ()
    interval: Interval | None = None
    link: str = ""
    detail: tuple[str, str] | None = None
    terminal: tuple[str, ...] = ()

    def form(self, level: int) -> str:
        """What a terminal writes: the higher the level, the shorter."""
        return self.terminal[min(level, len(self.terminal) - 1)] if self.terminal else self.text


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
        once: whether the page shows it in the first of several rows that agree in it and in such columns before it.
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
    once: bool = False
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


@dataclass(frozen=True)
class Line:
    """One row as a view shows it; ``first``: the first of several that agree in the leftmost column."""

    cells: tuple[Cell, ...]
    first: bool
    anchor: str


@dataclass(frozen=True)
class View:
    """A table as one view shows it.

    Attributes:
        columns: those that it shows.
        groups: (heading, lines); one group without a heading where the table has none.
        throughout: heading -> text of the columns left out because all rows agree.
    """

    columns: tuple[Column[Any], ...]
    groups: tuple[tuple[str, tuple[Line, ...]], ...]
    throughout: Mapping[str, str]


@dataclass(frozen=True)
class Table(Generic[Row]):
    """Rows and their columns.

    Attributes:
        name: stem of the CSV file.
        title: says what it holds.
        group: heading of the group that a row belongs to; rows of a group follow each other.
        anchor: the place on the page that links to a row lead to.
    """

    name: str
    title: str
    rows: Sequence[Row]
    columns: Sequence[Column[Row]]
    group: Callable[[Row], str] | None = None
    anchor: Callable[[Row], str] | None = None

    def view(self, where: str) -> View:
        """The table as the page or a terminal shows it."""
        columns = [column for column in self.columns if where in column.views]
        grid = {column.name: [column.show(row) for row in self.rows] for column in columns}
        texts = {name: [cell.text for cell in cells] for name, cells in grid.items()}
        kept = [c for c in columns if not (c.optional and {*texts[c.name]} <= {"", NOTHING})]
        alike = [c for c in kept if where == TERMINAL and c.varies and len({*texts[c.name]}) == 1 < len(self.rows)]
        kept = [column for column in kept if column not in alike]
        cells = list(zip(*(grid[column.name] for column in kept), strict=True))
        groups: dict[str, list[Line]] = {}
        above: tuple[Cell, ...] = ()
        for row, line in zip(self.rows, cells, strict=True):
            lines = groups.setdefault(self.group(row) if self.group else "", [])
            same = _same(kept, above, line) if lines and where == PAGE else 0
            blank = tuple(Cell("") if i < same and kept[i].once else one for i, one in enumerate(line))
            lines.append(
                Line(
                    blank,
                    bool(lines) and not same and any(c.once for c in kept),
                    self.anchor(row) if self.anchor else "",
                )
            )
            above = line
        throughout = {column.name: texts[column.name][0] for column in alike}
        return View(tuple(kept), tuple((name, tuple(lines)) for name, lines in groups.items()), throughout)

    def frame(self) -> pd.DataFrame:
        """The table as the CSV file holds it."""
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
    named: dict[str, Any] = {"views": SHOWN, "once": True, "style": "name"}
    yield Column("memory", lambda row: labels.memory(condition(row)), varies=True, **named)
    yield Column("under", lambda row: labels.machine(condition(row)), **named)


def slope_cell(slope: Slope) -> Cell:
    """A slope with a picture of its 95 % interval, on an axis from -1 to 0.5; farther values are at the edge."""
    first, last = _GLYPH

    def place(value: float) -> float:
        return round(100 * (min(max(value, first), last) - first) / (last - first), 1)

    text = slope_text(slope)
    if not slope.available or math.isnan(slope.high):
        return Cell(text)
    estimate = None if math.isnan(slope.estimate) else place(slope.estimate)
    picture = Interval(estimate, place(slope.low), place(slope.high), place(SLOPE_LIMIT))
    return Cell(text, interval=picture, terminal=(text, number(slope.estimate)))


def spread_text(spread: Spread, digits: int = 3) -> str:
    """``0.12 [0.11, 0.15]``: median, smallest and largest over seeds."""
    if spread.low == spread.high or math.isnan(spread.middle):
        return figure(spread.middle, digits)
    return f"{figure(spread.middle, digits)} [{figure(spread.low, digits)}, {figure(spread.high, digits)}]"


def _cell(value: Any) -> Cell:
    if isinstance(value, Spread):
        return Cell(text := spread_text(value), terminal=(text, figure(value.middle)))
    if isinstance(value, Slope):
        return Cell(text := slope_text(value), terminal=(text, number(value.estimate)))
    return Cell(figure(value) if isinstance(value, float) else show(value))


def _same(columns: Sequence[Column[Any]], above: Sequence[Cell], cells: Sequence[Cell]) -> int:
    """In how many columns from the left a line agrees with the one above, as far as they are shown once."""
    same = 0
    for i, column in enumerate(columns):
        if column.once:
            if above[i].text != cells[i].text:
                break
            same = i + 1
    return same
