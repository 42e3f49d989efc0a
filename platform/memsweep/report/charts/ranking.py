"""Charts of trained models: the best settings of each task, and all models on all tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from memsweep.report.analysis.losses import MANY_TASKS, LossRow, Quantity, largest, quantities, ranked
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import figure
from memsweep.report.rows.losses import number_text
from memsweep.report.values.chart import Chart, ChartSet, cells_chart, rows_chart, wide

_MOST_ROWS, _MOST_MODELS = 24, 16  # in one chart
_ALL = "all tasks"
_SHADES = "Median over seeds. The darker, the better; the best models on average stand first."


def ranking_sets(rows: Sequence[LossRow], trained: Sequence[LossRow], labels: Labels) -> Iterator[ChartSet]:
    """All models on all tasks, and task by task: by what ranks them, and by what a reader may choose instead.

    Args:
        rows: that answer something.
        trained: those of them that are drawn task by task.
        labels: their names.
    """
    first, *others = quantities(rows)
    across, alone = (lambda by: task_charts(rows, labels, by)), (lambda by: ranking_charts(trained, labels, by))
    yield ChartSet("tasks", across(first), columns=1, chosen=True)
    yield ChartSet("tasks-others", chain.from_iterable(map(across, others)), columns=1, chosen=True, extra=True)
    yield ChartSet("ranking", alone(first), columns=1, chosen=True)
    yield ChartSet("ranking-others", chain.from_iterable(map(alone, others)), columns=1, chosen=True, extra=True)


def task_charts(rows: Sequence[LossRow], labels: Labels, by: Quantity) -> Iterator[Chart]:
    """A row per model, a column per task: the numbers of the table ``across_table`` by the same quantity.

    None where there are few tasks, or one model.
    """
    found: dict[str, dict[str, LossRow]] = {}
    known = [row for row in largest(rows) if by.is_known(row)]
    for row in known:
        memory, machine = labels.names(row.condition)
        found.setdefault(machine, {})[memory] = row
    tasks = {labels.memory(row.condition) for row in rows}
    memories = list(dict.fromkeys(labels.memory(row.condition) for row in known))
    if len(tasks) < MANY_TASKS or len(found) < 2:
        return
    best = sorted(found, key=lambda name: -_mean([_shade(row, by) for row in found[name].values()]))
    for first in range(0, len(best), _MOST_MODELS):
        part = [
            {"name": name, "cells": [_cell(found[name].get(memory), by) for memory in memories]}
            for name in best[first : first + _MOST_MODELS]
        ]
        words = "; ".join(f"{row['name']}: {_told(memories, row['cells'])}" for row in part)
        more: dict[str, Any] = {"note": _SHADES, "choice": {"task": _ALL, "by": by.name}}
        more["words"] = f"Models by task: {by.title}, median over seeds. {words}."
        yield cells_chart(f"models by task: {by.title}", memories, part, **more)


def _mean(shares: Sequence[float]) -> float:
    return sum(shares) / len(shares)


def _shade(row: LossRow, by: Quantity) -> float:
    """How good a median is, in [0, 1]: a share of right answers, or the share of a baseline's loss that is removed."""
    middle, baseline = by.spread(row).middle, row.memoryless if row.memoryless > 0 else row.zero_loss
    share = middle if by.is_share(row) else 1 - middle / baseline if baseline > 0 else 0.0
    return min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0


def _cell(row: LossRow | None, by: Quantity) -> list[Any] | None:
    if row is None:
        return None
    words = f"{by.title}, by seed: {', '.join(number_text(value, row, by) for value in by.values(row))}"
    return [_shade(row, by), number_text(by.spread(row).middle, row, by), row.identities[0], words]


def _told(memories: Sequence[str], cells: Sequence[Any]) -> str:
    known = zip(memories, cells, strict=True)
    return ", ".join(f"{memory} {cell[1]}" for memory, cell in known if cell is not None)


def ranking_charts(rows: Sequence[LossRow], labels: Labels, by: Quantity) -> Iterator[Chart]:
    """The settings of each task at their largest size, the best first: a mark per seed, and their median."""
    by_memory: dict[str, list[LossRow]] = {}
    for row in largest(rows):
        by_memory.setdefault(labels.memory(row.condition), []).append(row)
    for memory, part in by_memory.items():
        known = [row for row in part if by.is_known(row)]
        if known:
            yield _ranking(memory, ranked(known, by)[:_MOST_ROWS], labels, by)


def _ranking(memory: str, rows: Sequence[LossRow], labels: Labels, by: Quantity) -> Chart:
    share = by.is_share(rows[0])
    label = f"{by.name if by.is_named else rows[0].metric.replace('_', ' ')} (%)" if share else "test loss"
    log = not share and wide(float(value) for row in rows for value in by.values(row))
    drawn, lost = list[Any](), list[str]()
    for row in rows:
        values, name = [float(value) * (100 if share else 1) for value in by.values(row)], labels.machine(row.condition)
        known, middle = [value for value in values if math.isfinite(value)], by.spread(row).middle
        one = {"name": name, "middle": middle * (100 if share else 1), "values": known}
        drawn.append(one | {"text": number_text(middle, row, by), "trial": row.identities[0]})
        if len(known) < len(values):
            lost.append(f"{len(values) - len(known)} of {len(values)} seeds of {name} diverged.")
    words = ", ".join(f"{row['name']} {figure(row['middle'])}" for row in drawn if math.isfinite(row["middle"]))
    more: dict[str, Any] = {"note": " ".join(["A mark per seed; the stroke is their median.", *lost])}
    more |= {"choice": {"task": memory, "by": by.name}, "words": f"{label} by setting, the best first: {words}."}
    return rows_chart(memory, label, drawn, log=log, **more)
