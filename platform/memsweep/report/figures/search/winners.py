"""Panels of winners: how the best settings move with the size of a cell, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memsweep.report.analysis.search.searched import Searched, on_front
from memsweep.report.analysis.search.winners import Winner
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.figures.search.suggestions import (
    WIDTH,
    error_bar,
    field_scale,
    hues,
    legend,
    numeric_fields,
    open_mark,
    rows_of,
    style_of,
    value_scale,
    values_of,
)
from memsweep.report.naming.cells import Cells, is_number, last
from memsweep.report.naming.numbers import clean
from memsweep.report.style import LineStyle, category_styles, value_axis
from memsweep.search.suggestions import SuggestionRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NAMED = 8  # members of a front whose numbers find room beside their marks
_APART = 1.05
BEST = "best settings"


def transfer_gallery(searched: Searched, name: str) -> Gallery:
    """The winners' searched numbers, and their confirmed values, against the width (or what sizes the cells).

    Where the lines of a setting are flat, its best value is the same at every size: it transfers.
    """
    cells = searched.cells
    axis, first = cells.hue, [w for w in searched.winners if w.rank == 1]
    sizes = [cells.values[winner.cell].get(axis) for winner in first]
    if len(set(sizes)) < 2 or not all(map(is_number, sizes)) or searched.shared:
        return Gallery(name=name, panels=())
    lines: dict[str, list[Winner]] = {}
    for winner in sorted(first, key=lambda winner: float(cells.values[winner.cell][axis])):
        lines.setdefault(cells.picture(winner.cell), []).append(winner)
    styles = category_styles(list(lines))
    panels = [_transfer(searched, lines, field, styles) for field in numeric_fields(searched)]
    panels += [_worth(searched, lines, objective, styles) for objective in range(len(searched.objectives))]
    return Gallery(name=name, panels=tuple(panels), legend=legend(styles), columns=2)


def front_gallery(searched: Searched, name: str) -> Gallery:
    """Of a search for two objectives or more, the first against each other: all that finished, and the front's line."""
    if len(searched.objectives) < 2:
        return Gallery(name=name, panels=())
    styles = hues(searched)
    panels = [
        _front(searched, picture, cells, other, styles)
        for picture, cells in searched.pictures().items()
        for other in range(1, len(searched.objectives))
    ]
    return Gallery(name=name, panels=tuple(panels), legend=legend(styles), columns=2)


def _transfer(searched: Searched, lines: dict[str, list[Winner]], field: str, styles: dict[str, LineStyle]) -> Panel:
    def draw(ax: Axes) -> None:
        _size_axis(ax, searched.cells, lines)
        for line, winners in lines.items():
            known = [winner for winner in winners if field in winner.member.suggestion.values]
            at = [_size(searched.cells, winner) for winner in known]
            ax.plot(at, [float(winner.member.suggestion.values[field]) for winner in known], **styles[line].line())
        field_scale(ax, searched, field, "y")
        ax.set_ylabel(f"best {clean(last(field))}")

    size = last(searched.cells.hue)
    return Panel(
        group=BEST,
        title=f"best {last(field)} against {size}",
        description=f"The winners' {last(field)} against {size}, a line each: {', '.join(lines)}.",
        draw=draw,
        identities=_ids(lines),
        width=WIDTH,
    )


def _worth(searched: Searched, lines: dict[str, list[Winner]], objective: int, styles: dict[str, LineStyle]) -> Panel:
    label, size = searched.objectives[objective].replace("_", " "), last(searched.cells.hue)

    def draw(ax: Axes) -> None:
        _size_axis(ax, searched.cells, lines)
        drawn: list[float] = []
        for place, (line, winners) in enumerate(lines.items()):
            beside = _APART ** (place - (len(lines) - 1) / 2)  # bars that would hide one another
            at = [beside * _size(searched.cells, winner) for winner in winners]
            worth = [winner.worth[objective].values for winner in winners]
            ax.plot(at, [one.search for one in worth], **{**styles[line].line(), "linewidth": 0.8})
            for where, winner in zip(at, winners, strict=True):
                error_bar(ax, where, winner, objective, styles[line])
            drawn += [value for one in worth for value in (one.search, one.confirmed, one.low, one.high)]
        value_scale(ax, drawn)
        ax.set_ylabel(clean(label))

    return Panel(
        group=BEST,
        title=f"{label} of the winners against {size}",
        description=f"{label} of the winners against {size}: the search's value, and the confirmed one's interval.",
        draw=draw,
        identities=_ids(lines),
        width=WIDTH,
    )


def _front(searched: Searched, picture: str, cells: Sequence[int], other: int, styles: dict[str, LineStyle]) -> Panel:
    first, second = (clean(searched.objectives[place].replace("_", " ")) for place in (0, other))
    of_cells = {cell: searched.of_cell(cell) for cell in cells}

    def draw(ax: Axes) -> None:
        drawn: tuple[list[float], list[float]] = ([], [])
        for cell, members in of_cells.items():
            style = style_of(searched, cell, styles)
            points = [values_of(members, objective) for objective in (0, other)]
            for kept, found in zip(drawn, points, strict=True):
                kept += found[np.isfinite(found)].tolist()
            ax.plot(*points, linestyle="none", marker=style.marker, color=style.color, markersize=3.0, alpha=0.35)
            best = on_front(members, searched.history.modes)
            chosen = [values_of(best, objective) for objective in (0, other)]
            ax.plot(*chosen, **style.line(), drawstyle="steps-post" if len(searched.objectives) == 2 else "default")
            for member, x, y in _some(list(zip(best, *chosen, strict=True))):
                spot: dict[str, Any] = {
                    "xytext": (3, 3),
                    "textcoords": "offset points",
                    "fontsize": 6.5,
                    "color": style.color,
                }
                ax.annotate(str(member.suggestion.number), (x, y), **spot)
            for winner in (one for one in searched.winners if searched.shared or one.cell == cell):
                anew = [winner.worth[objective].values.confirmed for objective in (0, other)]
                open_mark(ax, anew[0], anew[1], styles[searched.cells.shade_name(winner.cell)])
                for kept, value in zip(drawn, anew, strict=True):
                    kept += [value] if math.isfinite(value) else []
        value_scale(ax, drawn[0], "x")
        value_scale(ax, drawn[1])
        ax.set_xlabel(first)
        ax.set_ylabel(second)

    return Panel(
        group=picture,
        title=f"{second} against {first}",
        description=f"{second} against {first}, {picture}; the line joins those that nothing surpasses in both.",
        draw=draw,
        identities=rows_of([member for members in of_cells.values() for member in members], cells),
        width=WIDTH,
        right=0.2,
    )


def _some(points: list[tuple[SuggestionRecord, float, float]]) -> list[tuple[SuggestionRecord, float, float]]:
    """As many in equal distances as can be named, both ends among them."""
    if len(points) <= _MOST_NAMED:
        return points
    places = {round(place * (len(points) - 1) / (_MOST_NAMED - 1)) for place in range(_MOST_NAMED)}
    return [points[place] for place in sorted(places)]


def _size(cells: Cells, winner: Winner) -> float:
    return float(cells.values[winner.cell][cells.hue])


def _size_axis(ax: Axes, cells: Cells, lines: dict[str, list[Winner]]) -> None:
    sizes = sorted({_size(cells, winner) for winners in lines.values() for winner in winners})
    if sizes[0] > 0 and math.isfinite(sizes[-1]):
        value_axis(ax, sizes)
    ax.set_xlabel(clean(last(cells.hue)))


def _ids(lines: dict[str, list[Winner]]) -> tuple[str, ...]:
    found = [(w.chosen, w.confirmed) for winners in lines.values() for w in winners]
    return tuple(dict.fromkeys(identity for pair in found for identity in pair if identity))
