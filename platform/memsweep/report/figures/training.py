"""Panels of trained models: validation loss against the step, and all models by task, beside the memoryless loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator

from memsweep.report.analysis.losses import MANY_TASKS, LossRow, largest
from memsweep.report.figures.error import BESIDE
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import clean, show
from memsweep.report.read.study import Study
from memsweep.report.style import INK, MUTED, LineStyle, category_styles, log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TOGETHER = 8  # lines in one panel that can be told apart
_ABOVE = 30.0  # a loss so many times the baseline is off the picture
_MARKS = 10
_MOST_MODELS, _MOST_LETTERS, _RISE = 16, 18, 4  # in a panel of models by task; of a name; lines for slanted names
_ROOM = 1.3  # left of the columns, in columns of nine, for the models' names
_SHADES = LinearSegmentedColormap.from_list("removed", ["#eef3f8", "#0b4f8a"])  # as on the page


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


def tasks_gallery(rows: Sequence[LossRow], labels: Labels, name: str) -> Gallery:
    """The share of the memoryless loss that each model removes, in percent: a line per model, a column per task.

    Without panels where there are few tasks, one model, or a task without a memoryless loss. The best models on average
    stand first.
    """
    removed: dict[str, dict[str, float]] = {}
    for row in largest(rows):
        memory, machine = labels.names(row.condition)
        removed.setdefault(machine, {})[memory] = row.removed
    memories = list(dict.fromkeys(labels.memory(row.condition) for row in rows))
    known = all(math.isfinite(value) for values in removed.values() for value in values.values())
    if len(memories) < MANY_TASKS or len(removed) < 2 or not known:
        return Gallery(name, [])
    shares = pd.DataFrame(removed).T.reindex(columns=memories).clip(0.0, 1.0)
    shares = shares.loc[shares.mean(axis=1).sort_values(ascending=False, kind="stable").index]
    panels = [
        Panel(
            "models by task", "percent of the memoryless loss removed", partial(_draw_tasks, shares=part), lines=_RISE
        )
        for part in (shares[first : first + _MOST_MODELS] for first in range(0, len(shares), _MOST_MODELS))
    ]
    return Gallery(name, panels, columns=1)


def _draw_tasks(ax: Axes, shares: pd.DataFrame) -> None:
    ax.imshow(shares.to_numpy(), cmap=_SHADES, vmin=0.0, vmax=1.0, aspect="auto")
    for (row, column), share in np.ndenumerate(shares.to_numpy()):
        if math.isfinite(share):
            ink = "white" if share > 0.5 else INK
            ax.text(column, row, f"{math.floor(100 * share)}", ha="center", va="center", fontsize=6.0, color=ink)
    columns = len(shares.columns)
    for row, name in enumerate(shares.index):
        ax.text(-0.6, row, _cut(str(name)), ha="right", va="center", fontsize=6.0, color=MUTED)
    ax.set_xticks(range(columns), [_cut(str(name)) for name in shares.columns], fontsize=6.0)
    for label in ax.get_xticklabels():
        label.set(rotation=40, ha="right", rotation_mode="anchor")
    ax.set_yticks([])
    ax.set_xlim(-0.5 - _ROOM * columns / 9, columns - 0.5)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)


def _cut(name: str) -> str:
    return clean(name if len(name) <= _MOST_LETTERS else f"…{name[1 - _MOST_LETTERS :]}")


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
