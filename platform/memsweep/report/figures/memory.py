"""Panels of the memory: the learned impulse response beside the target's, against the lag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from memsweep.report.analysis.findings import Finding
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import show
from memsweep.report.style import INK, LineStyle, log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DEPTH = 1e-5  # how far below the target's peak the panel reaches
_TARGET = LineStyle("#9aa3ad", "", "-")
_WIDE = LineStyle("#0072b2", "o", (0, (5, 1.5)))
_NARROW = LineStyle("#d55e00", "^", (0, (1.2, 1.4)))


def memory_gallery(findings: Sequence[Finding], labels: Labels, name: str) -> Gallery:
    """One panel per condition that has a memory function: the smallest and the largest width at the longest horizon."""
    panels = []
    for finding in {finding.key: finding for finding in reversed(findings)}.values():
        rows = _rows(finding)
        if not rows.empty:
            panels.append(_panel(finding, rows, labels))
    return Gallery(name=name, panels=tuple(reversed(panels)))


def _rows(finding: Finding) -> pd.DataFrame:
    """The memory at the longest horizon, with the width of each trial."""
    if finding.memory.empty:
        return finding.memory
    widths = finding.replicas[["identity", "seed", "width", "horizon"]]
    rows = finding.memory.merge(widths, on=["identity", "seed"], how="inner", suffixes=("", "_of_replica"))
    return rows[rows["horizon"] == finding.horizon]


def _panel(finding: Finding, rows: pd.DataFrame, labels: Labels) -> Panel:
    ends = sorted({float(rows["width"].min()), float(rows["width"].max())})
    drawn = rows[rows["width"].isin(ends)]
    title = labels.machine(finding.condition)
    where = f", horizon {show(finding.horizon)}"
    return Panel(
        group=labels.memory(finding.condition),
        title=title,
        description=f"Learned and target memory against the lag for {title}{where}, logarithmic.",
        draw=lambda ax: _draw(ax, drawn, ends),
        identities=tuple(drawn["identity"].unique()),
    )


def _draw(ax: Axes, rows: pd.DataFrame, ends: Sequence[float]) -> None:
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
    for width, style in zip(reversed(ends), (_WIDE, _NARROW), strict=False):
        _learned(ax, rows[rows["width"] == width], style, shift, power)
        handles.append(Line2D([], [], label=f"learned, width {width:g}", **style.line()))
    if power:
        log_axis(ax, "x")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.set_xlim(-1, float(seen.index[seen > peak * _DEPTH].max() if (seen > peak * _DEPTH).any() else 1) * 1.25 + 2)
    ax.set_ylim(max(peak * _DEPTH, float(seen.min()) / 8 if len(seen) else 0.0), peak * 3)
    ax.set_xlabel("lag + 1 (steps)" if power else "lag (steps)")
    ax.set_ylabel("|memory|", color=INK)
    ax.legend(handles=handles, loc="lower left" if power else "upper right", handlelength=3.2)


def _learned(ax: Axes, rows: pd.DataFrame, style: LineStyle, shift: int, power: bool) -> None:
    size = rows["learned"].abs().groupby(rows["lag"])
    spread = pd.DataFrame({"low": size.min(), "middle": size.median(), "high": size.max()}).replace(0.0, np.nan)
    lag = spread.index.to_numpy(float) + shift
    count = len(lag)
    # Few marks, evenly spread on the axis that is drawn.
    marks = np.unique(np.geomspace(1, count, 8).astype(int) - 1) if power else np.arange(0, count, max(1, count // 60))
    ax.fill_between(lag, spread["low"], spread["high"], color=style.color, alpha=0.16, linewidth=0)
    ax.plot(lag, spread["middle"], markevery=marks.tolist(), **style.line())


def _decays_like_a_power(target: pd.Series) -> bool:
    """Whether log|target| is nearer to a line in log(lag + 1) than in lag."""
    seen = target[target > target.max() * 1e-12]
    if len(seen) < 4 or seen.nunique() < 2:
        return False
    height, lag = np.log(seen.to_numpy(float)), seen.index.to_numpy(float)
    power, exponential = (abs(np.corrcoef(x, height)[0, 1]) for x in (np.log1p(lag), lag))
    return bool(power > exponential)
