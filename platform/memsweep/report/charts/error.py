"""Charts of the perturbation error: sqrt(E / L0) against the radius, one line per width."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from memsweep.report.analysis.findings import Finding
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import percent
from memsweep.report.values.chart import ORDERED, Chart, chart

_CEILING = 100.0  # beyond a hundred times the zero predictor, how much worse tells nothing
_RADIUS, _SHARE = "perturbation radius β", "√(E(β) / L₀)"


def error_charts(findings: Sequence[Finding], labels: Labels) -> Iterator[Chart]:
    """One chart per condition, at its longest horizon; their axes agree, so that they can be compared by eye."""
    parts = [_at_longest(finding) for finding in findings]
    if not any(map(len, parts)):
        return
    curves, thresholds = pd.concat(parts), findings[0].judgement.criteria.thresholds
    limits, rail = {"x": _across(curves), "y": _up(curves)}, bool(np.isinf(curves["relative"]).any())
    for finding, part in zip(findings, parts, strict=True):
        title = ", ".join(filter(None, labels.names(finding.condition)))
        yield _chart(title, part, limits, _levels(thresholds, limits["y"])) | {"rail": rail}


def error_chart(rows: pd.DataFrame, title: str) -> Chart | None:
    """The error of one trial in one ball; None where nothing was measured."""
    part = _relative(rows)
    if part.empty:
        return None
    limits = {"x": _across(part), "y": _up(part)}
    lines, lost = _lines({"": part})
    return chart(title, _RADIUS, _SHARE, "xy", lines, lost=lost, limits=limits, levels=[[1.0, "L₀"]])


def _at_longest(finding: Finding) -> pd.DataFrame:
    return _relative(finding.curves[finding.curves["horizon"] == finding.horizon])


def _relative(curves: pd.DataFrame) -> pd.DataFrame:
    """The curves with the relative error sqrt(E / L0): 1 is as bad as predicting zero."""
    part = curves[curves["radius"] > 0]
    return part.assign(relative=(part["error"] / part["zero_loss"]).pow(0.5))


def _across(curves: pd.DataFrame) -> list[float]:
    return [float(curves["radius"].min()) / 1.15, float(curves["radius"].max()) * 1.15]


def _up(curves: pd.DataFrame) -> list[float]:
    errors = curves["relative"][np.isfinite(curves["relative"]) & (curves["relative"] > 0)]
    low, high = (float(errors.min()), float(errors.max())) if len(errors) else (0.1, 1.0)
    high = min(max(high * 1.2, 2.0), _CEILING)
    return [max(min(low / 1.5, 0.05), high * 1e-8), high]


def _levels(thresholds: Sequence[float], limits: Sequence[float]) -> list[list[Any]]:
    crowded = limits[1] > 1e3 * limits[0]  # then only the outer thresholds' labels keep apart
    named = (thresholds[0], thresholds[-1]) if crowded else thresholds
    return [[1.0, "L₀"], *([t**0.5, percent(t) if t in named else ""] for t in thresholds)]


def _chart(title: str, part: pd.DataFrame, limits: dict[str, list[float]], levels: Sequence[Any]) -> Chart:
    by_width = {f"width {width:g}": rows for width, rows in part.groupby("width")}
    lines, lost = _lines(by_width)
    return chart(title, _RADIUS, _SHARE, "xy", lines, lost=lost, limits=limits, levels=levels, look=ORDERED)


def _lines(parts: dict[str, pd.DataFrame]) -> tuple[dict[str, Any], list[Any]]:
    """Name -> medians with their ends; and the radii at which the median is infinite."""
    lines, lost = dict[str, Any](), list[Any]()
    for name, rows in parts.items():
        table = rows.groupby("radius")["relative"].agg(["median", "min", "max"])
        lines[name] = [[float(x), *map(float, ends)] for x, ends in zip(table.index, table.to_numpy(), strict=True)]
        lost.append([name, [[point[0], ""] for point in lines[name] if math.isinf(point[1])]])
    return lines, lost
