"""The data that the page's script draws and shows, as JSON, as much as has room: findings, charts, trials."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memsweep.gate import each_text
from memsweep.report.analysis.contents import BALLS, Contents, Finding
from memsweep.report.charts.curves import trial_charts
from memsweep.report.charts.radius import choice_of, median_radius, slope_charts
from memsweep.report.headline.answer import Kind, StudyAnswer
from memsweep.report.headline.stability import first_ball
from memsweep.report.naming.numbers import figure, interval, show
from memsweep.report.read.fields import fields_of
from memsweep.report.rows.verdicts import MOVES, reasons, waits
from memsweep.report.values.chart import Chart, ChartSet, says_something
from memsweep.report.values.section import Rank, figured, sections_of


def plain(value: Any) -> Any:
    """A value as JSON holds it: four digits, null for what is not known, ``inf`` as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(each) for each in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        short = float(f"{value:.4g}")
        return int(short) if short.is_integer() and abs(short) < 1e15 else short
    return value


_TRIALS = 640_000
"""Of all trials; those beyond are files beside the page alone."""
_FROM = ("code_revision", "code_fingerprint", "host", "device")


class Trials:
    """Collects the trials that figures and tables point to, in the order in which they are asked for."""

    def __init__(self, contents: Contents) -> None:
        self._study, self._records = contents.study, contents.study.records
        self._fields = {identity: fields_of(record["config"]) for identity, record in self._records.items()}
        paths = dict.fromkeys(path for fields in self._fields.values() for path in fields)
        values = {path: {str(fields.get(path)) for fields in self._fields.values()} for path in paths}
        self._common = {path for path, different in values.items() if len(different) == 1}
        self._places: dict[str, int] = {}

    def place(self, identity: str) -> int | None:
        """The number of a trial on the page; None for a trial without a result."""
        if identity not in self._records:
            return None
        return self._places.setdefault(identity, len(self._places))

    def content(self) -> dict[str, Any]:
        """``trials`` by their numbers (null where there was no room), and what they share."""
        for identity in self._records:  # the remaining ones: tables name them
            self.place(identity)
        room, sources, trials = _TRIALS, dict[str, int](), list[Any]()
        for identity in self._places:
            one = plain(self._trial(identity, sources)) if room > 0 else None
            room -= len(json.dumps(one))
            trials.append(one if room > 0 else None)
        first = next(iter(self._fields.values()), {})
        return {
            "trials": trials,
            "without_room": trials.count(None),
            "common": {path: show(first.get(path)) for path in sorted(self._common)},
            "sources": [json.loads(text) for text in sources],
        }

    def _trial(self, identity: str, sources: dict[str, int]) -> dict[str, Any]:
        record = self._records[identity]
        about = record["provenance"]
        source = {name: str(about[name]) for name in _FROM if about.get(name)}
        source["versions"] = ", ".join(f"{name} {one}" for name, one in (about.get("versions") or {}).items())
        fields = self._fields[identity]
        return {
            "id": identity,
            "fields": {path: show(fields[path]) for path in fields if path not in self._common},
            "seeds": self._seeds(identity),
            "charts": [*trial_charts(self._study, identity)],
            "source": sources.setdefault(json.dumps(source), len(sources)),
            "finished": str(about.get("finished", "")),
        }

    def _seeds(self, identity: str) -> list[list[Any]]:
        return [
            [row["seed"], str(row["outcome"]).replace("_", " "), _loss(row), row["test_metric"], row["best_step"]]
            for row in self._study.of("replicas", [identity]).to_dict("records")
        ]


def _loss(row: Mapping[Any, Any]) -> float:
    loss = float(row["error"])
    return float(row["validation_loss"]) if math.isnan(loss) else loss


_FIGURE, _SECTIONS = 600_000, 250_000
"""Bytes of the charts of the figure, and of all others; those beyond are pictures beside the page alone."""
_POINTED = ("lines", "dots", "rings")


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


def charts_of(contents: Contents, answer: StudyAnswer, sets: Sequence[ChartSet], trials: Trials) -> Charts:
    """The charts of a page; its trials are numbered in the order in which charts name them."""
    known = {each.name: each for each in sets if each.paged and each.first(1)}
    figure = _figure(answer, contents, known)
    sections = [each for name, each in known.items() if not each.chosen or each.sectioned]
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


def pictured(answer: StudyAnswer, contents: Contents, sets: Mapping[str, Any]) -> list[str]:
    """The sets that may show the answer, the best first: the page's figure has the charts of all of them."""
    if answer.rank is Rank.ALONE:
        return [answer.kind] if answer.kind in sets else []
    sections = sections_of(contents)
    radius = [name for name in (f"radius-{ball}" for ball in BALLS) if name in sets]
    first = f"radius-{first_ball(contents.verdicts)}"
    radius.sort(key=lambda name: name != first)
    tested = figured(sections, Rank.TESTED) if answer.rank is Rank.TESTED or not radius else []
    known: dict[Kind | str, list[str]] = {
        Kind.SEARCH: [name for name in ("search-transfer", "search-fields") if name in sets][:1],
        Kind.LOSSES: figured(sections, Rank.INSTEAD) or ["tasks", "ranking"],
    }
    return known.get(answer.kind, [name for name in tested if name in sets] or radius)


def _figure(answer: StudyAnswer, contents: Contents, sets: Mapping[str, ChartSet]) -> list[str]:
    # the charts of a section whose measure is the answer stand in the section
    alone = answer.rank is Rank.ALONE
    names = figured(sections_of(contents), Rank.TESTED) if alone else pictured(answer, contents, sets)
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
    if chart["kind"] == "parallel":
        found["across"] = [[*line[:2], _place(line[2], trials), line[3]] for line in chart["across"]]
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


_POINTS = 550_000
"""Bytes of all findings; those beyond are in the tables and files alone."""


def page_data(contents: Contents, answer: StudyAnswer, trials: Trials, charts: Charts, records: str = "") -> str:
    """The data as text that stands in a script element: it holds no ``<``.

    Args:
        contents, answer, trials, charts: of the page.
        records: the way from it to the records of the trials; empty: there is none.
    """
    content = {
        "kind": answer.kind,
        "study": contents.study.name,
        "records": records,
        "runs_page": contents.study.runs_page,
        "thresholds": contents.criteria.thresholds,
        "balls": {finding.ball: MOVES[finding.ball] for finding in contents.verdicts},
        "findings": (shown := _findings(contents, trials)),
        "unshown": len(contents.verdicts) - len(shown),
        "charts": charts.sets,
        "figure": charts.figure,
        "chosen": charts.chosen,
        "charts_left_out": charts.left_out,
        **trials.content(),
    }
    text = json.dumps(each_text(plain(content)), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _findings(contents: Contents, trials: Trials) -> list[Any]:
    """Those that have room, in their order: of many, with the points of their slopes alone."""
    whole = _with_room(_finding(finding, contents, trials, whole=True) for finding in contents.verdicts)
    if len(whole) == len(contents.verdicts):
        return whole
    return _with_room(_finding(finding, contents, trials, whole=False) for finding in contents.verdicts)


def _with_room(findings: Iterator[Any]) -> list[Any]:
    """The first ones, as many as have room; none is made beyond that."""
    room, found = _POINTS, []
    for finding in map(plain, findings):
        room -= len(json.dumps(finding))
        if room < 0:
            break
        found.append(finding)
    return found


def _finding(finding: Finding, contents: Contents, trials: Trials, *, whole: bool) -> dict[str, Any]:
    judgement, labels = finding.judgement, contents.labels
    memories = len({labels.memory(each.condition) for each in contents.verdicts if each.ball == finding.ball})
    return {
        "memory": labels.memory(finding.condition),
        "machine": labels.machine(finding.condition),
        "ball": finding.ball,
        "verdict": judgement.verdict.value,
        "marked": finding.marked,
        "width": finding.width,
        "choice": choice_of(finding, labels, memories),
        "slopes": [*filter(says_something, slope_charts(finding))],
        "reasons": reasons(finding, contents.study, waits=waits(contents.study)).split("; "),
        "points": [*_points(finding, trials, whole=whole)],
    }


def _points(finding: Finding, trials: Trials, *, whole: bool) -> Iterator[list[Any]]:
    """``[width, horizon, trial, seeds, valid seeds, [[median, low, high, censored, text] of each threshold]]``."""
    columns = {name: finding.radii[name].to_numpy() for name in _OF_A_POINT}
    thresholds = np.unique(columns["threshold"])
    for width, horizon in sorted(set(zip(columns["width"], columns["horizon"], strict=True))):
        if not whole and width != finding.width and horizon != finding.horizon:
            continue
        here = (columns["width"] == width) & (columns["horizon"] == horizon)
        each = [here & (columns["threshold"] == threshold) for threshold in thresholds]
        at = [_radius(columns["radius"][rows], columns["censored"][rows]) for rows in each & columns["valid"]]
        one, place = each[0], trials.place(columns["identity"][here][0])
        yield [width, horizon, place, one.sum(), (one & columns["valid"]).sum(), at]


_OF_A_POINT = ("width", "horizon", "threshold", "radius", "censored", "valid", "identity")


def _radius(radii: np.ndarray, at: np.ndarray) -> list[Any] | None:
    """Of the valid seeds: their radii, and how those are censored."""
    if not radii.size:
        return None
    median, edge, censored = median_radius(radii, at)
    value, low, high = edge if censored else median, float(radii.min()), float(radii.max())
    text = interval(value, low, high) if low < high else figure(value)
    return [value, low, high, censored, text]
