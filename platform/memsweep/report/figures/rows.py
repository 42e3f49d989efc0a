"""Charts of rows, one effect below the other, of cells, one model on one task each, and of lines across axes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.colors import LinearSegmentedColormap

from memsweep.report.figures.panels import FAINT, INK, MUTED, log_axis
from memsweep.report.naming.numbers import clean
from memsweep.report.values.chart import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOR = "#0072b2"
_LETTERS = 60  # of a line of a row's name, above its marks
_MOST_LETTERS, _ROOM = 18, 1.3  # of a name beside cells; room for it, in columns of nine
_SHADES = LinearSegmentedColormap.from_list("removed", ["#eef3f8", "#0b4f8a"])  # as on the page


def draw_rows(ax: Axes, chart: Chart) -> None:
    """A line of text for each row, and below it its values, their middle and its interval."""
    if "x" in chart["log"]:
        log_axis(ax, "x")
    low, high = chart["limits"]["x"]
    ax.set_xlim(low, high)
    for value, words in chart.get("levels", ()):
        ax.axvline(
            value, color=INK if words == "" else MUTED, linewidth=0.9, linestyle="-" if words == "" else (0, (4, 2))
        )
    for place, row in enumerate(chart["rows"]):
        ax.axhline(place, color=FAINT, linewidth=0.5, zorder=0.5)
        _draw_values(ax, row, place, (low, high))
        text = clean(": ".join(filter(None, [row.get("words", ""), row["name"], row.get("text", "")])))
        shown = "\n".join(textwrap.wrap(text, _LETTERS, max_lines=2, placeholder=" …"))
        ax.annotate(shown, (0.01, place - 0.16), xycoords=ax.get_yaxis_transform(), fontsize=6.0, va="bottom")
    ax.set_ylim(len(chart["rows"]) - 0.5, -0.8)
    ax.set_yticks([])


def _draw_values(ax: Axes, row: Mapping[str, Any], place: int, limits: tuple[float, float]) -> None:
    """The interval of a row, within the ends of the axis, its values and their middle."""
    low, high = limits
    if row.get("low") is not None and row.get("high") is not None:
        ends = [
            min(max(end, low), high) if not math.isnan(end) else side
            for end, side in ((row["low"], low), (row["high"], high))
        ]
        ax.plot(ends, [place, place], color=_COLOR, linewidth=1.4)
    values = [value for value in row.get("values", ()) if math.isfinite(value)]
    ax.plot(values, [place] * len(values), marker="o", markersize=3.4, color=_COLOR, alpha=0.6, linestyle="none")
    if row.get("middle") is not None and math.isfinite(row["middle"]):
        tick, dot = {"marker": "|", "markersize": 9, "color": INK}, {"marker": "o", "markersize": 4, "color": _COLOR}
        mark: dict[str, Any] = tick if values else dot
        ax.plot([row["middle"]], [place], linestyle="none", **mark)


def draw_cells(ax: Axes, chart: Chart) -> None:
    """A shade for each model and task, with its number in it."""
    rows, columns = chart["rows"], len(chart["columns"])
    shares = [[math.nan if cell is None else min(max(cell[0], 0.0), 1.0) for cell in row["cells"]] for row in rows]
    ax.imshow(shares, cmap=_SHADES, vmin=0.0, vmax=1.0, aspect="auto")
    for place, row in enumerate(rows):
        ax.text(-0.6, place, _cut(row["name"]), ha="right", va="center", fontsize=6.0, color=MUTED)
        for column, cell in enumerate(row["cells"]):
            if cell is not None:
                ink = "white" if cell[0] > 0.5 else INK
                ax.text(column, place, cell[1], ha="center", va="center", fontsize=6.0, color=ink)
    ax.set_xticks(range(columns), [_cut(name) for name in chart["columns"]], fontsize=6.0)
    for label in ax.get_xticklabels():
        label.set(rotation=40, ha="right", rotation_mode="anchor")
    ax.set_yticks([])
    ax.set_xlim(-0.5 - _ROOM * columns / 9, columns - 0.5)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)


def draw_parallel(ax: Axes, chart: Chart) -> None:
    """A line for each suggestion across axes of [0, 1], with the ends of each beside it."""
    for shade, places, *_ in chart["across"]:
        known = [(x, y) for x, y in enumerate(places) if y is not None]
        ax.plot(*zip(*known, strict=True), color=_SHADES(0.15 + 0.85 * shade), linewidth=0.6 + shade)
    for place, (_, low, high) in enumerate(chart["axes"]):
        ax.axvline(place, color=MUTED, linewidth=0.7)
        for end, text, va in ((0.0, low, "top"), (1.0, high, "bottom")):
            ax.text(place, end, clean(text), ha="center", va=va, fontsize=6.0, color=MUTED)
    ax.set_xticks(range(len(chart["axes"])), [_cut(name) for name, *_ in chart["axes"]], fontsize=6.5)
    ax.set_yticks([])
    ax.set_ylim(-0.12, 1.12)
    ax.set_xlim(-0.3, len(chart["axes"]) - 0.7)
    ax.spines[:].set_visible(False)


def _cut(name: str) -> str:
    return clean(name if len(name) <= _MOST_LETTERS else f"…{name[1 - _MOST_LETTERS :]}")
