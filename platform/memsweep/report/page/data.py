"""What the page's script draws and shows, as JSON: findings with their points, trials, rankings and searches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from memsweep.gate import each_text
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.findings import Finding
from memsweep.report.analysis.summary import MOVES
from memsweep.report.charts.radius import choice_of, median_radius
from memsweep.report.charts.slopes import slope_charts
from memsweep.report.naming.numbers import figure, interval
from memsweep.report.page.answer import StudyAnswer
from memsweep.report.page.charts import Charts
from memsweep.report.page.compact import plain
from memsweep.report.page.trials import Trials
from memsweep.report.rows.verdicts import reasons

_POINTS = 550_000
"""Bytes of all findings; those beyond are in the tables and files alone."""


def page_data(contents: Contents, answer: StudyAnswer, trials: Trials, charts: Charts) -> str:
    """The data as text that stands in a script element: it holds no ``<``.

    Args:
        contents, answer, trials, charts: of the page.
    """
    content = {
        "kind": answer.kind,
        "study": contents.study.name,
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
        "bound": bool(finding.bound),
        "width": finding.width,
        "choice": choice_of(finding, labels, memories),
        "slopes": [*slope_charts(finding)],
        "reasons": reasons(finding, contents.study).split("; "),
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
