"""The charts that have room on a page, and those of which its figure shows what a reader chooses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.findings import BALLS
from memsweep.report.page.answer import Kind, first_ball
from memsweep.report.page.compact import plain
from memsweep.report.page.trials import Trials
from memsweep.report.values.chart import Chart, ChartSet

_FIGURE, _SECTIONS = 600_000, 250_000
"""Bytes of the charts of the figure, and of all others; those beyond are pictures beside the page alone."""
_POINTED = ("lines", "dots", "rings")
_ON_PAGE = ("learning-rates", "search-transfer", "search-front", "search-fields", "search-curves")
"""Sets that have a section of their own, whether the figure shows them or not."""


@dataclass(frozen=True)
class Charts:
    """The charts by the set that they belong to.

    Attributes:
        sets: name -> those that have room.
        left_out: how many have none.
        figure: sets that the figure of the answer shows.
        chosen: what it shows first: the words of a chart's choice.
    """

    sets: Mapping[str, Sequence[Chart]]
    left_out: int
    figure: Sequence[str]
    chosen: Mapping[str, str]


def charts_of(contents: Contents, kind: Kind | str, sets: Sequence[ChartSet], trials: Trials) -> Charts:
    """The charts of a page; its trials are numbered in the order in which charts name them."""
    known = {each.name: each for each in sets if each.paged and each.first(1)}
    figure = _figure(kind, contents, known)
    sections = [each for name, each in known.items() if not each.chosen or name in _ON_PAGE]
    shown, left_out = dict[str, list[Chart]](), 0
    for part, room in (([known[name] for name in figure], _FIGURE), (sections, _SECTIONS)):
        for each in part:
            if each.name in shown:
                continue
            for chart in each:
                numbered = _numbered(chart, trials)
                room -= len(json.dumps(plain(numbered)))
                if room < 0:
                    left_out += not each.extra
                    break
                shown.setdefault(each.name, []).append(numbered)
    choices = [chart["choice"] for name in figure for chart in shown.get(name, ()) if "choice" in chart]
    return Charts(shown, left_out, figure, _first(choices, contents))


def pictured(kind: Kind | str, contents: Contents, sets: Mapping[str, Any]) -> list[str]:
    """The sets that may show the answer, the best first: the page's figure has the charts of all of them."""
    if not isinstance(kind, Kind):
        return [kind] if kind in sets else []
    radius = [name for name in (f"radius-{ball}" for ball in BALLS) if name in sets]
    first = f"radius-{first_ball(contents.verdicts)}"
    radius.sort(key=lambda name: name != first)
    claims = ["claims"] if kind is Kind.CLAIMS or not radius else []
    return {
        Kind.SEARCH: [name for name in ("search-transfer", "search-fields") if name in sets][:1],
        Kind.LOSSES: ["learning-rates"] if contents.rates else ["tasks", "ranking"],
    }.get(kind, [name for name in claims if name in sets] or radius)


def _figure(kind: Kind | str, contents: Contents, sets: Mapping[str, ChartSet]) -> list[str]:
    # the charts of a section whose measure is the answer stand in the section
    names = pictured(kind, contents, sets) if isinstance(kind, Kind) else ["claims"]
    found = [name for name in names if name in sets]
    return [*found, *(f"{name}-others" for name in found if f"{name}-others" in sets)]


def _first(choices: Sequence[Mapping[str, str]], contents: Contents) -> Mapping[str, str]:
    """The first choice; of learning rates the largest size, of radii the axis that most verdicts were reached by."""
    if not choices:
        return {}
    if "against" in choices[0]:
        part = [f for f in contents.verdicts if f.ball == first_ball(contents.verdicts)]
        by_horizon = sum(finding.deciding[0] == "horizon" for finding in part)
        axis = "horizon" if 2 * by_horizon >= len(part) else "width"
        return next((each for each in choices if each["against"] == axis), choices[0])
    return choices[-1] if "shown" in choices[0] else choices[0]


def _numbered(chart: Chart, trials: Trials) -> Chart:
    """The chart with the numbers that trials have on the page in place of their identities."""
    found = dict(chart)
    for part in _POINTED:
        if part in chart:
            found[part] = [[name, [_point(point, trials) for point in points]] for name, points in chart[part]]
    if chart["kind"] == "rows":
        found["rows"] = [row | {"trial": _place(row.get("trial"), trials)} for row in chart["rows"]]
    if chart["kind"] == "cells":
        found["rows"] = [
            row | {"cells": [cell and [*cell[:2], _place(cell[2], trials), cell[3]] for cell in row["cells"]]}
            for row in chart["rows"]
        ]
    return found


def _point(point: Sequence[Any], trials: Trials) -> list[Any]:
    return [*point] if len(point) < 5 else [*point[:4], _place(point[4], trials), *point[5:]]


def _place(identity: Any, trials: Trials) -> int | None:
    return trials.place(str(identity)) if identity else None
