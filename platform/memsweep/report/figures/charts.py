"""Pictures of charts: the one drawer for what the page's script draws from the same value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.numbers import clean
from memsweep.report.style import MUTED, LineStyle, category_styles, log_axis
from memsweep.report.values.chart import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def chart_gallery(charts: Sequence[Chart], name: str) -> Gallery:
    """One panel for each chart; a line of one name looks alike in all of them."""
    names = dict.fromkeys(name for chart in charts for name, _ in (*chart["lines"], *chart.get("dots", ())))
    styles = category_styles([*names])
    panels = [
        Panel(chart["title"], chart.get("note", ""), partial(_draw, chart=chart, styles=styles)) for chart in charts
    ]
    return Gallery(name, panels, [*styles.items()])


def _draw(ax: Axes, chart: Chart, styles: Mapping[str, LineStyle]) -> None:
    lines, dots = chart["lines"], chart.get("dots", ())
    for axis in ("x", "y"):
        if axis in chart["log"]:
            log_axis(ax, axis)
    for name, points in lines:
        _line(ax, [*_drawable(points, chart["log"])], styles[name])
    for name, points in dots:
        for x, y, *ends in _drawable(points, chart["log"]):
            bars = [[max(y - ends[0], 0.0)], [max(ends[1] - y, 0.0)]] if ends else None
            ax.errorbar([x], [y], bars, **{**styles[name].line(), "linestyle": ""})
    for value, words in chart.get("levels", ()):
        ax.axhline(value, color=MUTED, linewidth=0.8, linestyle=(0, (4, 2)))
        ax.annotate(clean(words), (1.0, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7)
    ax.set_xlabel(clean(chart["x"]))
    ax.set_ylabel(clean(chart["y"]))


def _line(ax: Axes, points: Sequence[Sequence[float]], style: LineStyle) -> None:
    """Medians as a line, and the band from the smallest to the largest where it is known."""
    x, y = [point[0] for point in points], [point[1] for point in points]
    ax.plot(x, y, markevery=max(1, len(points) // 12), **style.line())
    if points and all(len(point) > 3 for point in points):
        low, high = [point[2] for point in points], [point[3] for point in points]
        ax.fill_between(x, low, high, color=style.color, alpha=0.16, linewidth=0)


def _drawable(points: Iterable[Sequence[Any]], log: str) -> Iterable[Sequence[float]]:
    """The points that are finite, and above zero on a logarithmic axis."""
    for point in points:
        of_axes = dict(zip("xy", point[:2], strict=True))
        if all(math.isfinite(value) and (value > 0 or axis not in log) for axis, value in of_axes.items()):
            yield point
