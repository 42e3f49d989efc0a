"""Losses and learning rates as the plain rows that the page's template prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from memsweep.report.analysis.findings import Finding
from memsweep.report.analysis.learning_rates import RateStudy, rate_of
from memsweep.report.analysis.losses import BELOW, CRITERIA, LossRow, Spread
from memsweep.report.analysis.summary import joined
from memsweep.report.naming.labels import Labels, show
from memsweep.report.rows.verdicts import percent
from memsweep.report.style import figure

_MOST_NAMED = 12


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
    """``rows`` of texts, and which optional columns (``metric``, ``baseline``, ``criterion``) have anything to show."""
    return {
        "baseline": bool(compared_with_memoryless(rows)),
        "at_baseline": percent(1 - BELOW),
        "diverged": not compared_with_memoryless(rows) or any(row.diverged for row in rows),
        "settings": settings_table(rows, labels),
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
                "metric": metric_text(row, spread=True),
                "baseline": figure(row.memoryless),
                "below": f"{row.below} of {row.seeds}" if row.memoryless > 0 else "",
                "beats": row.beats_memoryless,
                "diverged": diverged_text(row),
                "criterion": " / ".join(figure(row.criteria[name].middle) for name in CRITERIA),
            }
            for row in rows
        ],
    }


def settings_table(rows: Sequence[LossRow], labels: Labels) -> dict[str, Any]:
    """The settings that follow from a row's name, which it therefore does not say: a column each."""
    columns = [name for name in labels.following if len({row.condition[name] for row in rows}) > 1]
    lines = {
        (labels.memory(row.condition), labels.machine(row.condition)): [show(row.condition[name]) for name in columns]
        for row in rows
    }
    return {
        "columns": [name.removeprefix("training.").removeprefix("model.").removesuffix(".name") for name in columns],
        "rows": [(*names, cells) for names, cells in lines.items()],
    }


def compared_with_memoryless(rows: Sequence[LossRow]) -> list[LossRow]:
    """The rows whose loss has a memoryless baseline to beat: of tasks that ask no question of a kernel."""
    return [row for row in rows if row.memoryless > 0 and row.condition["kernel"] is None]


def baseline_sentences(rows: Sequence[LossRow], labels: Labels) -> list[str]:
    """Who is below the memoryless baseline, in a sentence per task."""
    sentences = []
    for memory in dict.fromkeys(labels.memory(row.condition) for row in rows):
        part = [row for row in compared_with_memoryless(rows) if labels.memory(row.condition) == memory]
        groups = {
            "below the memoryless baseline in all seeds": [row for row in part if row.beats_memoryless],
            "below it in some seeds": [row for row in part if 0 < row.below < row.seeds],
            "at the memoryless baseline or above it in all seeds": [row for row in part if row.below == 0],
        }
        sizes = {"width": {row.width for row in part}, "horizon": {row.horizon for row in part}}
        varied = [name for name, values in sizes.items() if len(values) > 1]
        said = [f"{words}: {_named(members, labels, varied)}" for words, members in groups.items() if members]
        if said:
            text = "; ".join(said)
            sentences.append(f"On {memory}, {text}.")
    return sentences


def _named(rows: Sequence[LossRow], labels: Labels, sizes: Sequence[str]) -> str:
    """The models of these rows, with the sizes in which their task's rows differ."""
    names = []
    for row in rows:
        at = ", ".join(f"{size} {show(getattr(row, size))}" for size in sizes)
        names.append(labels.machine(row.condition) + (f" ({at})" if at else ""))
    names = list(dict.fromkeys(names))
    return joined(names) if len(names) <= _MOST_NAMED else f"{len(names)} conditions"


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


def metric_text(row: LossRow, *, spread: bool = False) -> str:
    """``accuracy 93.1 %``, or a plain number for a metric that is no share; empty without a metric.

    Args:
        spread: with the smallest and the largest over seeds, where they differ.
    """
    if not row.metric or math.isnan(row.value.middle):
        return ""
    share = "accuracy" in row.metric
    middle, low, high = (_metric_figure(v, share) for v in (row.value.middle, row.value.low, row.value.high))
    over_seeds = f" [{low}, {high}]" if spread and low != high else ""
    return f"{row.metric.replace('_', ' ')} {middle}{over_seeds}{' %' if share else ''}"


def _metric_figure(value: float, share: bool) -> str:
    return f"{100 * value:.1f}" if share else figure(value)


def diverged_text(row: LossRow) -> str:
    """``2 of 5``; empty when none."""
    return f"{row.diverged} of {row.seeds}" if row.diverged else ""


def _rate_cell(row: LossRow | None) -> dict[str, str]:
    if row is None:
        return {"loss": "–", "diverged": "", "metric": ""}
    return {"loss": figure(row.loss.middle), "diverged": diverged_text(row), "metric": metric_text(row)}
