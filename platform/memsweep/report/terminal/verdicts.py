"""The verdict table for a terminal."""

from __future__ import annotations

import io
import shutil
import sys
import textwrap
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from memsweep.report import ReportPaths
from memsweep.report.analysis.summary import NOT_ASKED, NOTHING
from memsweep.report.export.csv import VERDICT_COLUMNS
from memsweep.report.naming.conditions import CONDITION, plain_value
from memsweep.report.naming.labels import field_name, show
from memsweep.report.rows.overview import MANY
from memsweep.report.rows.verdicts import percent
from memsweep.report.style import clean, slope_text
from memsweep.report.terminal.grid import BOUND_KEY, STYLES, SYMBOLS, bound_mark, frame_slope, labels_of, verdict_grids
from memsweep.report.terminal.more import loss_lines, published_grids
from memsweep.report.terminal.search import claim_parts, search_parts

_WIDEST, _PLAIN, _NAME = 120, 110, 24
_MOST_REASONS, _LONGEST_REASON = 6, 330


def verdict_table(source: ReportPaths | pd.DataFrame, *, width: int | None = None, colour: bool | None = None) -> str:
    """See ``memsweep.report.table_text``."""
    frame = pd.read_csv(source.verdicts) if isinstance(source, ReportPaths) else source
    colour = sys.stdout.isatty() if colour is None else colour
    if width is None:
        width = min(_WIDEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _PLAIN
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, force_terminal=colour, no_color=not colour, highlight=False)
    losses = isinstance(source, ReportPaths) and source.losses is not None
    if isinstance(source, ReportPaths) and source.winners is not None:
        for part in search_parts(source.said, pd.read_csv(source.winners)):
            console.print(part)
    if isinstance(source, ReportPaths) and source.compared is not None:
        for part in claim_parts(pd.read_csv(source.compared)):
            console.print(part)
    if frame.empty:
        console.print(NOT_ASKED.partition(";")[0] + "." if losses else NOTHING)
    else:
        _verdicts(console, frame)
    if isinstance(source, ReportPaths):
        _more(console, source)
    return buffer.getvalue()


def _verdicts(console: Console, frame: pd.DataFrame) -> None:
    rows = frame.to_dict("records")
    varied = _varied(frame)
    table = _table(rows, varied)
    if frame["ball"].value_counts().max() > MANY or not _fits(console, table):
        for part in verdict_grids(frame, console.width):
            console.print(part)
    else:
        console.print(table)
    bounds = ["", BOUND_KEY] if any(map(bound_mark, rows)) else []
    for line in (*bounds, *_fixed(frame, varied), *_undecided(rows, varied)):
        console.print(Text(line), soft_wrap=False)


def _fits(console: Console, table: Table) -> bool:
    """Whether a table can be shown without cutting a word."""
    unlimited = console.options.update(max_width=10_000)
    return Measurement.get(console, unlimited, table).maximum <= console.width


def _more(console: Console, source: ReportPaths) -> None:
    if source.published is not None:
        labels, _ = labels_of(pd.read_csv(source.verdicts))
        for part in published_grids(pd.read_csv(source.published), labels, console.width):
            console.print(part)
    if source.losses is not None:
        for part in loss_lines(pd.read_csv(source.losses)):
            console.print(part)
    for line in source.rules:
        console.print(Text(f"\n{clean(line)}"), soft_wrap=False)


def _varied(frame: pd.DataFrame) -> list[str]:
    """The columns that tell rows apart: kernel and parameterization always, what follows from others never."""
    following = labels_of(frame)[0].following
    extra = [name for name in frame.columns if name not in (*VERDICT_COLUMNS, *following)]
    names = [name for name in (*CONDITION, *extra) if frame[name].nunique(dropna=False) > 1]
    always = [name for name in ("kernel", "parameterization") if frame[name].notna().any()]
    kept = [name for name in (*CONDITION, *extra) if name in names or name in always]
    # A rate that merely follows from the kernel is said below the table, not in a column of its own.
    return [name for name in kept if name not in ("rate", "exponent") or not _follows(frame, name)]


def _follows(frame: pd.DataFrame, name: str) -> bool:
    return bool((frame.groupby("kernel", dropna=False)[name].nunique(dropna=False) <= 1).all())


def _table(rows: list[dict[Hashable, Any]], varied: list[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in varied:
        table.add_column(field_name(name), no_wrap=True, overflow="ellipsis", max_width=_NAME)
    for name, least in (("ball", 9), ("verdict", 15), ("slope in horizon", 21), ("slope in width", 21), ("at", 4)):
        table.add_column(name, no_wrap=True, min_width=least, justify="right" if name == "at" else "left")
    previous = rows[0]["ball"]
    for row in rows:
        if row["ball"] != previous:
            table.add_section()
            table.add_row()
            previous = row["ball"]
        verdict = str(row["verdict"])
        mark = Text(f"{SYMBOLS.get(verdict, '')} {verdict}{bound_mark(row)}", style=STYLES.get(verdict, ""))
        slopes = (slope_text(frame_slope(row, name)) for name in ("slope_horizon", "slope_width"))
        cells = (Text(_cell(row[name])) for name in varied)
        table.add_row(*cells, str(row["ball"]), mark, *slopes, percent(float(row["threshold"])))
    return table


def _cell(value: Any) -> str:
    return clean(show(plain_value(value)))  # a name must not reach the terminal as an escape sequence


def _fixed(frame: pd.DataFrame, varied: list[str]) -> list[str]:
    same = [
        f"{name} {_cell(frame[name].iloc[0])}"
        for name in CONDITION
        if name not in varied and frame[name].nunique(dropna=False) == 1 and frame[name].notna().all()
    ]
    return ["", f"Throughout: {', '.join(same)}."] if same else []


def _undecided(rows: Sequence[Mapping[Hashable, Any]], varied: Sequence[str]) -> list[str]:
    undecided = [row for row in rows if row["verdict"] == "inconclusive"]
    lines = []
    for row in undecided[:_MOST_REASONS]:
        name = ", ".join(_cell(row[column]) for column in varied if plain_value(row[column]) is not None)
        reasons = _cell(row["reasons"])
        line = f"Inconclusive ({name}; ball {row['ball']}): {reasons}"
        lines.append(textwrap.shorten(line, _LONGEST_REASON, placeholder=" …"))
    if len(undecided) > _MOST_REASONS:
        lines.append(f"{len(undecided) - _MOST_REASONS} more are inconclusive: their reasons are in the report.")
    return ["", *lines] if lines else []
