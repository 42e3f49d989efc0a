"""The findings as the plain rows and words that the page's templates print."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memsweep.report.analysis.bounds import EXPLANATIONS
from memsweep.report.analysis.findings import BALLS, Finding
from memsweep.report.analysis.summary import MOVES
from memsweep.report.export.csv import reasons
from memsweep.report.naming.conditions import plain_value
from memsweep.report.naming.labels import Labels, show
from memsweep.report.style import figure, slope_text
from memsweep.stability.verdict.rule import SLOPE_LIMIT
from memsweep.stability.verdict.slopes import Slope

_GLYPH = (-1.0, 0.5)  # slopes that the small interval pictures span


@dataclass(frozen=True)
class Interval:
    """A slope as text and as positions (percent of the small picture's width).

    Attributes:
        known: whether there is an interval to draw.
        estimate: None where there is none.
    """

    text: str
    known: bool
    estimate: float | None
    low: float
    high: float
    boundary: float


@dataclass(frozen=True)
class VerdictRow:
    """One line of the verdict table; ``bound`` says why its errors are lower bounds, where they are."""

    memory: str
    machine: str
    verdict: str
    explanation: str
    threshold: str
    limited: bool
    bound: str
    against_horizon: Interval
    against_width: Interval
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class VerdictTable:
    """The verdicts of one ball."""

    ball: str
    moves: str
    rows: tuple[VerdictRow, ...]


def percent(value: float) -> str:
    """A share as a percentage with two significant digits; thresholds come out as ``1 %``, ``10 %``."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    scaled = 100 * value
    return f"{scaled:.0f} %" if scaled >= 100 else f"{scaled:.2g} %"


def interval(slope: Slope) -> Interval:
    """A slope with its 95 % interval, placed on an axis from -1 to 0.5; what lies beyond sits at the edge."""
    first, last = _GLYPH

    def place(value: float) -> float:
        return round(100 * (min(max(value, first), last) - first) / (last - first), 1)

    text = slope_text(slope)
    estimate = None if math.isnan(slope.estimate) else place(slope.estimate)
    if math.isnan(slope.low) or math.isnan(slope.high):
        return Interval(text, False, estimate, 0.0, 0.0, place(SLOPE_LIMIT))
    return Interval(text, True, estimate, place(slope.low), place(slope.high), place(SLOPE_LIMIT))


def verdict_tables(findings: Sequence[Finding], labels: Labels) -> list[VerdictTable]:
    """One table per ball that was measured."""
    tables = []
    for ball in BALLS:
        rows = [_verdict_row(finding, labels) for finding in findings if finding.ball == ball]
        if rows:
            tables.append(VerdictTable(ball, MOVES[ball], tuple(rows)))
    return tables


def slope_rows(findings: Sequence[Finding], labels: Labels) -> list[dict[str, Any]]:
    """Every slope at every threshold, and the evidence that stands beside the verdict."""
    return [
        {
            "ball": finding.ball,
            "memory": labels.memory(finding.condition),
            "machine": labels.machine(finding.condition),
            "slopes": [
                (percent(threshold), slope_text(against_horizon), slope_text(against_width))
                for threshold, (against_width, against_horizon) in finding.judgement.by_threshold.items()
            ],
            "growth": slope_text(finding.judgement.growth),
            "modulus": figure(finding.judgement.modulus),
            "analytic": figure(finding.analytic_modulus),
            "bound": percent(finding.distance_bound) if math.isfinite(finding.distance_bound) else "–",
        }
        for finding in findings
    ]


def fit_table(findings: Sequence[Finding], labels: Labels) -> dict[str, Any]:
    """The unperturbed error relative to the zero predictor, per width and horizon.

    Returns:
        ``widths``, and ``rows`` of cells: the median over seeds as a percentage, and how many seeds are valid.
    """
    once = {finding.key: finding for finding in reversed(findings)}
    widths = sorted({float(w) for finding in once.values() for w in finding.radii["width"].dropna()})
    rows = []
    for finding in reversed(once.values()):
        seeds = finding.radii.drop_duplicates(["width", "horizon", "seed"])
        for horizon, part in seeds.groupby("horizon", dropna=False):
            cells = [_fit_cell(part[part["width"] == width]) for width in widths]
            names = {"memory": labels.memory(finding.condition), "machine": labels.machine(finding.condition)}
            rows.append({**names, "horizon": show(plain_value(horizon)), "cells": cells})
    return {"widths": [f"{width:g}" for width in widths], "rows": rows}


def _fit_cell(seeds: Any) -> dict[str, Any]:
    if seeds.empty:
        return {"text": "–", "valid": True, "note": ""}
    valid, count = int(seeds["valid"].astype(bool).sum()), len(seeds)
    relative = (seeds["error_at_zero"] / seeds["zero_loss"]).median()
    return {
        "text": percent(float(relative)),
        "valid": valid == count,
        "note": "" if valid == count else f"{valid} of {count} seeds valid",
    }


def _verdict_row(finding: Finding, labels: Labels) -> VerdictRow:
    judgement = finding.judgement
    return VerdictRow(
        memory=labels.memory(finding.condition),
        machine=labels.machine(finding.condition),
        verdict=judgement.verdict.value,
        explanation=judgement.verdict.explanation,
        limited=judgement.horizon_limited,
        bound=EXPLANATIONS.get(finding.bound, ""),
        threshold=percent(judgement.threshold),
        against_horizon=interval(judgement.slope_horizon),
        against_width=interval(judgement.slope_width),
        reasons=reasons(finding),
    )


def varying_fields(configs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each flattened config, only the fields in which the configs differ from one another."""
    names = dict.fromkeys(name for config in configs for name in config)
    varied = [name for name in names if len({str(config.get(name)) for config in configs}) > 1]
    return [{name: config[name] for name in varied if name in config} for config in configs]
