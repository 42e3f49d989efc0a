"""Panels of the training: validation loss against the step, and the memoryless baseline that a memory must beat."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from memsweep.report.analysis.losses import LossRow
from memsweep.report.figures.error import BESIDE
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import show
from memsweep.report.read.study import Study
from memsweep.report.style import INK, MUTED, LineStyle, category_styles, log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TOGETHER = 8  # lines in one panel that can be told apart
_ABOVE = 30.0  # a loss so many times the baseline is off the picture
_MARKS = 10


def training_gallery(rows: Sequence[LossRow], study: Study, labels: Labels, name: str) -> Gallery:
    """A panel per task, width and horizon, of at most 8 conditions; their vertical axes agree.

    Lines are medians over seeds, and bands reach from the smallest to the largest.
    """
    drawn = [row for row in rows if not _of(row, study).empty]
    styles = category_styles(list(dict.fromkeys(labels.machine(row.condition) for row in drawn)))
    sizes = {(row.width, row.horizon) for row in drawn}
    together: dict[tuple[str, float | None, float | None], list[LossRow]] = {}
    for row in drawn:
        together.setdefault((labels.memory(row.condition), row.width, row.horizon), []).append(row)
    panels: list[Panel] = []
    for (memory, width, horizon), members in together.items():
        where = f"width {show(width)}, horizon {show(horizon)}" if len(sizes) > 1 else ""
        draw = partial(_draw, study=study, labels=labels, styles=styles, limits=_limits(members, study))
        for part in np.array_split(np.arange(len(members)), math.ceil(len(members) / _TOGETHER)):
            lines = [members[index] for index in part]
            title = where or (labels.machine(lines[0].condition) if len(lines) == 1 else f"{len(lines)} conditions")
            panels.append(Panel(memory, title, partial(draw, rows=lines)))
    return Gallery(name, panels, tuple(styles.items()), columns=2)


def _of(row: LossRow, study: Study) -> pd.DataFrame:
    return study.of("history", row.identities)


def _limits(rows: Sequence[LossRow], study: Study) -> tuple[float, float]:
    values = np.concatenate([_of(row, study)["validation_loss"].to_numpy(float) for row in rows])
    values = values[np.isfinite(values) & (values > 0)]
    known = [row.memoryless for row in rows if row.memoryless > 0]
    low, high = (values.min(), values.max()) if values.size else (0.1, 1.0)
    if known:
        low, high = min(low, min(known)), max(min(high, max(known) * _ABOVE), max(known))
    return float(low) / 1.3, max(float(high) * 1.3, float(low) * 2.0)


def _draw(
    ax: Axes,
    rows: Sequence[LossRow],
    study: Study,
    labels: Labels,
    styles: Mapping[str, LineStyle],
    limits: tuple[float, float],
) -> None:
    log_axis(ax, "y")
    for index, row in enumerate(rows):
        seeds = _of(row, study).groupby("step")["validation_loss"]
        low, middle, high = seeds.min(), seeds.median(), seeds.max()
        step = low.index.to_numpy(float)
        every = max(1, math.ceil(len(step) / _MARKS))
        style = styles[labels.machine(row.condition)]
        far = limits[1] * 1e3  # a band up to infinity leaves through the top
        ax.fill_between(step, low.clip(upper=far), high.clip(upper=far), color=style.color, alpha=0.1, linewidth=0)
        marks = (index * every // len(rows), every)  # interleaved: lines that coincide all show their marks
        ax.plot(step, middle.where(np.isfinite(middle)), markevery=marks, **{**style.line(), "markersize": 3.6})
    baselines = sorted({row.memoryless for row in rows if row.memoryless > 0})
    for baseline in baselines:
        ax.axhline(baseline, color=INK, linewidth=0.9, zorder=1.5)
        ax.annotate("memoryless", (0.01, baseline), xycoords=BESIDE, va="bottom", fontsize=6.5, color=MUTED)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlim(left=0)
    ax.set_ylim(*limits)
    ax.set_xlabel("training step")
    ax.set_ylabel("validation loss")
