"""Draws the charts of a report: each as a panel, those of one set as a gallery."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.transforms import ScaledTranslation

from memsweep.report.analysis.contents import Contents, Finding
from memsweep.report.charts.every import chart_sets, trial_set
from memsweep.report.charts.radius import radius_charts
from memsweep.report.figures.panels import (
    FAINT,
    MUTED,
    Gallery,
    LineStyle,
    Panel,
    category_styles,
    log_axis,
    ordered_styles,
    ticks_at,
)
from memsweep.report.figures.rows import draw_cells, draw_parallel, draw_rows
from memsweep.report.formats import PER_PICTURE, RADIUS
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import clean
from memsweep.report.read.study import Study
from memsweep.report.values.chart import ORDERED, ROLES, TARGET, Chart, ChartSet, names_of
from memsweep.report.values.section import Section

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_ROLES = {
    "the winner": LineStyle("#d55e00", "o", "-"),
    "trained to the end": LineStyle("#0072b2", "s", "-"),
    "stopped there": LineStyle("#9aa3ad", "x", "-"),
}
_RAIL = 0.13  # share of the height, at the top, for what lies beyond it
_TARGET = LineStyle("#9aa3ad", "", "-")
_HIGH, _RISE = 1.9, 4  # of axes, inches; lines for slanted names
_ACROSS, _APART = 66, 2.2  # letters of a line below a chart; points between marks of one place
_FEW = 16  # places at which marks of several names stand beside each other
_BESIDE = 5  # letters of a level's words that have room beside the axes

_Styles = Mapping[str, LineStyle]


def gallery_of(charts: ChartSet, most: int | None = None) -> Gallery:
    """The panels of charts that belong together, the first ones; a line of one name looks alike in all of them."""
    made = charts.first(most)
    styles, legend = _styles(made)
    shown = legend if len(styles) > 1 and not any("keys" in one for one in made) else ()
    panels = [_panel(one, styles) for one in made]
    return Gallery(charts.name, panels, shown, columns=charts.columns)


def _styles(charts: Sequence[Chart]) -> tuple[_Styles, Sequence[tuple[str, LineStyle]]]:
    names, looks = names_of(charts), {one.get("look", "") for one in charts}
    if looks == {ROLES}:
        return {name: _ROLES[_role(name)] for name in names}, [*_ROLES.items()]
    if looks == {ORDERED}:
        shades = ordered_styles([float(place) for place in range(len(names))])
        styles: _Styles = dict(zip(names, shades.values(), strict=True))
    else:
        styles = category_styles(names) | ({TARGET: _TARGET} if TARGET in names else {})
    return styles, [*styles.items()]


def _role(name: str) -> str:
    return (
        "the winner"
        if name.startswith("the winner")
        else "stopped there"
        if name.startswith("stopped")
        else "trained to the end"
    )


def _panel(chart: Chart, styles: _Styles) -> Panel:
    keys, high = len(chart.get("keys", ())), _HIGH
    if chart["kind"] == "rows":
        high = max(_HIGH, 0.3 + 0.32 * len(chart["rows"]))
    if chart["kind"] == "cells":
        keys, high = _RISE, max(_HIGH, 0.3 + 0.13 * len(chart["rows"]))
    note = textwrap.wrap(clean(chart.get("note", "")), _ACROSS)
    draw, words = partial(_draw, chart=chart, styles=styles), chart.get("words", "")
    return Panel(chart["title"], "", draw, keys + bool(keys), note, high, words)


def _draw(ax: Axes, chart: Chart, styles: _Styles) -> None:
    if chart["kind"] == "rows":
        draw_rows(ax, chart)
    elif chart["kind"] == "cells":
        draw_cells(ax, chart)
    elif chart["kind"] == "parallel":
        draw_parallel(ax, chart)
    else:
        _curves(ax, chart, styles)
    ax.set_xlabel(clean(chart["x"]))
    ax.set_ylabel(clean(chart["y"]))


def _curves(ax: Axes, chart: Chart, styles: _Styles) -> None:
    _axes(ax, chart)
    _levels(ax, chart)
    _guides(ax, chart, styles)
    _seeds(ax, chart, styles)
    lines, drawn = chart["lines"], partial(_drawable, log=chart["log"])
    for place, (name, points) in enumerate(lines):
        _line(ax, [*drawn(points)], styles[name], place, len(lines), chart)
    for place, (name, points) in enumerate(chart.get("dots", ())):
        _dots(ax, [*drawn(points)], styles[name], (place, len(chart["dots"])), chart)
    _rings(ax, chart, styles)
    _beyond(ax, chart, styles)
    _lost(ax, chart, styles)
    _keys(ax, chart, styles)


def _guides(ax: Axes, chart: Chart, styles: _Styles) -> None:
    """Straight lines: slopes of the lines in their colours, and one in grey that they are compared with."""
    for name, ends, words in chart.get("guides", ()):
        look: dict[str, Any] = {"color": styles[name].color if name else MUTED, "linewidth": 1.0 if name else 0.8}
        ax.plot(*zip(*ends, strict=True), **look, alpha=0.7 if name else 1.0, linestyle=(0, (2, 2)), zorder=1)
        if words and not name:
            ax.annotate(clean(words), ends[0], fontsize=6, color=MUTED, xytext=(0, 2), textcoords="offset points")


def _seeds(ax: Axes, chart: Chart, styles: _Styles) -> None:
    """Small marks, hollow where they are not valid."""
    for name, points in chart.get("seeds", ()):
        for valid in (True, False):
            part = [point for point in _drawable(points, chart["log"]) if bool(point[2]) is valid]
            color = styles[name].color
            mark: dict[str, Any] = {"marker": "o" if valid else "s", "markersize": 2.6, "alpha": 0.45 if valid else 0.7}
            mark |= {"markerfacecolor": color if valid else "none", "markeredgecolor": color, "markeredgewidth": 0.5}
            ax.plot([p[0] for p in part], [p[1] for p in part], linestyle="none", zorder=1.5, **mark)


def _rings(ax: Axes, chart: Chart, styles: _Styles) -> None:
    """Large open marks around what stands out."""
    ring: dict[str, Any] = {"marker": "o", "markersize": 8.5, "markerfacecolor": "none", "markeredgewidth": 1.6}
    for name, points in chart.get("rings", ()):
        known = [*_drawable(points, chart["log"])]
        look = {**ring, "markeredgecolor": styles[name].color, "linestyle": "none"}
        ax.plot([p[0] for p in known], [p[1] for p in known], **look, zorder=5)


def _axes(ax: Axes, chart: Chart) -> None:
    if "x" in chart["log"] and "ticks" in chart:
        ticks_at(ax, chart["ticks"])
    elif "x" in chart["log"]:
        log_axis(ax, "x")
    if "y" in chart["log"]:
        log_axis(ax, "y")
    for axis in chart.get("whole", ""):
        ax.locator_params(axis=axis, integer=True)
    ax.set_xlim(*chart["limits"]["x"])
    ax.set_ylim(chart["limits"]["y"][0], _top(chart))
    ax.grid(axis="y", which="both" if "y" in chart["log"] else "major", color=FAINT, linewidth=0.4)
    ax.set_axisbelow(True)


def _levels(ax: Axes, chart: Chart) -> None:
    for value, words in chart.get("levels", ()):
        ax.axhline(value, color=MUTED, linewidth=0.7, linestyle=(0, (4, 2)), zorder=0.5)
        short = len(words) <= _BESIDE
        where: dict[str, Any] = {"ha": "left", "va": "center" if short else "bottom", "fontsize": 6.5, "color": MUTED}
        ax.annotate(clean(words), (1.02 if short else 0.01, value), xycoords=("axes fraction", "data"), **where)


def _line(ax: Axes, points: Sequence[Sequence[Any]], style: LineStyle, place: int, count: int, chart: Chart) -> None:
    """Medians as a line, and the band from the smallest to the largest where it is known."""
    x, y = [point[0] for point in points], [point[1] for point in points]
    every = 1 if len(points) <= _FEW else max(1, len(points) // 10)
    look = _look(style, chart.get("look") == ROLES)
    look |= (
        {"markevery": (place * every // max(count, 1) % every, every), "markersize": 3.8} if look.get("marker") else {}
    )
    ax.plot(x, y, **look, zorder=2)
    if points and all(len(point) > 3 for point in points):
        low, top = chart["limits"]["y"][0], _top(chart)
        ends = [
            [min(max(value, low / 1e3), top * 1e3) if math.isfinite(value) else top for value in (p[2], p[3])]
            for p in points
        ]
        ax.fill_between(x, *zip(*ends, strict=True), color=style.color, alpha=0.14, linewidth=0, zorder=1)


def _look(style: LineStyle, roles: bool) -> dict[str, Any]:
    if style is _TARGET:
        return {**style.stroke(), "linewidth": 4.0, "alpha": 0.7, "solid_capstyle": "round"}
    if roles:
        return {**style.stroke(), "linewidth": 1.6 if style is _ROLES["the winner"] else 0.8}
    return style.line()


def _dots(ax: Axes, points: Sequence[Sequence[Any]], style: LineStyle, place: tuple[int, int], chart: Chart) -> None:
    """Marks with bars; where several names share few places, marks of one place stand beside each other."""
    few = place[1] > 1 and len(chart.get("ticks", ())) and any(len(point) > 3 for point in points)
    shift = _APART * (place[0] - (place[1] - 1) / 2) / 72 if few else 0.0
    where = ax.transData + ScaledTranslation(shift, 0, ax.figure.dpi_scale_trans)
    bars = [point for point in points if len(point) > 3 and all(map(_known, point[2:4]))]
    for x, _, low, high, *_ in bars:
        ax.plot([x, x], [low, high], color=style.color, linewidth=1.1, zorder=3, transform=where)
    face = (
        {"markerfacecolor": "white", "markeredgecolor": style.color, "markeredgewidth": 1.1} if bars else {"alpha": 0.6}
    )
    mark: dict[str, Any] = {
        "marker": style.marker,
        "color": style.color,
        "linestyle": "none",
        "markersize": 5.0 if bars else 3.4,
    }
    ax.plot([p[0] for p in points], [p[1] for p in points], **mark, **face, zorder=4, transform=where)


def _beyond(ax: Axes, chart: Chart, styles: _Styles) -> None:
    """Open marks with an arrow: the value is known to lie on that side of its place."""
    for name, points in chart.get("beyond", ()):
        style = styles[name]
        arrow: dict[str, Any] = {
            "arrowstyle": "<|-",
            "facecolor": "white",
            "edgecolor": style.color,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        for x, y, side in points:
            tail = 14 if side == "above" else -14
            ax.annotate("", (x, y), xytext=(0, tail), textcoords="offset points", arrowprops=arrow)
            ax.plot([x], [y], marker=style.marker, markerfacecolor="white", markeredgecolor=style.color, zorder=4)


def _top(chart: Chart) -> float:
    """The upper end of the axes: above the limit there is a rail where something is lost."""
    low, high = chart["limits"]["y"]
    if not _railed(chart):
        return float(high)
    share = _RAIL / (1 - _RAIL)
    return float(high * (high / low) ** share if "y" in chart["log"] else high + share * (high - low))


def _railed(chart: Chart) -> bool:
    return chart.get("rail", False) or any(points for _, points in chart.get("lost", ()))


def _lost(ax: Axes, chart: Chart, styles: _Styles) -> None:
    """The rail at the top: a lane for each name, a mark wherever its value is infinite or its training diverged."""
    lost = [(name, points) for name, points in chart.get("lost", ()) if points]
    if not _railed(chart):
        return
    high, top = chart["limits"]["y"][1], _top(chart)
    ax.axhspan(high, top, facecolor="#f1f3f5", edgecolor="#c9d0d8", hatch="////", linewidth=0, zorder=3)
    ax.axhline(high, color=MUTED, linewidth=0.6, zorder=3)
    beside: dict[str, Any] = {"xycoords": "axes fraction", "va": "center", "color": MUTED}
    ax.annotate("∞", (1.02, 1 - _RAIL / 2), fontsize=10, **beside)
    for place, (name, points) in enumerate(lost):
        lane = 1 - _RAIL + _RAIL * (place + 0.7) / (len(lost) + 0.4)
        mark: dict[str, Any] = {
            **styles[name].line(),
            "markersize": 3.4,
            "linewidth": 0.9,
            "transform": ax.get_xaxis_transform(),
        }
        mark |= {"linestyle": "none"} if len(points) <= 2 or any(words for _, words in points) else {}
        every = max(1, len(points) // 8)
        ax.plot([x for x, _ in points], [lane] * len(points), markevery=every, **mark, zorder=4)
        for x, words in points:
            spot: dict[str, Any] = {"xytext": (3.5, -1.8), "textcoords": "offset points", "fontsize": 5.5}
            ax.annotate(clean(words), (x, lane), xycoords=("data", "axes fraction"), **spot, zorder=4)


def _keys(ax: Axes, chart: Chart, styles: _Styles) -> None:
    if "keys" not in chart:
        return
    handles = [
        ax.plot([], [], label=f"{clean(_shortened(name))}:  {words}", **styles[name].line())[0]
        for name, words in chart["keys"].items()
    ]
    ax.legend(
        handles=handles,
        title=chart["keys_title"],
        title_fontsize=7,
        loc="upper left",
        bbox_to_anchor=(-0.12, -0.2),
        alignment="left",
        handlelength=3.2,
        labelspacing=0.35,
    )


def _shortened(name: str, most: int = 34) -> str:
    """The end of a long name: what tells machines apart comes last."""
    return name if len(name) <= most else f"…{name[1 - most :]}"


def _known(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def _drawable(points: Iterable[Sequence[Any]], log: str) -> Iterable[Sequence[Any]]:
    """The points that are finite, and above zero on a logarithmic axis."""
    for point in points:
        of_axes = dict(zip("xy", point[:2], strict=True))
        if all(_known(value) and (value > 0 or axis not in log) for axis, value in of_axes.items()):
            yield point


def comparison_gallery(findings: Sequence[Finding]) -> Gallery:
    """The radii of conditions that several studies have: a line per study."""
    labels = Labels([finding.condition for finding in findings])
    return gallery_of(ChartSet(RADIUS, radius_charts(findings, labels)), PER_PICTURE)


def galleries_of(contents: Contents, sections: Sequence[Section]) -> Iterator[Gallery]:
    """The galleries of a report, some without panels; nothing is drawn yet."""
    return map(gallery_of, chart_sets(contents, sections))


def trial_gallery(study: Study, identity: str) -> Gallery:
    """The gallery of one trial."""
    return gallery_of(trial_set(study, identity))
