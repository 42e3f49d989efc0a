"""Curves that the page's script draws in its sections, as data: learning rates, training, gradients, the search."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from memsweep.config.schema.search import NONE, PBT
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.gradient_alignment import MEASURES, AlignmentRow, layer_name, varied
from memsweep.report.analysis.learning_rates.curves import RateStudy, rate_of
from memsweep.report.analysis.losses import CRITERIA, LossRow, largest
from memsweep.report.analysis.search.searched import Searched, on_front
from memsweep.report.analysis.search.winners import last_row
from memsweep.report.naming.cells import is_number, last
from memsweep.report.naming.labels import field_name, masked
from memsweep.report.naming.numbers import show
from memsweep.report.page.compact import plain
from memsweep.report.values.chart import Chart, chart, over_seeds, size_words, spread_point
from memsweep.report.values.section import BESIDE, MEASURED, TRAINING, Section
from memsweep.search.suggestions import SuggestionState

_BYTES = 250_000
"""Of all charts; those beyond are pictures beside the page alone."""
_CRITERION = CRITERIA[0]


@dataclass(frozen=True)
class Charts:
    """The charts by the section that they stand in, and how many have no room."""

    sections: Mapping[str, Sequence[Chart]]
    left_out: int


def charts_of(contents: Contents, sections: Sequence[Section]) -> Charts:
    """The charts of all parts of the page, those of the measures among them."""
    trained = [] if contents.verdicts or contents.rates else contents.losses
    parts: dict[str, Iterable[Chart]] = {
        **_of_place(sections, BESIDE),
        "learning-rates": _rates([*contents.rates, *contents.scanned]),
        "training": _training(trained, contents),
        **_of_place(sections, TRAINING),
        "alignment": _alignment(contents),
        "gradients": _gradients(contents),
        **_of_place(sections, MEASURED),
        "search": _search(contents.searched, contents) if contents.searched is not None else (),
    }
    room, left_out, shown = _BYTES, 0, dict[str, list[Chart]]()
    for name, charts in parts.items():
        for each in charts:
            room -= len(json.dumps(plain(each)))
            left_out += room < 0
            if room >= 0:
                shown.setdefault(name, []).append(each)
    return Charts(shown, left_out)


def _of_place(sections: Sequence[Section], place: str) -> dict[str, Sequence[Chart]]:
    """The charts of the measures' sections that stand there."""
    return {section.drawn: section.charts for section in sections if section.charts and section.place == place}


def _rates(studies: Iterable[RateStudy]) -> Iterator[Chart]:
    for study in studies:
        title = f"{study.memory}, {study.machine}"
        rows = [row for line in study.lines.values() for row in line]
        levels = {row.zero_loss: "L₀" for row in rows if row.zero_loss > 0}
        levels = {row.memoryless: "memoryless" for row in rows if row.memoryless > 0} | levels
        losses = {name: [spread_point(rate_of(row), row.loss) for row in line] for name, line in study.lines.items()}
        lost = [
            f"{name} at {show(rate_of(row))}: {row.diverged} of {row.seeds}"
            for name, line in study.lines.items()
            for row in line
            if row.diverged
        ]
        note = f"Seeds that diverged: {'; '.join(lost)}." if lost else ""
        yield chart(title, "learning rate", "test loss", "xy", losses, levels=[*levels.items()], note=note)
        slopes = {
            name: [spread_point(rate_of(row), row.spread(_CRITERION)) for row in line]
            for name, line in study.lines.items()
        }
        if any(point[1] > 0 for line in slopes.values() for point in line):
            yield chart(title, "learning rate", "max |gradient| / |weight|", "xy", slopes)


def _training(rows: Sequence[LossRow], contents: Contents) -> Iterator[Chart]:
    labels = contents.labels
    together: dict[tuple[Any, ...], dict[str, list[list[float]]]] = {}
    levels: dict[tuple[Any, ...], dict[float, str]] = {}
    for row in rows:
        part = contents.measured.of("history", row.identities)
        if not part.empty:
            key = (labels.memory(row.condition), row.width, row.horizon)
            lines = together.setdefault(key, {})
            lines[labels.machine(row.condition)] = over_seeds(part.groupby("step")["validation_loss"])
            if row.memoryless > 0:
                levels.setdefault(key, {})[row.memoryless] = "memoryless"
    for key, lines in together.items():
        title = ", ".join([key[0], *size_words(key[1], key[2], several=len(together) > 1)])
        yield chart(title, "training step", "validation loss", "y", lines, levels=[*levels.get(key, {}).items()])


def _alignment(contents: Contents) -> Iterator[Chart]:
    labels = contents.labels
    shown = {id(row) for row in largest([row.row for row in contents.alignment])}
    for row in contents.alignment:
        if id(row.row) in shown:
            title = ", ".join([*labels.names(row.condition), *size_words(row.row.width, row.row.horizon, several=True)])
            for measure in MEASURES:
                lines = {
                    layer_name(layer): over_seeds(row.table[row.table["layer"] == layer].groupby("step")[measure])
                    for layer in row.layers
                }
                yield _measure(title, "training step", measure, lines)
    for field in varied(contents.alignment):
        apart, groups = labels.without(field), dict[tuple[Any, ...], list[AlignmentRow]]()
        for row in sorted(contents.alignment, key=lambda row: float(row.condition[field] or 0)):
            rest = masked(row.condition, (field,))
            groups.setdefault((*rest.values(), row.row.width, row.row.horizon), []).append(row)
        for rows in (rows for rows in groups.values() if len(rows) > 1):
            title = ", ".join(apart.names(masked(rows[0].condition, (field,))))
            for measure in MEASURES:
                found: dict[str, list[Any]] = {}
                for row in rows:
                    for layer, measures in row.layers.items():
                        point = spread_point(float(row.condition[field]), measures[measure])
                        found.setdefault(layer_name(layer), []).append(point)
                yield _measure(title, field_name(field), measure, found)


def _measure(title: str, x: str, measure: str, lines: Mapping[str, Sequence[Any]]) -> Chart:
    log = "" if measure == "cosine" else "y"
    return chart(title, x, measure.replace("_", " "), log, lines, levels=[[1, "bptt"]])


def _gradients(contents: Contents) -> Iterator[Chart]:
    for row in largest(contents.trained):
        part = contents.measured.of("memory", row.identities)
        if not part["gradient"].notna().any():
            continue
        learned = part["learned"].abs()
        peak = learned.groupby([part["identity"], part["seed"]]).transform("max")
        share = part.assign(share=learned / peak.where(peak > 0))
        lines = {
            "gradient norm": over_seeds(part.groupby("lag")["gradient"]),
            "its bound": [point[:2] for point in over_seeds(part.groupby("lag")["gradient_bound"])],
            "memory function": over_seeds(share.groupby("lag")["share"]),
        }
        yield chart(", ".join(contents.labels.names(row.condition)), "lag (steps)", "share left", "y", lines)


def _search(searched: Searched, contents: Contents) -> Iterator[Chart]:
    cells, goals = searched.cells, [last(name) for name in searched.objectives]
    first = [winner for winner in searched.winners if winner.rank == 1]
    sizes = {cells.shade(winner.cell) for winner in first}
    if len(sizes) > 1 and all(map(is_number, sizes)):
        for place, goal in enumerate(goals):
            lines: dict[str, list[Any]] = {}
            fresh: dict[str, list[Any]] = {}
            for winner in sorted(first, key=lambda one: float(cells.shade(one.cell))):
                name, size, worth = cells.picture(winner.cell), cells.shade(winner.cell), winner.worth[place].values
                lines.setdefault(name, []).append([size, worth.search])
                if math.isfinite(worth.confirmed):
                    fresh.setdefault(name, []).append([size, worth.confirmed, worth.low, worth.high])
            words = "Line: in the search. Marks with bars: on fresh seeds, with their 95 % interval."
            yield chart("The winners", last(cells.hue), goal, "x", lines, dots=[*fresh.items()], note=words)
        for field in (path for path, domain in searched.history.space.items() if all(map(is_number, domain.values))):
            for place, goal in enumerate(goals):
                for picture, members in cells.pictures().items():
                    dots = {cells.shade_name(cell): _pairs(searched, cell, place, field) for cell in members}
                    yield chart(picture, last(field), goal, "x", {}, dots=[*dots.items()])
    for place, goal in enumerate(goals[1:], 1):
        for picture, members in cells.pictures().items():
            dots = {cells.shade_name(cell): _pairs(searched, cell, place) for cell in members}
            fronts = {
                cells.shade_name(cell): [
                    [one.values[0], one.values[place]]
                    for one in on_front(searched.of_cell(cell), searched.history.modes)
                    if one.values
                ]
                for cell in members
            }
            words = "The line joins the suggestions that no other surpasses in both."
            yield chart(picture, goals[0], goal, "", fronts, dots=[*dots.items()], note=words)
    yield from _stopped(searched, contents)


def _pairs(searched: Searched, cell: int, place: int, field: str = "") -> list[list[float]]:
    """One objective against a field (or the first objective), of what was trained whole."""
    return [
        [float(one.suggestion.values[field]) if field else one.values[0], one.values[place]]
        for one in searched.of_cell(cell)
        if one.state is SuggestionState.DONE and one.values and (not field or field in one.suggestion.values)
    ]


def _stopped(searched: Searched, contents: Contents) -> Iterator[Chart]:
    """Validation loss over the steps of every suggestion of a cell, where a scheduler stopped any."""
    if searched.history.scheduler in (NONE, PBT):
        return
    curves = {str(name): part for name, part in contents.study.tables["history"].groupby("identity")}
    for cell in range(len(searched.cells.values)):
        lines: dict[str, list[Any]] = {}
        best, stopped = searched.winner(cell), 0
        for member in searched.of_cell(cell):
            part: pd.DataFrame | None = curves.get(last_row(member))
            if part is not None:
                won = best is not None and best.member.suggestion.number == member.suggestion.number
                stopped += member.state is SuggestionState.STOPPED
                state = "the winner" if won else member.state.value
                points = [point[:2] for point in over_seeds(part.groupby("step")["validation_loss"])]
                lines[f"{state} (suggestion {member.suggestion.number})"] = points
        if lines:
            title = f"{searched.cells.name(cell)}: {stopped} of {len(lines)} stopped"
            yield chart(title, "optimizer steps", "validation loss", "y", lines, roles=True)
