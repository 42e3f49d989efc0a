"""Panels of the training: validation loss against the step, and the memoryless baseline that a memory must beat."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from memsweep.report.analysis.losses import LossRow
from memsweep.report.figures.error import BESIDE
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import show
from memsweep.report.style import INK, MUTED, LineStyle, category_styles, log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TOGETHER = 8  # lines in one panel that can be told apart
_ABOVE = 30.0  # a loss so many times the baseline is off the picture
_MARKS = 10


def training_gallery(rows: Sequence[LossRow], history: pd.DataFrame, labels: Labels, name: str) -> Gallery:
    """A panel per task, width and horizon, of at most 8 conditions; their vertical axes agree.

    Lines are medians over seeds, and bands reach from the smallest to the largest.
    """
    drawn = [row for row in rows if not _of(row, history).empty]
    styles = category_styles(list(dict.fromkeys(labels.machine(row.condition) for row in drawn)))
    sizes = {(row.width, row.horizon) for row in drawn}
    panels: list[Panel] = []
    for (memory, width, horizon), together in groupby(
        sorted(drawn, key=lambda row: _place(row, drawn, labels)),
        key=lambda row: (labels.memory(row.condition), row.width, row.horizon),
    ):
        members = list(together)
        limits = _limits(members, history)
        where = f"width {show(width)}, horizon {show(horizon)}" if len(sizes) > 1 else ""
        for part in np.array_split(np.arange(len(members)), math.ceil(len(members) / _TOGETHER)):
            rows_of = [members[index] for index in part]
            panels.append(_panel(memory, where, rows_of, history, labels, styles, limits))
    return Gallery(name=name, panels=tuple(panels), legend=tuple(styles.items()), columns=2)


def _place(row: LossRow, rows: Sequence[LossRow], labels: Labels) -> tuple[int, int]:
    """Memories in order of appearance, then sizes in order of appearance."""
    memories = list(dict.fromkeys(labels.memory(other.condition) for other in rows))
    sizes = list(dict.fromkeys((other.width, other.horizon) for other in rows))
    return memories.index(labels.memory(row.condition)), sizes.index((row.width, row.horizon))


def _of(row: LossRow, history: pd.DataFrame) -> pd.DataFrame:
    return history[history["identity"].isin(row.identities)] if not history.empty else history


def _limits(rows: Sequence[LossRow], history: pd.DataFrame) -> tuple[float, float]:
    values = np.concatenate([_of(row, history)["validation_loss"].to_numpy(float) for row in rows])
    values = values[np.isfinite(values) & (values > 0)]
    known = [row.memoryless for row in rows if row.memoryless > 0]
    low, high = (values.min(), values.max()) if values.size else (0.1, 1.0)
    if known:
        low, high = min(low, min(known)), max(min(high, max(known) * _ABOVE), max(known))
    return float(low) / 1.3, max(float(high) * 1.3, float(low) * 2.0)


def _panel(
    memory: str,
    where: str,
    rows: Sequence[LossRow],
    history: pd.DataFrame,
    labels: Labels,
    styles: Mapping[str, LineStyle],
    limits: tuple[float, float],
) -> Panel:
    names = [labels.machine(row.condition) for row in rows]
    title = where or (names[0] if len(names) == 1 else f"{len(names)} conditions")
    return Panel(
        group=memory,
        title=title,
        description=f"Validation loss against the training step, logarithmic, one line each: {', '.join(names)}.",
        draw=lambda ax: _draw(ax, rows, history, names, styles, limits),
        identities=tuple(dict.fromkeys(identity for row in rows for identity in row.identities)),
        width=4.6,
        right=0.75,
    )


def _draw(
    ax: Axes,
    rows: Sequence[LossRow],
    history: pd.DataFrame,
    names: Sequence[str],
    styles: Mapping[str, LineStyle],
    limits: tuple[float, float],
) -> None:
    log_axis(ax, "y", label_between=limits[1] < 200 * limits[0])
    ax.tick_params(axis="y", which="minor", labelsize=6.5)
    for index, (row, name) in enumerate(zip(rows, names, strict=True)):
        seeds = _of(row, history).groupby("step")["validation_loss"]
        low, middle, high = seeds.min(), seeds.median(), seeds.max()
        step = low.index.to_numpy(float)
        every = max(1, math.ceil(len(step) / _MARKS))
        style = styles[name]
        far = limits[1] * 1e3  # a band up to infinity leaves through the top
        ax.fill_between(step, low.clip(upper=far), high.clip(upper=far), color=style.color, alpha=0.1, linewidth=0)
        marks = (index * every // len(rows), every)  # interleaved: lines that coincide all show their marks
        ax.plot(step, middle.where(np.isfinite(middle)), markevery=marks, **{**style.line(), "markersize": 3.6})
    baselines = sorted({row.memoryless for row in rows if row.memoryless > 0})
    for baseline in baselines:
        ax.axhline(baseline, color=INK, linewidth=0.9, zorder=1.5)
        ax.annotate("memoryless", (1.02, baseline), xycoords=BESIDE, va="center", fontsize=6.5, color=MUTED)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlim(left=0)
    ax.set_ylim(*limits)
    ax.set_xlabel("training step")
    ax.set_ylabel("validation loss")
