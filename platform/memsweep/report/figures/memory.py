"""Panels of the memory: the learned impulse response beside the target's; and the gradient so many steps back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from memsweep.report.analysis.findings import Finding
from memsweep.report.analysis.losses import LossRow, largest
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.labels import Labels
from memsweep.report.read.study import Study
from memsweep.report.style import LineStyle, log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DEPTH = 1e-5  # how far below the target's peak the panel reaches
_TARGET = LineStyle("#9aa3ad", "", "-")
_WIDE = LineStyle("#0072b2", "o", (0, (5, 1.5)))
_NARROW = LineStyle("#d55e00", "^", (0, (1.2, 1.4)))

_DEEPEST, _HIGHEST = 1e-12, 1e12  # of the gradient: beyond them a picture tells nothing more
_ROOM = 1000.0  # above what was measured, for its bound
_GRADIENT = LineStyle("#0072b2", "o", "-")
_BOUND = LineStyle("#9aa3ad", "", "-")
_MEMORY = LineStyle("#d55e00", "^", (0, (5, 1.5)))


def memory_gallery(findings: Sequence[Finding], labels: Labels, name: str) -> Gallery:
    """One panel per condition that has a memory function: the smallest and the largest width at the longest horizon."""
    panels = []
    for finding in {finding.key: finding for finding in reversed(findings)}.values():
        widths = finding.replicas[["identity", "seed", "width", "horizon"]]
        rows = finding.memory.merge(widths, on=["identity", "seed"])
        rows = rows[rows["horizon"] == finding.horizon]
        if not rows.empty:
            panels.append(Panel(*labels.names(finding.condition), partial(_draw_memory, rows=rows)))
    return Gallery(name, panels[::-1])


def gradient_gallery(rows: Sequence[LossRow], study: Study, labels: Labels, name: str) -> Gallery:
    """A panel per condition: at its longest horizon, and there of the widest; none where no gradient was measured."""
    parts = [(row, study.of("memory", row.identities)) for row in largest(rows)]
    panels = [
        Panel(*labels.names(row.condition), partial(_draw_gradient, part=part))
        for row, part in parts
        if part["gradient"].notna().any()
    ]
    return Gallery(name, panels, (("gradient norm", _GRADIENT), ("its bound", _BOUND), ("memory function", _MEMORY)))


def _draw_memory(ax: Axes, rows: pd.DataFrame) -> None:
    target = rows.groupby("lag")["target"].first().abs()
    # A task that is no linear functional has no target memory: the axes then follow what was learned.
    seen = target.dropna() if target.notna().any() else rows["learned"].abs().groupby(rows["lag"]).max()
    seen = seen[np.isfinite(seen)]
    peak = float(seen.max()) if len(seen) and seen.max() > 0 else 1.0
    power = _decays_like_a_power(target)
    shift = 1 if power else 0
    log_axis(ax, "y")
    handles = []
    if target.notna().any():
        handles.append(Line2D([], [], label="target", color=_TARGET.color, lw=4))
        ax.plot(target.index + shift, target.where(target > 0), color=_TARGET.color, lw=4, solid_capstyle="round")
    ends = dict.fromkeys((float(rows["width"].max()), float(rows["width"].min())))
    for width, style in zip(ends, (_WIDE, _NARROW), strict=False):
        part = rows[rows["width"] == width]
        _spread(ax, part["lag"] + shift, part["learned"].abs(), style, power=power)
        handles.append(Line2D([], [], label=f"learned, width {width:g}", **style.line()))
    if power:
        log_axis(ax, "x")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.set_xlim(-1, float(seen.index[seen > peak * _DEPTH].max() if (seen > peak * _DEPTH).any() else 1) * 1.25 + 2)
    ax.set_ylim(max(peak * _DEPTH, float(seen.min()) / 8 if len(seen) else 0.0), peak * 3)
    ax.set_xlabel("lag + 1 (steps)" if power else "lag (steps)")
    ax.set_ylabel("|memory|")
    ax.legend(handles=handles, loc="lower left" if power else "upper right", handlelength=3.2)


def _draw_gradient(ax: Axes, part: pd.DataFrame) -> None:
    peak = part["learned"].abs().groupby(part["seed"]).transform("max")
    bound = part.groupby("lag")["gradient_bound"].median()
    ax.plot(bound, **{**_BOUND.stroke(), "linewidth": 3.6}, solid_capstyle="round", zorder=1)
    memory = _spread(ax, part["lag"], part["learned"].abs() / peak.where(peak > 0), _MEMORY)
    gradient = _spread(ax, part["lag"], part["gradient"], _GRADIENT)
    measured = pd.concat([gradient["min"], gradient["max"], memory["median"]])
    every = pd.concat([measured, bound[bound > 0]])
    every = every[np.isfinite(every)]
    bottom = max(float(every.min()), _DEEPEST) / 1.5
    # A bound that grows without end leaves through the top, and what was measured can still be read.
    top = max(1.0, min(float(every.max()), float(measured[np.isfinite(measured)].max()) * _ROOM)) * 1.5
    top = max(min(top, _HIGHEST), bottom * 10)
    log_axis(ax, "y")
    ax.set_ylim(bottom, top)
    ax.set_xlim(0, max(float(part["lag"].max()), 1.0))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlabel("lag (steps)")
    ax.set_ylabel("share left")


def _spread(ax: Axes, lag: pd.Series, values: pd.Series, style: LineStyle, *, power: bool = False) -> pd.DataFrame:
    """Draw the median over seeds and the band from the smallest to the largest, by lag; zeros have no logarithm."""
    known = values.notna() & (values > 0)
    spread = values[known].groupby(lag[known]).agg(["min", "median", "max"])
    count = len(spread)
    # Few marks, evenly spread on the axis that is drawn.
    marks = np.geomspace(1, max(count, 1), 8).astype(int) - 1 if power else np.arange(0, count, max(1, count // 12))
    ax.fill_between(spread.index, spread["min"], spread["max"], color=style.color, alpha=0.16, linewidth=0)
    ax.plot(spread["median"], markevery=np.unique(marks).tolist(), **{**style.line(), "markersize": 3.8})
    return spread


def _decays_like_a_power(target: pd.Series) -> bool:
    """Whether log|target| is nearer to a line in log(lag + 1) than in lag."""
    seen = target[target > target.max() * 1e-12]
    if len(seen) < 4 or seen.nunique() < 2:
        return False
    height, lag = np.log(seen.to_numpy(float)), seen.index.to_numpy(float)
    power, exponential = (abs(np.corrcoef(x, height)[0, 1]) for x in (np.log1p(lag), lag))
    return bool(power > exponential)
