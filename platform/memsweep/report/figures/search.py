"""Panels of a search: winners by the size of a cell, the Pareto front, the objective by field, early stopping."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter, MaxNLocator

from memsweep.config.schema.search import NONE, PBT
from memsweep.report.analysis.search.searched import Searched, on_front
from memsweep.report.analysis.search.winners import Winner, last_row
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.cells import is_number, last
from memsweep.report.naming.numbers import clean
from memsweep.report.read.study import Study
from memsweep.report.style import LineStyle, category_styles, log_axis, ordered_styles, value_axis
from memsweep.search.suggestions import SuggestionRecord, SuggestionState

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FACTOR = 8.0  # values that span more than this factor are drawn on a logarithmic axis
_LOG = ("log_uniform", "log_int")
_MOST_NAMED = 8  # members of a front whose numbers find room beside their marks
_APART = 1.05
_BEST = "best settings"
_ROLES = {
    "the winner": LineStyle("#d55e00", "o", "-"),
    "trained to the end": LineStyle("#0072b2", "s", "-"),
    "stopped there": LineStyle("#9aa3ad", "x", "-"),
}

_Styles = Mapping[str, LineStyle]


def transfer_gallery(searched: Searched, name: str) -> Gallery:
    """The winners' searched numbers, and their confirmed values, against the width (or what sizes the cells).

    Where the lines of a setting are flat, its best value is the same at every size: it transfers.
    """
    cells = searched.cells
    first = [winner for winner in searched.winners if winner.rank == 1]
    sizes = [cells.shade(winner.cell) for winner in first]
    if len(set(sizes)) < 2 or not all(map(is_number, sizes)):
        return Gallery(name, ())
    lines: dict[str, list[Winner]] = {}
    for winner in sorted(first, key=lambda winner: float(cells.shade(winner.cell))):
        lines.setdefault(cells.picture(winner.cell), []).append(winner)
    styles, size = category_styles(list(lines)), last(cells.hue)
    panels = [
        Panel(_BEST, f"best {last(field)} against {size}", partial(_draw_best, searched, lines, field, styles))
        for field in _numeric(searched)
    ]
    for objective, label in enumerate(_labels(searched)):
        title = f"{label} of the winners against {size}"
        panels.append(Panel(_BEST, title, partial(_draw_worth, searched, lines, objective, styles)))
    return Gallery(name, panels, _legend(styles), columns=2)


def front_gallery(searched: Searched, name: str) -> Gallery:
    """Of a search for two objectives or more, the first against each other: all that finished, and the front's line."""
    styles, (first, *others) = _hues(searched), _labels(searched)
    panels = [
        Panel(picture, f"{label} against {first}", partial(_draw_front, searched, cells, other, styles))
        for picture, cells in searched.cells.pictures().items()
        for other, label in enumerate(others, 1)
    ]
    return Gallery(name, panels, _legend(styles), columns=2)


def field_gallery(searched: Searched, name: str) -> Gallery:
    """The objective of every finished suggestion against each searched number; the winners stand out."""
    styles = _hues(searched)
    panels = [
        Panel(
            picture, f"{label} against {last(field)}", partial(_draw_field, searched, objective, field, cells, styles)
        )
        for objective, label in enumerate(_labels(searched))
        for field in _numeric(searched)
        for picture, cells in searched.cells.pictures().items()
    ]
    return Gallery(name, panels, _legend(styles), columns=2)


def curve_gallery(study: Study, searched: Searched, name: str) -> Gallery:
    """Validation loss over the steps of every suggestion of a cell, where a scheduler stopped any."""
    if searched.history.scheduler in (NONE, PBT):
        return Gallery(name, ())
    middle = study.tables["history"].groupby(["identity", "step"])["validation_loss"].median()
    curves = {str(identity): part.droplevel("identity") for identity, part in middle.groupby(level="identity")}
    panels = []
    for cell in range(len(searched.cells.values)):
        found = [(member, curves.get(last_row(member))) for member in searched.of_cell(cell)]
        lines = [(member, curve) for member, curve in found if curve is not None]
        stopped = sum(member.state is SuggestionState.STOPPED for member, _ in lines)
        if lines:
            title = f"{searched.cells.name(cell)}: {stopped} of {len(lines)} stopped"
            panels.append(Panel("learning curves", title, partial(_draw_curves, searched, cell, lines)))
    return Gallery(name, panels, tuple(_ROLES.items()), columns=2)


def _draw_best(
    searched: Searched, lines: Mapping[str, Sequence[Winner]], field: str, styles: _Styles, ax: Axes
) -> None:
    _size_axis(ax, searched, lines)
    for line, winners in lines.items():
        values = {searched.cells.shade(w.cell): w.member.suggestion.values.get(field, math.nan) for w in winners}
        ax.plot(list(values), list(values.values()), **styles[line].line())
    _field_scale(ax, searched, field, "y")
    ax.set_ylabel(f"best {clean(last(field))}")


def _draw_worth(
    searched: Searched, lines: Mapping[str, Sequence[Winner]], objective: int, styles: _Styles, ax: Axes
) -> None:
    _size_axis(ax, searched, lines)
    for place, (line, winners) in enumerate(lines.items()):
        beside = _APART ** (place - (len(lines) - 1) / 2)  # bars that would hide one another
        at = [beside * float(searched.cells.shade(winner.cell)) for winner in winners]
        values = [winner.worth[objective].values.search for winner in winners]
        ax.plot(at, values, **{**styles[line].line(), "linewidth": 0.8})
        for where, winner in zip(at, winners, strict=True):
            _error_bar(ax, where, winner, objective, styles[line])
    _value_scale(ax, "y")
    ax.set_ylabel(clean(_labels(searched)[objective]))


def _draw_front(searched: Searched, cells: Sequence[int], other: int, styles: _Styles, ax: Axes) -> None:
    for cell in cells:
        style, members = styles[searched.cells.shade_name(cell)], searched.of_cell(cell)
        points = [_values(members, objective) for objective in (0, other)]
        ax.plot(*points, linestyle="none", marker=style.marker, color=style.color, markersize=3.0, alpha=0.35)
        best = on_front(members, searched.history.modes)
        chosen = [_values(best, objective) for objective in (0, other)]
        ax.plot(*chosen, **style.line(), drawstyle="steps-post" if len(searched.objectives) == 2 else "default")
        spot: dict[str, Any] = {"xytext": (3, 3), "textcoords": "offset points", "fontsize": 6.5, "color": style.color}
        for place in np.unique(np.linspace(0, len(best) - 1, min(_MOST_NAMED, len(best))).round().astype(int)):
            ax.annotate(str(best[place].suggestion.number), (chosen[0][place], chosen[1][place]), **spot)
        for winner in (one for one in searched.winners if one.cell == cell):
            x, y = (winner.worth[objective].values.confirmed for objective in (0, other))
            _open_mark(ax, x, y, styles[searched.cells.shade_name(winner.cell)])
    places: dict[Literal["x", "y"], int] = {"x": 0, "y": other}
    for which, place in places.items():
        _value_scale(ax, which)
        getattr(ax, f"set_{which}label")(clean(_labels(searched)[place]))


def _draw_field(
    searched: Searched, objective: int, field: str, cells: Sequence[int], styles: _Styles, ax: Axes
) -> None:
    for cell in cells:
        style = styles[searched.cells.shade_name(cell)]
        members = [member for member in searched.of_cell(cell) if field in member.suggestion.values]
        at = np.array([float(member.suggestion.values[field]) for member in members])
        marks: dict[str, Any] = {"linestyle": "none", "color": style.color}
        ax.plot(at, _values(members, objective), marker=style.marker, markersize=3.2, alpha=0.55, **marks)
        lost = at[[member.state is SuggestionState.DIVERGED for member in members]]
        at_top: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False}
        ax.plot(lost, np.ones(lost.size), marker="x", markersize=4, **marks, **at_top)
    for cell in cells:
        winner = searched.winner(cell)
        if winner is not None and field in winner.member.suggestion.values:
            style, value = styles[searched.cells.shade_name(cell)], float(winner.member.suggestion.values[field])
            large = {**style.line(), "linestyle": "none", "markersize": 7.0, "zorder": 4}
            ax.plot([value], [winner.worth[objective].values.search], **large)
            _error_bar(ax, value, winner, objective, style)
    _value_scale(ax, "y")
    _field_scale(ax, searched, field, "x")
    ax.set_xlabel(clean(last(field)))
    ax.set_ylabel(clean(_labels(searched)[objective]))


def _draw_curves(searched: Searched, cell: int, lines: Sequence[tuple[SuggestionRecord, pd.Series]], ax: Axes) -> None:
    best, (winner, done, stopped) = searched.winner(cell), _ROLES.values()
    for member, curve in lines:
        won = best is not None and best.member.suggestion.number == member.suggestion.number
        style = winner if won else stopped if member.state is SuggestionState.STOPPED else done
        known = curve.where(np.isfinite(curve))
        look: dict[str, Any] = {"color": style.color, "zorder": 4 if won else 2}
        ax.plot(known, linewidth=1.6 if won else 0.8, **look)
        ax.plot(known.index[-1:], known.iloc[-1:], marker=style.marker, markersize=4, linestyle="none", **look)
    _value_scale(ax, "y")
    ax.set_xlim(0, searched.history.steps * 1.03)
    ax.set_xlabel("optimizer steps")
    ax.set_ylabel("validation loss")


def _labels(searched: Searched) -> list[str]:
    return [name.replace("_", " ") for name in searched.objectives]


def _hues(searched: Searched) -> dict[str, LineStyle]:
    """Name of each value of the cells' colouring axis -> its style."""
    shades = {searched.cells.shade_name(cell): searched.cells.shade(cell) for cell in range(len(searched.cells.values))}
    if all(map(is_number, shades.values())):
        styles = ordered_styles(list(shades.values()))
        return {name: styles[shades[name]] for name in sorted(shades, key=lambda name: shades[name])}
    return category_styles(list(shades))


def _numeric(searched: Searched) -> list[str]:
    """The searched fields with a numeric domain, or with numbers to choose from."""
    return [path for path, domain in searched.history.space.items() if all(map(is_number, domain.values))]


def _legend(styles: _Styles) -> tuple[tuple[str, LineStyle], ...]:
    """Entries for a gallery; none where there is nothing to tell apart."""
    return tuple(styles.items()) if len(styles) > 1 else ()


def _value_scale(ax: Axes, which: Literal["x", "y"]) -> None:
    """A logarithmic axis for positive values that span much, a linear one for all others."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    low, high = ax.dataLim.intervalx if which == "x" else ax.dataLim.intervaly
    if 0 < _FACTOR * low < high:
        log_axis(ax, which)
        return
    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    ax.tick_params(axis=which, labelsize=6.5)


def _field_scale(ax: Axes, searched: Searched, field: str, which: Literal["x", "y"]) -> None:
    """The axis of a searched field: over its whole domain, logarithmic where it was searched so."""
    domain = searched.history.space[field]
    ends = [float(value) for value in domain.values] or [domain.low, domain.high]
    low, high = min(ends), max(ends)
    if domain.kind in _LOG or (domain.values and low > 0 and high > _FACTOR * low):
        log_axis(ax, which)
        low, high = low / (high / low) ** 0.03, high * (high / low) ** 0.03
    else:
        low, high = low - 0.03 * (high - low), high + 0.03 * (high - low)
    if high > low:
        (ax.set_xlim if which == "x" else ax.set_ylim)(low, high)


def _size_axis(ax: Axes, searched: Searched, lines: Mapping[str, Sequence[Winner]]) -> None:
    sizes = sorted({float(searched.cells.shade(winner.cell)) for winners in lines.values() for winner in winners})
    if sizes[0] > 0 and math.isfinite(sizes[-1]):
        value_axis(ax, sizes)
    ax.set_xlabel(clean(last(searched.cells.hue)))


def _error_bar(ax: Axes, at: float, winner: Winner, objective: int, style: LineStyle) -> None:
    """What fresh seeds say of a winner: an open mark with its interval, as far as it is finite."""
    found = winner.worth[objective].values
    if math.isfinite(found.confirmed):
        ends = [end if math.isfinite(end) else found.confirmed for end in (found.low, found.high)]
        ax.plot([at, at], ends, color=style.color, linewidth=1.1, zorder=4)
        _open_mark(ax, at, found.confirmed, style)


def _open_mark(ax: Axes, x: float, y: float, style: LineStyle) -> None:
    """A value that fresh seeds gave; nothing where it is not finite."""
    if math.isfinite(x) and math.isfinite(y):
        face: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": style.color, "markeredgewidth": 1.3}
        ax.plot([x], [y], marker=style.marker, markersize=6.5, linestyle="none", zorder=5, **face)


def _values(members: Sequence[SuggestionRecord], objective: int) -> np.ndarray:
    """The objective of each member that was trained to the end; nan for all others and for what is not finite."""
    ended = [m.values[objective] if m.state is SuggestionState.DONE and m.values else math.nan for m in members]
    found = np.array(ended, float)
    return np.where(np.isfinite(found), found, np.nan)
