"""Losses and learning rates as the plain rows that the page's template prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from memsweep.report.findings import Finding
from memsweep.report.labels import Labels, show
from memsweep.report.losses import CRITERIA, LossRow, Spread
from memsweep.report.rates import RateStudy, rate_of
from memsweep.report.style import figure
from memsweep.report.view import percent


def shown_losses(rows: Sequence[LossRow], findings: Sequence[Finding], rates: Sequence[RateStudy]) -> list[LossRow]:
    """The rows that answer something: of tasks without a kernel or with a metric, and of trials without a verdict.

    All of them where the study is one of learning rates.
    """
    judged = {finding.key for finding in findings if finding.asked}
    return [
        row
        for row in rows
        if rates or row.condition["kernel"] is None or row.metric or tuple(row.condition.values()) not in judged
    ]


def loss_table(rows: Sequence[LossRow], labels: Labels) -> dict[str, Any]:
    """``rows`` of texts, and which of the optional columns (``metric``, ``criterion``) have anything to show."""
    return {
        "metric": any(row.metric for row in rows),
        "criterion": any(not math.isnan(row.criteria[CRITERIA[0]].middle) for row in rows),
        "rows": [
            {
                "memory": labels.memory(row.condition),
                "machine": labels.machine(row.condition),
                "width": show(row.width),
                "horizon": show(row.horizon),
                "loss": spread_text(row.loss),
                "relative": percent(row.loss.middle / row.zero_loss) if row.zero_loss > 0 else "–",
                "metric": metric_text(row),
                "diverged": diverged_text(row),
                "criterion": " / ".join(figure(row.criteria[name].middle) for name in CRITERIA),
            }
            for row in rows
        ],
    }


def rate_tables(studies: Sequence[RateStudy]) -> list[dict[str, Any]]:
    """Per study, a row per parameterization and a cell per learning rate."""
    tables = []
    for study in studies:
        rows = []
        for name, line in study.lines.items():
            at = {rate_of(row): row for row in line}
            rows.append({"name": name, "cells": [_rate_cell(at.get(rate)) for rate in study.rates]})
        rates = [f"{rate:g}" for rate in study.rates]
        tables.append({"memory": study.memory, "machine": study.machine, "rates": rates, "rows": rows})
    return tables


def spread_text(spread: Spread) -> str:
    """``0.12 [0.11, 0.15]``: median, smallest and largest over seeds."""
    if spread.low == spread.high or math.isnan(spread.middle):
        return figure(spread.middle)
    return f"{figure(spread.middle)} [{figure(spread.low)}, {figure(spread.high)}]"


def metric_text(row: LossRow) -> str:
    """``accuracy 93.1 %``, or a plain number for a metric that is no share; empty without a metric."""
    if not row.metric or math.isnan(row.value.middle):
        return ""
    value = f"{100 * row.value.middle:.1f} %" if "accuracy" in row.metric else figure(row.value.middle)
    return f"{row.metric} {value}"


def diverged_text(row: LossRow) -> str:
    """``2 of 5``; empty when none."""
    return f"{row.diverged} of {row.seeds}" if row.diverged else ""


def _rate_cell(row: LossRow | None) -> dict[str, str]:
    if row is None:
        return {"loss": "–", "diverged": "", "metric": ""}
    return {"loss": figure(row.loss.middle), "diverged": diverged_text(row), "metric": metric_text(row)}
