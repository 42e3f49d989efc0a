"""Charts of trained models: the validation loss by step, and what is left of gradient and memory by lag."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from memsweep.report.analysis.losses import LossRow, largest
from memsweep.report.naming.labels import Labels
from memsweep.report.read.study import Study
from memsweep.report.values.chart import Chart, chart, over_seeds, size_words

_TOGETHER = 8  # lines in one chart that can be told apart
_ABOVE = 30.0  # a loss so many times the baseline is off the chart
_DEEPEST, _HIGHEST = 1e-12, 1e12  # of the gradient: beyond them a picture tells nothing more
_ROOM = 1000.0  # above what was measured, for its bound


def training_charts(rows: Sequence[LossRow], study: Study, labels: Labels) -> Iterator[Chart]:
    """A chart per task, width and horizon, of at most 8 conditions; those of one task and size share their axis."""
    together = dict[tuple[Any, ...], list[tuple[LossRow, pd.DataFrame]]]()
    for row in rows:
        part = study.of("history", row.identities)
        if not part.empty:
            together.setdefault((labels.memory(row.condition), row.width, row.horizon), []).append((row, part))
    several = len({key[1:] for key in together}) > 1
    for (memory, width, horizon), members in together.items():
        limits = _limits(members)
        for places in np.array_split(np.arange(len(members)), math.ceil(len(members) / _TOGETHER)):
            some = [members[place] for place in places]
            words = [labels.machine(some[0][0].condition)] if len(some) == 1 else []
            title = ", ".join([memory, *size_words(width, horizon, several=several), *words])
            lines = {labels.machine(row.condition): over_seeds(_by_step(table)) for row, table in some}
            levels = [[level, "memoryless"] for level in sorted({r.memoryless for r, _ in some if r.memoryless > 0})]
            more = {"levels": levels, "limits": {"y": limits}}
            yield chart(title, "training step", "validation loss", "y", lines, **more)


def _by_step(table: pd.DataFrame) -> Any:
    return table.groupby("step")["validation_loss"]


def _limits(members: Sequence[tuple[LossRow, pd.DataFrame]]) -> list[float]:
    values = np.concatenate([table["validation_loss"].to_numpy(float) for _, table in members])
    values = values[np.isfinite(values) & (values > 0)]
    known = [row.memoryless for row, _ in members if row.memoryless > 0]
    low, high = (values.min(), values.max()) if values.size else (0.1, 1.0)
    if known:
        low, high = min(low, min(known)), max(min(high, max(known) * _ABOVE), max(known))
    return [float(low) / 1.3, max(float(high) * 1.3, float(low) * 2.0)]


def gradient_charts(rows: Sequence[LossRow], study: Study, labels: Labels) -> Iterator[Chart]:
    """A chart per condition: at its longest horizon, and there of the widest; none where no gradient was measured."""
    for row in largest(rows):
        part = study.of("memory", row.identities)
        if part["gradient"].notna().any():
            yield _gradient(", ".join(labels.names(row.condition)), part)


def _gradient(title: str, part: pd.DataFrame) -> Chart:
    learned = part["learned"].abs()
    peak = learned.groupby([part["identity"], part["seed"]]).transform("max")
    by_lag = part.assign(share=learned / peak.where(peak > 0)).groupby("lag")
    bound = [point[:2] for point in over_seeds(by_lag["gradient_bound"])]
    lines = {
        "gradient norm": over_seeds(by_lag["gradient"]),
        "its bound": bound,
        "memory function": over_seeds(by_lag["share"]),
    }
    measured = [point[1] for name in ("gradient norm", "memory function") for point in lines[name]]
    known = [value for value in measured if math.isfinite(value) and value > 0] or [1.0]
    # A bound that grows without end leaves through the top, and what was measured can still be read.
    above = [value for _, value in bound if math.isfinite(value)]
    bottom = max(min(known), _DEEPEST) / 1.5
    top = max(1.0, min(max([*known, *above]), max(known) * _ROOM)) * 1.5
    limits = {"y": [bottom, max(min(top, _HIGHEST), bottom * 10)]}
    return chart(title, "lag (steps)", "share left", "y", lines, limits=limits)
