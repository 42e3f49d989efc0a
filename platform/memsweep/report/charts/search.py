"""Charts of a search: winners by the size of a cell, the Pareto front, the objective by field, early stopping."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from memsweep.config.schema.search import MAX, NONE, PBT, Domain
from memsweep.report.analysis.search.importance import importances
from memsweep.report.analysis.search.searched import Searched
from memsweep.report.analysis.search.winners import Winner, last_row, on_front
from memsweep.report.naming.cells import last, settings_text
from memsweep.report.naming.numbers import figure, is_number
from memsweep.report.read.study import Study
from memsweep.report.values.chart import (
    MOST_BESIDE,
    ORDERED,
    ROLES,
    Chart,
    ChartSet,
    chart,
    over_seeds,
    parallel_chart,
    rows_chart,
    wide,
)
from memsweep.search.suggestions import SuggestionRecord, SuggestionState

_SHARE = (
    "Share of the variance of ranks within a cell that lies between thirds of a field's values, or between its "
    "choices, with a 95 % interval. It holds effects of single fields, not of two together. It is about the values "
    "that were suggested: a sampler that learns suggests few bad ones. Of"
)
_LINES = "A line for each suggestion that was trained to the end: the darker, the better in its cell."
_LOG = ("log_uniform", "log_int")
_FRESH = "Marks with bars: on fresh seeds, with their 95 % interval."
_BASIN = (
    "The winner of each cell; a bar reaches to the nearest suggestions on either side that are worse, beyond the 95 % "
    "interval of the winner on fresh seeds, or to the end of what was searched. The best value lies between. Bars that "
    "overlap do not show that it stays."
)


def search_sets(study: Study, searched: Searched) -> Iterator[ChartSet]:
    """The charts of a search, those of its answer first."""
    yield ChartSet("search-transfer", _transfer(searched), chosen=True, sectioned=True)
    yield ChartSet("search-importance", _importances(searched))
    yield ChartSet("search-parallel", _parallel(searched), columns=1)
    yield ChartSet("search-front", _fronts(searched))
    yield ChartSet("search-fields", _fields(searched), chosen=True, sectioned=True)
    yield ChartSet("search-curves", _curves(study, searched))


def _numeric(searched: Searched) -> list[str]:
    """The searched fields with a numeric domain, or with numbers to choose from."""
    return [path for path, domain in searched.history.space.items() if all(map(is_number, domain.values))]


def _ends(searched: Searched, field: str) -> tuple[list[float], bool]:
    """The ends of a searched field's axis, over its whole domain, and whether it is logarithmic."""
    domain = searched.history.space[field]
    ends = [float(value) for value in domain.values] or [float(domain.low), float(domain.high)]
    low, high = min(ends), max(ends)
    if domain.kind in _LOG or (domain.values and wide(ends)):
        room = (high / low) ** 0.03 if high > low else 1.5
        return [low / room, high * room], True
    room = 0.03 * (high - low) or 0.5
    return [low - room, high + room], False


def _transfer(searched: Searched) -> Iterator[Chart]:
    """The winners' searched numbers, and their values, against the width (or what sizes the cells)."""
    cells = searched.cells
    first = [winner for winner in searched.winners if winner.rank == 1]
    sizes = [cells.shade(winner.cell) for winner in first]
    if len(set(sizes)) < 2 or not all(map(is_number, sizes)):
        return
    lines: dict[str, list[Winner]] = {}
    for winner in sorted(first, key=lambda winner: float(cells.shade(winner.cell))):
        lines.setdefault(cells.picture(winner.cell), []).append(winner)
    size = last(cells.hue)
    for field in _numeric(searched):
        limits, log = _ends(searched, field)
        dots = {name: [_best(searched, one, field) for one in line] for name, line in lines.items()}
        paths = {name: [point[:2] for point in points] for name, points in dots.items()}
        words = {"note": _BASIN, "choice": {"searched": last(field)}}
        more: dict[str, Any] = {"dots": [*map(list, dots.items())], "limits": {"y": limits}, **words}
        title = f"best {last(field)} against {size}"
        yield chart(title, size, f"best {last(field)}", "xy" if log else "x", paths, **more)
    for place, goal in enumerate(searched.objectives):
        yield _worth(lines, place, goal.replace("_", " "), searched)


def _best(searched: Searched, winner: Winner, field: str) -> list[Any]:
    value = float(winner.member.suggestion.values.get(field, math.nan))
    ends = searched.bracket(winner, field) if math.isfinite(value) else (value, value)
    said = [winner.settings]
    said += [
        f"{name} {worth.values.search:.3g} in the search, {worth.values.confirmed:.3g} on fresh seeds"
        for name, worth in zip(searched.objectives, winner.worth, strict=True)
    ]
    size = float(searched.cells.shade(winner.cell))
    return [size, value, *ends, winner.confirmed or winner.chosen, "\n".join(said)]


def _worth(lines: Mapping[str, Sequence[Winner]], place: int, goal: str, searched: Searched) -> Chart:
    def at(winner: Winner) -> float:
        return float(searched.cells.shade(winner.cell))

    found = {name: [(at(one), one.worth[place].values) for one in line] for name, line in lines.items()}
    paths = {name: [[x, worth.search] for x, worth in line] for name, line in found.items()}
    fresh = [
        [name, [[x, w.confirmed, w.low, w.high] for x, w in line if math.isfinite(w.confirmed)]]
        for name, line in found.items()
    ]
    values = [number for line in found.values() for _, worth in line for number in (worth.search, worth.confirmed)]
    log = "xy" if wide(values) else "x"
    size = last(searched.cells.hue)
    words = f"Line: in the search. {_FRESH}"
    return chart(f"{goal} of the winners against {size}", size, goal, log, paths, dots=fresh, note=words)


def _importances(searched: Searched) -> Iterator[Chart]:
    """A row for each field of a search of several: the share of an objective that it explains."""
    for place, objective in enumerate(searched.objectives):
        found = importances(searched, place)
        rows = [
            {"name": last(one.field), "middle": one.share, "low": one.low, "high": one.high, "trial": None}
            | {"text": f"{one.share:.2f} [{one.low:.2f}, {one.high:.2f}]"}
            for one in found
        ]
        if rows:
            words = "; ".join(f"{row['name']} {row['text']}" for row in rows)
            more: dict[str, Any] = {
                "note": f"{_SHARE} {found[0].suggestions} suggestions.",
                "limits": {"x": [0.0, 1.0]},
            }
            title = f"share of {objective.replace('_', ' ')} that each field explains"
            yield rows_chart(title, "share", rows, words=f"{title}: {words}.", **more)


def _parallel(searched: Searched) -> Iterator[Chart]:
    """A line for each suggestion across all searched fields, dark where its first objective is good in its cell."""
    space, name = searched.history.space, searched.objectives[0].replace("_", " ")
    if len(space) < 2:
        return
    sign = -1.0 if searched.history.modes[0] == MAX else 1.0
    for picture, cells in searched.cells.pictures().items():
        lines = list[Any]()
        for cell in cells:
            done = [m for m in searched.of_cell(cell) if m.state is SuggestionState.DONE and m.values]
            done.sort(key=lambda m: sign * (m.values or (math.nan,))[0], reverse=True)
            for place, one in enumerate(done):
                values = [_along_axis(domain, one.suggestion.values.get(field)) for field, domain in space.items()]
                said = f"{_named(one)}; {name} {(one.values or (math.nan,))[0]:.3g}"
                lines.append([(place + 1) / len(done), values, last_row(one), said])
        axes = [[last(field), *_ends_of(domain)] for field, domain in space.items()]
        if len(lines) > 1:
            words = f"{picture}: {len(lines)} suggestions across {', '.join(axis[0] for axis in axes)}."
            yield parallel_chart(picture, axes, sorted(lines, key=lambda line: line[0]), note=_LINES, words=words)


def _along_axis(domain: Domain, value: Any) -> float | None:
    """The place of a value between the ends of its field, in [0, 1]; None where a suggestion has none."""
    if value is None:
        return None
    if not domain.is_numeric:
        names = [*map(str, domain.values)]
        return names.index(str(value)) / max(1, len(names) - 1)
    low, high = float(domain.low), float(domain.high)
    if domain.kind in _LOG:
        return math.log(float(value) / low) / math.log(high / low) if high > low else 0.5
    return (float(value) - low) / (high - low) if high > low else 0.5


def _ends_of(domain: Domain) -> list[str]:
    ends = (domain.low, domain.high) if domain.is_numeric else (domain.values[0], domain.values[-1])
    return [figure(float(end), 2) if is_number(end) else str(end) for end in ends]


def _fronts(searched: Searched) -> Iterator[Chart]:
    """Of a search for two objectives or more, each against the first: all that finished, and the front's line."""
    first, *others = [name.replace("_", " ") for name in searched.objectives]
    for picture, cells in searched.cells.pictures().items():
        for other, label in enumerate(others, 1):
            fronts = {
                searched.cells.shade_name(cell): [
                    [one.values[0], one.values[other]]
                    for one in on_front(searched.of_cell(cell), searched.history.modes)
                    if one.values
                ]
                for cell in cells
            }
            dots = [[searched.cells.shade_name(cell), [*_points(searched, cell, (0, other))]] for cell in cells]
            log = "".join(
                axis for axis, at in (("x", 0), ("y", 1)) if wide(point[at] for _, points in dots for point in points)
            )
            note = "The line joins the suggestions that no other surpasses in both. Rings: winners on fresh seeds."
            more: dict[str, Any] = {"dots": dots, "rings": [*_confirmed(searched, cells, other)], "note": note}
            yield chart(picture, first, label, log, fronts, look=_look(searched), **more)


def _confirmed(searched: Searched, cells: Sequence[int], other: int) -> Iterator[list[Any]]:
    """The winners' values on fresh seeds."""
    for cell in cells:
        won = [winner for winner in searched.winners if winner.cell == cell]
        worth = [(w.worth[0].values.confirmed, w.worth[other].values.confirmed, w.confirmed or w.chosen) for w in won]
        known = [(x, y, trial) for x, y, trial in worth if math.isfinite(x) and math.isfinite(y)]
        points = [[x, y, None, None, trial, "a winner, on fresh seeds"] for x, y, trial in known]
        yield [searched.cells.shade_name(cell), points]


def _fields(searched: Searched) -> Iterator[Chart]:
    """The objective of every suggestion against each searched number; the winners stand out."""
    pictures = searched.cells.pictures()
    for field in _numeric(searched):
        for place, objective in enumerate(searched.objectives):
            for picture, cells in pictures.items():
                choice = {"searched": last(field), "objective": objective.replace("_", " ")}
                choice |= {"cells": picture} if len(pictures) > MOST_BESIDE else {}
                yield _field(searched, field, (place, choice["objective"]), (picture, cells), choice)


def _field(
    searched: Searched, field: str, goal: tuple[int, str], part: tuple[str, Sequence[int]], choice: Mapping[str, str]
) -> Chart:
    (place, label), (picture, cells) = goal, part
    limits, log = _ends(searched, field)
    dots, marks, lost, rings = list[Any](), list[Any](), list[Any](), list[Any]()
    for cell in cells:
        name = searched.cells.shade_name(cell)
        dots.append([name, [*_points(searched, cell, (field, place))]])
        members = [one for one in searched.of_cell(cell) if field in one.suggestion.values]
        ended = [one for one in members if one.state is not SuggestionState.DONE and one.values]
        marks.append([name, [[_at(one, field), one.values[place], 0] for one in ended if one.values]])
        lost.append([name, [[_at(one, field), ""] for one in members if one.state is SuggestionState.DIVERGED]])
        for winner in (one for one in searched.winners if one.cell == cell and one.rank == 1):
            if field in winner.member.suggestion.values:
                at, worth, trial = (
                    _at(winner.member, field),
                    winner.worth[place].values,
                    winner.confirmed or winner.chosen,
                )
                rings.append([name, [[at, worth.search, None, None, trial, f"the winner: {_named(winner.member)}"]]])
                fresh = [at, worth.confirmed, worth.low, worth.high, trial, "the winner, on fresh seeds"]
                dots.append([name, [fresh] if math.isfinite(worth.confirmed) else []])
    axes = ("x" if log else "") + ("y" if wide(point[1] for _, points in dots for point in points) else "")
    more: dict[str, Any] = {"dots": dots, "seeds": marks, "lost": lost, "rings": rings, "limits": {"x": limits}}
    more |= {"note": _told(searched), "look": _look(searched), "choice": choice}
    return chart(picture, last(field), label, axes, {}, **more)


def _points(searched: Searched, cell: int, at: tuple[str | int, int]) -> Iterator[list[Any]]:
    """What was trained to the end: an objective against a field or another objective."""
    across, up = at
    for one in searched.of_cell(cell):
        if one.state is SuggestionState.DONE and one.values:
            x = one.values[across] if isinstance(across, int) else one.suggestion.values.get(across)
            if x is not None:
                yield [float(x), one.values[up], None, None, last_row(one), _named(one)]


def _told(searched: Searched) -> str:
    early = sum(m.state is not SuggestionState.DONE and m.values is not None for m in searched.history.suggestions)
    said = f" Hollow ({early}): not trained to the end." if early else ""
    return f"Every suggestion by its median over the seeds of the search.{said} The ring is the winner. {_FRESH}"


def _at(member: SuggestionRecord, field: str) -> float:
    return float(member.suggestion.values[field])


def _named(member: SuggestionRecord) -> str:
    return f"suggestion {member.suggestion.number}: {settings_text(member.suggestion.values)}"


def _look(searched: Searched) -> str:
    shades = [searched.cells.shade(cell) for cell in range(len(searched.cells.values))]
    return ORDERED if all(map(is_number, shades)) else ""


def _curves(study: Study, searched: Searched) -> Iterator[Chart]:
    """Validation loss over the steps of every suggestion of a cell, where a scheduler stopped any."""
    if searched.history.scheduler in (NONE, PBT):
        return
    curves = {str(name): part for name, part in study.tables["history"].groupby("identity")}
    for cell in range(len(searched.cells.values)):
        lines, stopped = dict[str, list[Any]](), 0
        for member in searched.of_cell(cell):
            part: pd.DataFrame | None = curves.get(last_row(member))
            if part is not None:
                stopped += member.state is SuggestionState.STOPPED
                points = [point[:2] for point in over_seeds(part.groupby("step")["validation_loss"])]
                lines[f"{_state(searched, cell, member)} (suggestion {member.suggestion.number})"] = points
        if lines:
            title = f"{searched.cells.name(cell)}: {stopped} of {len(lines)} stopped"
            log = "y" if wide(y for points in lines.values() for _, y in points) else ""
            yield chart(title, "optimizer steps", "validation loss", log, lines, look=ROLES)


def _state(searched: Searched, cell: int, member: SuggestionRecord) -> str:
    best = searched.winner(cell)
    won = best is not None and best.member.suggestion.number == member.suggestion.number
    return "the winner" if won else member.state.value
