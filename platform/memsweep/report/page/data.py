"""What the page's script draws and shows, as JSON: findings with their points, trials, rankings and searches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from memsweep.gate import each_text
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.findings import Finding
from memsweep.report.analysis.learning_rates.curves import rate_of
from memsweep.report.analysis.losses import LossRow, by_accuracy, largest, ranked
from memsweep.report.analysis.search.searched import Searched
from memsweep.report.analysis.search.winners import last_row
from memsweep.report.analysis.summary import MOVES
from memsweep.report.figures.radius import deciding_threshold, median_radius
from memsweep.report.naming.cells import is_number, last, settings_text
from memsweep.report.naming.numbers import figure, interval, show, slope_text
from memsweep.report.page.answer import StudyAnswer, first_ball
from memsweep.report.page.charts import Charts
from memsweep.report.page.compact import plain
from memsweep.report.page.trials import Trials
from memsweep.report.rows.claims import conclusion, contradicted
from memsweep.report.rows.verdicts import reasons
from memsweep.stability.verdict.trend import Slope

_POINTS = 550_000
"""Bytes of all findings; those beyond are in the tables and files alone."""
_DOTS = 3000  # suggestions in the figure of a search


def page_data(contents: Contents, answer: StudyAnswer, trials: Trials, charts: Charts, *, across: bool) -> str:
    """The data as text that stands in a script element: it holds no ``<``.

    Args:
        contents, answer, trials, charts: of the page.
        across: the page shows all models by task.
    """
    content = {
        "kind": answer.kind,
        "study": contents.study.name,
        "runs_page": contents.study.runs_page,
        "limit": contents.criteria.slope_limit,
        "thresholds": contents.criteria.thresholds,
        "balls": {finding.ball: MOVES[finding.ball] for finding in contents.verdicts},
        "ball": first_ball(contents.verdicts),
        "shown": deciding_threshold([f for f in contents.verdicts if f.ball == first_ball(contents.verdicts)]),
        "findings": (shown := _findings(contents, trials)),
        "unshown": len(contents.verdicts) - len(shown),
        "ranking": _ranking(contents, trials),
        "rates": _rates(contents, trials),
        "across": across,
        "search": _search(contents.searched, trials) if contents.searched is not None else None,
        "claims": _claims(contents.compared),
        "charts": charts.sections,
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
    axis, _ = finding.deciding
    return {
        "memory": labels.memory(finding.condition),
        "machine": labels.machine(finding.condition),
        "ball": finding.ball,
        "verdict": judgement.verdict.value,
        "bound": bool(finding.bound),
        "threshold": judgement.threshold,
        "width": finding.width,
        "horizon": finding.horizon,
        "axis": axis,
        "slopes": [
            [_ends(trends.horizon.limit), _ends(trends.along_width), _ends(trends.horizon.over_range)]
            for trends in judgement.by_threshold.values()
        ],
        "reasons": reasons(finding, contents.study).split("; "),
        "points": [*_points(finding, trials, whole=whole)],
    }


def _ends(slope: Slope) -> tuple[float, float, float, str] | None:
    return (slope.estimate, slope.low, slope.high, slope_text(slope)) if slope.available else None


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


def _ranking(contents: Contents, trials: Trials) -> list[dict[str, Any]]:
    """The losses of each condition at its largest size, seed by seed: memory by memory, the best first."""
    labels = contents.labels
    memories = list(dict.fromkeys(labels.memory(row.condition) for row in contents.losses))
    rows = sorted(ranked(largest(contents.losses)), key=lambda row: memories.index(labels.memory(row.condition)))
    return [
        {
            "memory": labels.memory(row.condition),
            "machine": labels.machine(row.condition),
            "metric": row.metric.replace("_", " ") if by_accuracy(row) else "test loss",
            "values": [*_values(row)],
            "removed": row.removed,
            "trial": trials.place(row.identities[0]),
        }
        for row in rows
    ]


def _rates(contents: Contents, trials: Trials) -> list[dict[str, Any]]:
    """The test loss against the learning rate, line by line: a figure for each memory, model and size."""
    return [
        {
            "name": f"{study.memory}, {study.machine}",
            "lines": {
                line: [
                    {"rate": rate_of(row), "loss": [row.loss.middle, row.loss.low, row.loss.high]}
                    | {"diverged": row.diverged, "seeds": row.seeds, "trial": trials.place(row.identities[0])}
                    for row in rows
                ]
                for line, rows in study.lines.items()
            },
        }
        for study in contents.rates
    ]


def _values(row: LossRow) -> Iterator[float]:
    yield from row.column("test_metric").to_numpy(float) if by_accuracy(row) else row.losses


def _search(searched: Searched, trials: Trials) -> dict[str, Any]:
    """Winners by cell, and every suggestion that was trained to its end."""
    cells, history = searched.cells, searched.history
    fields = [name for name, domain in history.space.items() if _numeric(searched, name)]
    goals = [last(name) for name in history.objective]

    def about(cell: int) -> dict[str, Any]:
        return {"line": cells.picture(cell), "size": cells.shade(cell) if is_number(cells.shade(cell)) else None}

    winners = [
        {
            **about(winner.cell),
            "settings": settings_text(winner.member.suggestion.values),
            "values": [winner.member.suggestion.values.get(field) for field in fields],
            "basin": [searched.basin(winner, field) for field in fields],
            "search": [one.values.search for one in winner.worth],
            "fresh": [[one.values.confirmed, one.values.low, one.values.high] for one in winner.worth],
            "trial": trials.place(winner.confirmed or winner.chosen),
        }
        for winner in searched.winners
        if winner.rank == 1
    ]
    ended = [member for member in history.suggestions if member.values is not None and member.trials]
    dots = [
        {
            **about(member.cell),
            "values": [member.suggestion.values.get(field) for field in fields],
            "search": member.values,
            "state": member.state.value,
            "trial": trials.place(last_row(member)),
        }
        for member in ended[:_DOTS]
    ]
    return {
        "fields": [last(field) for field in fields],
        "log": [history.space[field].kind.startswith("log") or _spread(searched, field) for field in fields],
        "objectives": goals,
        "size": last(cells.hue) if cells.hue else "",
        "winners": winners,
        "dots": dots,
        "left_out": max(len(ended) - _DOTS, 0),
    }


def _numeric(searched: Searched, field: str) -> bool:
    return all(is_number(member.suggestion.values.get(field, 0)) for member in searched.history.suggestions)


def _spread(searched: Searched, field: str) -> bool:
    values = [float(member.suggestion.values.get(field, 0)) for member in searched.history.suggestions]
    return bool(values) and min(values) > 0 and max(values) > 8 * min(values)


def _claims(compared: pd.DataFrame) -> list[dict[str, Any]]:
    """The tested pairs of cells, with effect and interval."""
    against = contradicted(compared)
    return [
        {
            "claim": pair["claim"],
            "where": pair["cells"] if isinstance(pair["cells"], str) else "",
            "scale": pair["scale"],
            "effect": [float(pair[name]) for name in ("effect", "low", "high")],
            "tone": conclusion(pair, against).tone,
            "verdict": conclusion(pair, against).text,
            "seeds": show(pair["seeds"]),
        }
        for pair in compared.to_dict("records")
        if pair["seeds"] > 0
    ]
