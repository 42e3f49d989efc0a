"""What stands below the verdicts on a terminal: the published table and the losses."""

from __future__ import annotations

from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from memsweep.report.grouping import plain_value
from memsweep.report.labels import Labels, show
from memsweep.report.losses import LOSS_COLUMNS
from memsweep.report.published import PUBLISHED_COLUMNS, Agreement, counted
from memsweep.report.style import clean, figure
from memsweep.report.terminal_grid import KEY, STYLES, Grid, by_ball, cell_writer, labels_of, moving

_MARKS: dict[str, tuple[str, str]] = {
    Agreement.AGREES: ("✓", "bold green"),
    Agreement.DISAGREES: ("✗", "bold red"),
    Agreement.UNDECIDED: ("?", "bold yellow"),
}
_MARKS_KEY = "✓ agrees  ✗ disagrees  ? undecided"
_MOST_LOSSES = 60


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


def loss_lines(frame: pd.DataFrame) -> list[Table | str]:
    """The final losses, from ``losses.csv``; the first 60 rows."""
    labels, conditions = labels_of(frame, LOSS_COLUMNS)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("task", "under", "width", "loss [smallest, largest]", "metric", "diverged"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=38)
    for row, condition in list(zip(frame.to_dict("records"), conditions, strict=True))[:_MOST_LOSSES]:
        loss, low, high = (_figure(row[key]) for key in ("loss", "loss_low", "loss_high"))
        metric = plain_value(row["metric"])
        table.add_row(
            Text(clean(labels.memory(condition))),
            Text(clean(labels.machine(condition))),
            show(plain_value(row["width"])),
            loss if low == high else f"{loss} [{low}, {high}]",
            Text(clean(f"{metric} {_figure(row['metric_value'])}")) if metric else "",
            f"{row['diverged']:.0f} of {row['seeds']:.0f}" if row["diverged"] else "",
        )
    left_out = len(frame) - _MOST_LOSSES
    return ["", table, *([f"{left_out} more are in losses.csv of the report."] if left_out > 0 else [])]


def _figure(value: Any) -> str:
    return figure(float(value), digits=4)
