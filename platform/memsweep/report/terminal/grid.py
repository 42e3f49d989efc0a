"""Many verdicts on a terminal: machines by family down, memories across, one short cell each."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from memsweep.report.analysis.bounds import MARK, PREFIX
from memsweep.report.analysis.summary import MOVES
from memsweep.report.export.csv import VERDICT_COLUMNS
from memsweep.report.naming.conditions import CONDITION, plain_value
from memsweep.report.naming.labels import Labels
from memsweep.report.style import clean, number, slope_text
from memsweep.stability.verdict.slopes import Slope

STYLES = {"stable": "bold green", "unstable": "bold red", "inconclusive": "bold yellow"}
SYMBOLS = {"stable": "●", "unstable": "▲", "inconclusive": "◇"}
KEY = "● stable  ▲ unstable  ◇ inconclusive   T, m: the deciding slope of the radius, with horizon or width"
BOUND_KEY = f"{MARK} the errors behind this verdict are lower bounds: the true radius may be smaller"
_LETTERS = {"horizon": "T", "width": "m"}
_NAME, _GAP = 44, 2

Row = Mapping[Hashable, Any]


@dataclass(frozen=True)
class Grid:
    """Rows of texts under headings; a group's first line has a name and texts of its own.

    Attributes:
        title: of the first column.
        groups: (name, heading cells, lines); a line is its name and its cells.
    """

    title: str
    columns: tuple[str, ...]
    groups: tuple[tuple[str, tuple[Text, ...], tuple[tuple[str, tuple[Text, ...]], ...]], ...]

    def table(self) -> Table:
        """For rich to print; names too long for their column end in an ellipsis."""
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0), title_justify="left")
        table.add_column(self.title, no_wrap=True, overflow="ellipsis", max_width=_NAME)
        for column in self.columns:
            table.add_column(clean(column), no_wrap=True, overflow="ellipsis")
        for name, heading, lines in self.groups:
            if name:
                table.add_row(Text(clean(name), style="bold"), *heading)
            for line, cells in lines:
                table.add_row(Text(clean(f"  {line}" if name else line)), *cells)
        return table


def verdict_grids(frame: pd.DataFrame, width: int) -> list[Table | str]:
    """One grid per ball of the table ``verdicts.csv``, and the key to its signs."""
    labels, conditions = labels_of(frame)
    parts: list[Table | str] = []
    for ball, rows in by_ball(frame):
        memories = list(dict.fromkeys(labels.memory(conditions[index]) for index, _ in rows))
        names = {text for i, _ in rows for text in (labels.member(conditions[i]), labels.family(conditions[i]))}
        cell = cell_writer(width, names, len(memories), 0)
        found = {(labels.machine(conditions[i]), labels.memory(conditions[i])): row for i, row in rows}
        groups = []
        for heading, members in labels.families(conditions[i] for i, _ in rows):
            lines = [
                (member, tuple(cell(found[machine, m]) if (machine, m) in found else Text("–") for m in memories))
                for machine, member in members
            ]
            groups.append((heading, (), tuple(lines)))
        parts += [moving(ball), Grid("under", tuple(memories), tuple(groups)).table(), ""]
    return [*parts, KEY]


def moving(ball: str) -> str:
    """The heading of one ball's table."""
    return f"When {MOVES[ball]}:" if ball in MOVES else f"Ball {clean(ball)}:"


def by_ball(frame: pd.DataFrame) -> Iterable[tuple[str, list[tuple[int, Row]]]]:
    """(ball, its rows with their positions in the table), in order of appearance."""
    rows = list(enumerate(frame.to_dict("records")))
    for ball in frame["ball"].dropna().unique():
        yield str(ball), [(index, row) for index, row in rows if row["ball"] == ball]


def labels_of(frame: pd.DataFrame, known: Sequence[str] = VERDICT_COLUMNS) -> tuple[Labels, list[dict[str, Any]]]:
    """The conditions of a table's rows, and their names.

    Args:
        frame: with the columns CONDITION.
        known: the columns that are no extra fields of the study.
    """
    extra = [name for name in frame.columns if name not in (*known, *CONDITION, "task")]
    conditions = []
    for row in frame.to_dict("records"):
        task = row.get("task", row.get("task.name"))
        named = {"task": str(task if task is not None else "task")}
        conditions.append(named | {name: plain_value(row[name]) for name in (*CONDITION, *extra)})
    return Labels(conditions), conditions


def cell_writer(width: int, names: Iterable[str], columns: int, further: int) -> Callable[[Row], Text]:
    """How to write a verdict: with the interval of its slope where the columns leave room for it.

    Args:
        width: of the terminal.
        names: of the lines.
        columns: verdicts side by side.
        further: letters that the caller adds to each.
    """
    first = min(_NAME, max(map(len, names), default=0) + 2) + _GAP
    room = (width - first) / max(1, columns) - _GAP - len(MARK) - further
    form = slope_text if room >= 25 else _estimate

    def write(row: Row) -> Text:
        verdict = str(row["verdict"])
        text = Text(SYMBOLS.get(verdict, "?") + bound_mark(row), style=STYLES.get(verdict, ""))
        if room >= 9:
            axis = str(row["deciding"])
            slope = frame_slope(row, f"slope_{axis}")
            known = not math.isnan(slope.low)
            text.append(f" {_LETTERS[axis]} {form(slope)}" if known else " no slope", style="not bold default")
        return text

    return write


def bound_mark(row: Row) -> str:
    """The sign of a verdict that rests on lower bounds of the error; empty for the others."""
    return MARK if PREFIX in str(row["reasons"]) else ""


def frame_slope(row: Row, name: str) -> Slope:
    """A slope of the table ``verdicts.csv``."""
    return Slope(*(float(row[key]) for key in (name, f"{name}_low", f"{name}_high")))


def _estimate(slope: Slope) -> str:
    return number(slope.estimate)
