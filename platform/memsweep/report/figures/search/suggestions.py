"""Panels of a search: the best so far, and the objective against every searched number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator

from memsweep.config.schema.search import PBT
from memsweep.report.analysis.search.searched import Searched, better
from memsweep.report.analysis.search.winners import Winner, last_row
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.cells import is_number, last
from memsweep.report.naming.numbers import clean
from memsweep.report.style import MUTED, LineStyle, category_styles, log_axis, ordered_styles
from memsweep.search.suggestions import SuggestionRecord, SuggestionState

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 3.8
_FACTOR = 8.0  # values that span more than this factor are drawn on a logarithmic axis
_OF_ALL = LineStyle(MUTED, "o", "-")
_LOG = ("log_uniform", "log_int")


def hues(searched: Searched) -> dict[str, LineStyle]:
    """Name of each value of the cells' colouring axis -> its style."""
    shades = {searched.cells.shade_name(cell): searched.cells.shade(cell) for cell in range(len(searched.cells.values))}
    if all(map(is_number, shades.values())):
        styles = ordered_styles(list(shades.values()))
        return {name: styles[shades[name]] for name in sorted(shades, key=lambda name: shades[name])}
    return category_styles(list(shades))


def style_of(searched: Searched, cell: int, styles: dict[str, LineStyle]) -> LineStyle:
    """How the suggestions of a cell are drawn; in no cell's colour where all cells have the same ones."""
    return _OF_ALL if searched.shared else styles[searched.cells.shade_name(cell)]


def progress_gallery(searched: Searched, name: str) -> Gallery:
    """The best so far, against suggestions and against optimizer steps; a line per cell.

    None for a population, whose members all train at once.
    """
    if searched.history.scheduler == PBT:
        return Gallery(name=name, panels=())
    styles = hues(searched)
    panels = []
    for picture, cells in searched.pictures().items():
        for objective in range(len(searched.objectives)):
            for along, count in (("suggestions", _suggestions), ("optimizer steps", _steps)):
                panels.append(_progress(searched, objective, picture, cells, (along, count), styles))
    return Gallery(name=name, panels=tuple(panels), legend=() if searched.shared else legend(styles), columns=2)


def field_gallery(searched: Searched, name: str) -> Gallery:
    """The objective of every finished suggestion against each searched number; the winners stand out."""
    styles = hues(searched)
    panels = []
    for objective in range(len(searched.objectives)):
        for field in numeric_fields(searched):
            for picture, cells in searched.pictures().items():
                panels.append(_field(searched, objective, field, picture, cells, styles))
    return Gallery(name=name, panels=tuple(panels), legend=legend(styles), columns=2)


def numeric_fields(searched: Searched) -> list[str]:
    """The searched fields with a numeric domain, or with numbers to choose from."""
    return [
        path
        for path, domain in searched.history.space.items()
        if not domain.values or all(map(is_number, domain.values))
    ]


def legend(styles: dict[str, LineStyle]) -> tuple[tuple[str, LineStyle], ...]:
    """Entries for a gallery; none where there is nothing to tell apart."""
    return tuple(styles.items()) if len(styles) > 1 else ()


def value_scale(ax: Axes, values: Sequence[float], which: Literal["x", "y"] = "y") -> None:
    """A logarithmic axis for positive values that span much, a linear one for all others."""
    known = [value for value in values if math.isfinite(value)]
    if known and min(known) > 0 and max(known) > _FACTOR * min(known):
        log_axis(ax, which, label_between=max(known) < 200 * min(known))
        ax.tick_params(axis=which, which="minor", labelsize=6.5)
        return
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    ax.tick_params(axis=which, labelsize=6.5)


def field_scale(ax: Axes, searched: Searched, field: str, which: str) -> None:
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


def error_bar(ax: Axes, at: float, winner: Winner, objective: int, style: LineStyle) -> None:
    """What fresh seeds say of a winner: an open mark with its interval, as far as it is finite."""
    found = winner.worth[objective].values
    if not math.isfinite(found.confirmed):
        return
    ends = [end if math.isfinite(end) else found.confirmed for end in (found.low, found.high)]
    ax.plot([at, at], ends, color=style.color, linewidth=1.1, zorder=4)
    open_mark(ax, at, found.confirmed, style)


def open_mark(ax: Axes, x: float, y: float, style: LineStyle) -> None:
    """A value that fresh seeds gave; nothing where it is not finite."""
    if math.isfinite(x) and math.isfinite(y):
        face: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": style.color, "markeredgewidth": 1.3}
        ax.plot([x], [y], marker=style.marker, markersize=6.5, linestyle="none", zorder=5, **face)


def values_of(members: Sequence[SuggestionRecord], objective: int) -> np.ndarray:
    """The objective of each member that was trained to the end; nan for all others."""
    return np.array(
        [
            m.values[objective] if m.state is SuggestionState.DONE and m.values is not None else math.nan
            for m in members
        ],
        float,
    )


def rows_of(members: Sequence[SuggestionRecord], cells: Sequence[int]) -> tuple[str, ...]:
    """The identities of the rows in which members ended."""
    rows = [last_row(member, cell) for cell in cells for member in members]
    return tuple(dict.fromkeys(row.identity for row in rows if row is not None))


def _suggestions(members: Sequence[SuggestionRecord]) -> np.ndarray:
    return np.arange(1, len(members) + 1, dtype=float)


def _steps(members: Sequence[SuggestionRecord]) -> np.ndarray:
    return np.cumsum([float(member.steps) for member in members])


def _progress(
    searched: Searched,
    objective: int,
    picture: str,
    cells: Sequence[int],
    along: tuple[str, Callable[[Sequence[SuggestionRecord]], np.ndarray]],
    styles: dict[str, LineStyle],
) -> Panel:
    words, count = along
    label, mode = clean(searched.objectives[objective].replace("_", " ")), searched.history.modes[objective]
    lines = {cell: searched.of_cell(cell) for cell in cells}

    def draw(ax: Axes) -> None:
        drawn: list[float] = []
        for cell, members in lines.items():
            best = better(values_of(members, objective).tolist(), mode)
            style = style_of(searched, cell, styles)
            ax.step(count(members), best, where="post", **style.stroke())
            if np.isfinite(best).any():
                ax.plot(count(members)[-1:], best[-1:], **{**style.line(), "linestyle": "none"})
            drawn += best[np.isfinite(best)].tolist()
        value_scale(ax, drawn)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        ax.set_xlabel(words)
        ax.set_ylabel(f"best {label} so far")

    return Panel(
        group=picture,
        title=f"{label} against {words}",
        description=f"Best {label} so far against {words}, {picture}.",
        draw=draw,
        identities=tuple(dict.fromkeys(i for cell, members in lines.items() for i in rows_of(members, [cell]))),
        width=WIDTH,
    )


def _field(
    searched: Searched, objective: int, field: str, picture: str, cells: Sequence[int], styles: dict[str, LineStyle]
) -> Panel:
    label = clean(searched.objectives[objective].replace("_", " "))

    def draw(ax: Axes) -> None:
        drawn: list[float] = []
        for cell in cells:
            style = style_of(searched, cell, styles)
            members = [m for m in searched.of_cell(cell) if field in m.suggestion.values]
            at = np.array([float(m.suggestion.values[field]) for m in members])
            value = values_of(members, objective)
            ax.plot(at, value, linestyle="none", marker=style.marker, color=style.color, markersize=3.2, alpha=0.55)
            drawn += value[np.isfinite(value)].tolist()
            lost = at[[member.state is SuggestionState.DIVERGED for member in members]]
            rail: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False}
            ax.plot(
                lost, np.full(lost.size, 1.0), marker="x", markersize=4, color=style.color, linestyle="none", **rail
            )
        for cell in range(len(searched.cells.values)) if searched.shared else cells:
            drawn += _winner(ax, searched, cell, (objective, field), styles[searched.cells.shade_name(cell)])
        value_scale(ax, drawn)
        field_scale(ax, searched, field, "x")
        ax.set_xlabel(clean(last(field)))
        ax.set_ylabel(label)

    members = [m for cell in cells for m in searched.of_cell(cell)]
    alone, against = len(searched.cells.pictures()) == 1, f"against {last(field)}"
    return Panel(
        group=label if alone else f"{label} {against}",
        title=against if alone else picture,
        description=f"{label} of every finished suggestion against {last(field)}, {picture}; winners stand out.",
        draw=draw,
        identities=rows_of(members, cells),
        width=WIDTH,
    )


def _winner(ax: Axes, searched: Searched, cell: int, what: tuple[int, str], style: LineStyle) -> list[float]:
    objective, field = what
    winner = searched.winner(cell)
    if winner is None or field not in winner.member.suggestion.values:
        return []
    at = float(winner.member.suggestion.values[field])
    found = winner.worth[objective].values
    ax.plot([at], [found.search], **{**style.line(), "linestyle": "none", "markersize": 7.0}, zorder=4)
    error_bar(ax, at, winner, objective, style)
    return [value for value in (found.search, found.confirmed, found.low, found.high) if math.isfinite(value)]
