"""What stands below the verdicts on a terminal: the published table and the losses."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from memsweep.report.analysis.losses import BELOW, LOSS_COLUMNS
from memsweep.report.analysis.published import PUBLISHED_COLUMNS, Agreement, counted
from memsweep.report.naming.conditions import plain_value
from memsweep.report.naming.labels import Labels, show
from memsweep.report.rows.verdicts import percent
from memsweep.report.style import clean, figure
from memsweep.report.terminal.grid import KEY, STYLES, Grid, by_ball, cell_writer, labels_of, moving

_MARKS: dict[str, tuple[str, str]] = {
    Agreement.AGREES: ("✓", "bold green"),
    Agreement.DISAGREES: ("✗", "bold red"),
    Agreement.UNDECIDED: ("?", "bold yellow"),
}
_MARKS_KEY = "✓ agrees  ✗ disagrees  ? undecided"
_MOST_LOSSES = 60
_VARIED = ("task", "width", "diverged")
"""Columns that are left out where all rows agree."""
_BASELINE = (
    f"Medians over seeds. Below: seeds whose loss is more than {percent(1 - BELOW)} below the memoryless baseline, the "
    "best that a model can do which forgets each input."
)


def published_grids(frame: pd.DataFrame, labels: Labels, width: int) -> list[Table | str]:
    """The published table beside the verdicts, one grid per ball, from ``published.csv`` and the study's labels."""
    _, conditions = labels_of(frame[frame["ball"].notna()], PUBLISHED_COLUMNS)
    places = {int(place): index for index, place in enumerate(frame.index[frame["ball"].notna()])}
    kernels = [str(kernel) for kernel in frame["claimed_kernel"].unique()]
    claims = frame.drop_duplicates(["published", "claimed_kernel"])
    names = {*map(labels.machine, conditions), *map(str, frame["published"])}
    cell = cell_writer(width, names, len(kernels), 2)
    parts: list[Table | str] = []
    for ball, rows in by_ball(frame):
        groups = []
        for name in frame["published"].unique():
            claimed = claims[claims["published"] == name].set_index("claimed_kernel")["claimed"]
            heading = tuple(_claimed(str(claimed.get(kernel, ""))) for kernel in kernels)
            lines: dict[str, dict[str, list[Text]]] = {}
            for place, row in rows:
                if row["published"] == name:
                    mark, style = _MARKS.get(str(row["agreement"]), ("", ""))
                    text = Text(f"{mark} ", style=style).append_text(cell(row))
                    machine = labels.machine(conditions[places[place]])
                    lines.setdefault(machine, {}).setdefault(str(row["claimed_kernel"]), []).append(text)
            listed = tuple((m, tuple(_stacked(found.get(kernel)) for kernel in kernels)) for m, found in lines.items())
            groups.append((str(name), heading, listed or (("not measured", ()),)))
        heading_line = f"Published table. {moving(ball)} {_counts(frame, ball)}"
        parts += ["", heading_line, Grid("as published", tuple(kernels), tuple(groups)).table()]
    return [*parts, "", _MARKS_KEY, KEY] if parts else []


def _claimed(verdict: str) -> Text:
    return Text(f"claimed {verdict}", style=STYLES.get(verdict, "")) if verdict else Text("–")


def _stacked(texts: list[Text] | None) -> Text:
    return Text("\n").join(texts) if texts else Text("–")


def _counts(frame: pd.DataFrame, ball: str) -> str:
    kinds = frame[(frame["ball"] == ball) | frame["ball"].isna()]["agreement"]
    return counted([Agreement(kind) for kind in kinds])


_WHOLE = ("below", "diverged")
"""Columns that stay whole where a table is too wide: a count that is cut off says nothing."""


def loss_lines(frame: pd.DataFrame) -> list[Table | str]:
    """The final losses, from ``losses.csv``; the first 60 rows."""
    labels, conditions = labels_of(frame, LOSS_COLUMNS)
    baseline = bool((frame["memoryless_loss"].notna() & frame["kernel"].isna()).any())
    columns = _loss_columns(frame, labels, conditions)
    if baseline:
        columns = {
            name: cells for name, cells in columns.items() if name not in _VARIED or len(set(map(str, cells))) > 1
        }
    else:
        columns = {name: cells for name, cells in columns.items() if name not in ("baseline", "below")}
    if not frame["metric"].notna().any():
        del columns["metric"]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name, texts in columns.items():
        whole = max(len(name), *map(len, texts)) if name in _WHOLE else None
        # Text: no markup, whatever brackets
        table.add_column(Text(name), no_wrap=True, overflow="ellipsis", max_width=38, min_width=whole)
    for cells in list(zip(*columns.values(), strict=True))[:_MOST_LOSSES]:
        table.add_row(*cells)
    left_out = len(frame) - _MOST_LOSSES
    notes = [f"{left_out} more are in losses.csv of the report."] if left_out > 0 else []
    return ["", table, *notes, *(["", _BASELINE] if baseline else [])]


def _loss_columns(
    frame: pd.DataFrame, labels: Labels, conditions: Sequence[Mapping[str, Any]]
) -> dict[str, list[Text]]:
    """The texts of all rows, by column."""
    rows = frame.to_dict("records")
    metrics = {str(name).replace("_", " ") for name in frame["metric"].dropna() if name}
    metric = metrics.pop() if len(metrics) == 1 else ""  # the one that all have stands above its column
    return {
        "task": [Text(clean(labels.memory(condition))) for condition in conditions],
        "under": [Text(clean(labels.machine(condition))) for condition in conditions],
        "width": [Text(show(plain_value(row["width"]))) for row in rows],
        "loss [smallest, largest]": [Text(_with_range(row, "loss", "loss_low", "loss_high", digits=4)) for row in rows],
        "baseline": [Text(_figure(row["memoryless_loss"])) for row in rows],
        "below": [_below(row) for row in rows],
        clean(metric) or "metric": [Text(clean(_metric(row, named=not metric))) for row in rows],
        "diverged": [Text(f"{row['diverged']:.0f} of {row['seeds']:.0f}" if row["diverged"] else "") for row in rows],
    }


def _metric(row: Mapping[Hashable, Any], named: bool) -> str:
    name = plain_value(row["metric"])
    if not name:
        return ""
    value = _with_range(row, "metric_value", "metric_low", "metric_high", digits=3)
    return f"{str(name).replace('_', ' ')} {value}" if named else value


def _with_range(row: Mapping[Hashable, Any], *names: str, digits: int) -> str:
    middle, low, high = (figure(float(row[name]), digits=digits) for name in names)
    return middle if low == high else f"{middle} [{low}, {high}]"


def _below(row: Mapping[Hashable, Any]) -> Text:
    if plain_value(row["below_memoryless"]) is None:
        return Text("")
    below, seeds = int(row["below_memoryless"]), int(row["seeds"])
    return Text(f"{below} of {seeds}", style="bold green" if below == seeds else "")


def _figure(value: Any) -> str:
    return figure(float(value), digits=4)
