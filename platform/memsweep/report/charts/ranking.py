"""Charts of trained models: the best settings of each task, and what each removes of the memoryless loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from memsweep.report.analysis.losses import MANY_TASKS, LossRow, by_accuracy, largest, ranked
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import figure
from memsweep.report.values.chart import Chart, cells_chart, rows_chart, wide

_MOST_ROWS, _MOST_MODELS = 24, 16  # in one chart
_ALL = "all tasks"
_REMOVED = (
    "Percent of the memoryless loss (the least of a model that forgets each input after its step) that a model "
    "removes, by its median seed: 100 is perfect, 0 no better. The best models on average stand first."
)


def task_charts(rows: Sequence[LossRow], labels: Labels) -> Iterator[Chart]:
    """The share of the memoryless loss that each model removes: a row per model, a column per task.

    None where there are few tasks, one model, or a task without a memoryless loss.
    """
    found: dict[str, dict[str, LossRow]] = {}
    for row in largest(rows):
        memory, machine = labels.names(row.condition)
        found.setdefault(machine, {})[memory] = row
    memories = list(dict.fromkeys(labels.memory(row.condition) for row in rows))
    known = all(math.isfinite(row.removed) for by_memory in found.values() for row in by_memory.values())
    if len(memories) < MANY_TASKS or len(found) < 2 or not known:
        return
    best = sorted(found, key=lambda name: -_mean(found[name].values()))
    for first in range(0, len(best), _MOST_MODELS):
        part = [
            {"name": name, "cells": [_cell(found[name].get(memory)) for memory in memories]}
            for name in best[first : first + _MOST_MODELS]
        ]
        words = "; ".join(f"{row['name']}: {_told(memories, row['cells'])}" for row in part)
        more: dict[str, Any] = {"note": _REMOVED, "choice": {"task": _ALL}}
        more["words"] = f"Percent of the memoryless loss that each model removes: {words}."
        yield cells_chart("models by task: percent of the memoryless loss removed", memories, part, **more)


def _mean(rows: Any) -> float:
    shares = [min(max(row.removed, 0.0), 1.0) for row in rows]
    return sum(shares) / len(shares)


def _cell(row: LossRow | None) -> list[Any] | None:
    if row is None:
        return None
    shown = f"{math.floor(100 * row.removed)}" if row.removed > 0.005 else "0"
    measure, values = _measured(row)
    words = f"{figure(100 * row.removed, 2)} % of the memoryless loss removed\n{measure} {_listed(values)}"
    return [row.removed, shown, row.identities[0], words]


def _told(memories: Sequence[str], cells: Sequence[Any]) -> str:
    known = zip(memories, cells, strict=True)
    return ", ".join(f"{memory} {figure(100 * cell[0], 2)}" for memory, cell in known if cell is not None)


def ranking_charts(rows: Sequence[LossRow], labels: Labels) -> Iterator[Chart]:
    """The settings of each task at their largest size, the best first: a mark per seed, and their median."""
    by_memory: dict[str, list[LossRow]] = {}
    for row in largest(rows):
        by_memory.setdefault(labels.memory(row.condition), []).append(row)
    for memory, part in by_memory.items():
        first = ranked(part)[:_MOST_ROWS]
        yield _ranking(memory, [(labels.machine(row.condition), row, _measured(row)[1]) for row in first])


def _ranking(memory: str, rows: Sequence[tuple[str, LossRow, Sequence[float]]]) -> Chart:
    accuracy = by_accuracy(rows[0][1])
    label = f"{_measured(rows[0][1])[0]}{' (%)' if accuracy else ''}"
    log = not accuracy and wide(value for _, _, values in rows for value in values)
    drawn, lost = list[Any](), list[str]()
    for name, row, values in rows:
        known = [value for value in values if math.isfinite(value)]
        middle = sorted(values)[len(values) // 2] if len(values) % 2 else _between(values)
        text = f"{middle:.1f}" if accuracy else figure(middle)
        drawn.append({"name": name, "middle": middle, "values": known, "text": text, "trial": row.identities[0]})
        if len(known) < len(values):
            lost.append(f"{len(values) - len(known)} of {len(values)} seeds of {name} diverged.")
    words = ", ".join(f"{row['name']} {figure(row['middle'])}" for row in drawn if math.isfinite(row["middle"]))
    more = {"note": " ".join(["A mark per seed; the stroke is their median.", *lost]), "choice": {"task": memory}}
    said = f"{label} by setting, the best first: {words}."
    return rows_chart(memory, label, drawn, log=log, words=said, **more)


def _between(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[len(ordered) // 2 - 1] + ordered[len(ordered) // 2]) / 2


def _measured(row: LossRow) -> tuple[str, list[float]]:
    """What ranks a row, and its values by seed: an accuracy in percent, or a loss."""
    if by_accuracy(row):
        return row.metric.replace("_", " "), [100 * float(value) for value in row.column("test_metric")]
    return "test loss", [float(value) for value in row.losses]


def _listed(values: Sequence[float]) -> str:
    return ", ".join(map(figure, values))
