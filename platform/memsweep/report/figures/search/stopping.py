"""Panels of training in a search: learning curves with the places where the scheduler stopped them, and populations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memsweep.config.schema.search import NONE, PBT
from memsweep.report.analysis.search.searched import Searched
from memsweep.report.analysis.search.winners import last_row
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.figures.search.suggestions import WIDTH, field_scale, numeric_fields, value_scale
from memsweep.report.naming.cells import ALL_CELLS, last
from memsweep.report.naming.numbers import clean
from memsweep.report.read.study import Study
from memsweep.report.style import INK, MUTED, LineStyle, category_styles
from memsweep.search.suggestions import SearchTrial, SuggestionRecord, SuggestionState

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WINNER, _DONE, _STOPPED = "the winner", "trained to the end", "stopped there"


def curve_gallery(study: Study, searched: Searched, name: str) -> Gallery:
    """Validation loss over the steps of every suggestion of a cell, where a scheduler stopped any."""
    if searched.history.scheduler in (NONE, PBT) or "identity" not in study.tables["history"]:
        return Gallery(name=name, panels=())
    panels = []
    curves = _curves(study.tables["history"])
    styles = _roles()
    for cell in range(len(searched.cells.values)):
        members = [m for m in searched.of_cell(cell) if (row := last_row(m, cell)) and row.identity in curves]
        if members:
            panels.append(_curve_panel(searched, cell, members, curves, styles))
    return Gallery(name=name, panels=tuple(panels), legend=tuple(styles.items()), columns=2)


def population_gallery(searched: Searched, name: str) -> Gallery:
    """Of a population: each searched number of every member over the steps, with who took over from whom."""
    if searched.history.scheduler != PBT:
        return Gallery(name=name, panels=())
    panels = [
        _population(searched, cell, field)
        for cell in range(1 if searched.shared else len(searched.cells.values))
        for field in numeric_fields(searched)
        if searched.of_cell(cell)
    ]
    return Gallery(name=name, panels=tuple(panels), columns=2)


def _roles() -> dict[str, LineStyle]:
    done, winner = (category_styles(["", _DONE])[_DONE].color, category_styles([_WINNER])[_WINNER].color)
    return {
        _WINNER: LineStyle(winner, "o", "-"),
        _DONE: LineStyle(done, "s", "-"),
        _STOPPED: LineStyle("#9aa3ad", "x", "-"),
    }


def _curves(history: pd.DataFrame) -> dict[str, pd.Series]:
    """identity -> median validation loss over the seeds, by step."""
    middle = history.groupby(["identity", "step"], sort=True)["validation_loss"].median()
    return {str(identity): part.droplevel("identity") for identity, part in middle.groupby(level="identity")}


def _curve_panel(
    searched: Searched,
    cell: int,
    members: Sequence[SuggestionRecord],
    curves: Mapping[str, pd.Series],
    styles: Mapping[str, LineStyle],
) -> Panel:
    rows = {m.suggestion.number: row for m in members if (row := last_row(m, cell)) is not None}
    stopped = sum(member.state is SuggestionState.STOPPED for member in members)
    best = searched.winner(cell)

    def draw(ax: Axes) -> None:
        drawn: list[float] = []
        for member in members:
            curve = curves[rows[member.suggestion.number].identity]
            won = best is not None and best.member.suggestion.number == member.suggestion.number
            role = _WINNER if won else _STOPPED if member.state is SuggestionState.STOPPED else _DONE
            style = styles[role]
            known = np.where(np.isfinite(curve.to_numpy(float)), curve.to_numpy(float), np.nan)
            steps = curve.index.to_numpy(float)
            thin: dict[str, Any] = {"linewidth": 1.6 if won else 0.8, "zorder": 4 if won else 2}
            ax.plot(steps, known, color=style.color, alpha=1.0 if won else 0.7, **thin)
            ax.plot(steps[-1:], known[-1:], marker=style.marker, color=style.color, markersize=4, linestyle="none")
            drawn += known[np.isfinite(known)].tolist()
        value_scale(ax, drawn)
        ax.set_xlim(0, searched.history.steps * 1.03)
        ax.set_xlabel("optimizer steps")
        ax.set_ylabel("validation loss")

    return Panel(
        group="Learning curves",
        title=f"{searched.cells.name(cell)}: {stopped} of {len(members)} stopped",
        description=f"Validation loss of every suggestion over the steps, {searched.cells.name(cell)}.",
        draw=draw,
        identities=tuple(row.identity for row in rows.values()),
        width=WIDTH,
    )


def _population(searched: Searched, cell: int, field: str) -> Panel:
    members = searched.of_cell(cell)
    stretches = {row.identity: (m, row) for m in members for row in m.trials if row.cell == cell and not row.rank}
    best = searched.winner(cell)
    line = lineage(stretches, best.chosen) if best is not None else []

    def draw(ax: Axes) -> None:
        for identity, (member, row) in stretches.items():
            value, before = _setting(searched, row, member, field), stretches.get(row.after)
            start, end = (before[1].until if before else 0), row.until or searched.history.steps
            of_winner = identity in line
            style: dict[str, Any] = {"color": INK if of_winner else MUTED, "linewidth": 1.8 if of_winner else 0.8}
            style |= {"alpha": 1.0 if of_winner else 0.6, "zorder": 4 if of_winner else 2}
            ax.plot([start, end], [value, value], **style)
            if before is not None:
                earlier = _setting(searched, before[1], before[0], field)
                taken = before[0].suggestion.number != member.suggestion.number
                ax.plot([start, start], [earlier, value], **{**style, "linestyle": ":" if taken else "-"})
        field_scale(ax, searched, field, "y")
        ax.set_xlim(0, searched.history.steps * 1.02)
        ax.set_xlabel("optimizer steps")
        ax.set_ylabel(clean(last(field)))

    where = ALL_CELLS if searched.shared else searched.cells.name(cell)
    return Panel(
        group="Settings of a population",
        title=f"{where}: {last(field)} ({len(members)} members)",
        description=f"{last(field)} of every member over the steps, {where}; the winner stands out.",
        draw=draw,
        identities=tuple(stretches),
        width=WIDTH,
    )


def lineage(stretches: Mapping[str, tuple[SuggestionRecord, SearchTrial]], end: str) -> list[str]:
    """The identities of the stretches that led to one, the first one first."""
    line: list[str] = []
    while end in stretches and end not in line:
        line.append(end)
        end = stretches[end][1].after
    return line[::-1]


def _setting(searched: Searched, row: SearchTrial, member: SuggestionRecord, field: str) -> float:
    value = searched.settings.get(row.identity, {}).get(field, member.suggestion.values.get(field))
    return math.nan if value is None else float(value)
