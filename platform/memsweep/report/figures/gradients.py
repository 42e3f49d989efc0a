"""Panels of the gradient: how much is left of it further back, beside its bound and the memory function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from memsweep.report.analysis.losses import LossRow, largest
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import show
from memsweep.report.style import LineStyle, log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DEEPEST, _HIGHEST = 1e-12, 1e12  # beyond them a picture tells nothing more
_GRADIENT = LineStyle("#0072b2", "o", "-")
_BOUND = LineStyle("#9aa3ad", "", "-")
_MEMORY = LineStyle("#d55e00", "^", (0, (5, 1.5)))
_ROOM = 1000.0  # above what was measured, for its bound
_MARKS = 12


def gradient_gallery(rows: Sequence[LossRow], memory: pd.DataFrame, labels: Labels, name: str) -> Gallery:
    """A panel per condition: at its longest horizon, and there of the widest; none where no gradient was measured."""
    if memory.empty or "gradient" not in memory or not memory["gradient"].notna().any():
        return Gallery(name=name, panels=())
    parts = [(row, memory[memory["identity"].isin(row.identities)]) for row in largest(rows)]
    sizes = len({(row.width, row.horizon) for row in rows}) > 1
    panels = [_panel(row, part, labels, sizes) for row, part in parts if part["gradient"].notna().any()]
    legend = (("gradient norm, measured", _GRADIENT), ("its bound", _BOUND), ("memory function", _MEMORY))
    return Gallery(name=name, panels=tuple(panels), legend=legend if panels else ())


def _panel(row: LossRow, part: pd.DataFrame, labels: Labels, sizes: bool) -> Panel:
    title = labels.machine(row.condition)
    where = f" (width {show(row.width)}, horizon {show(row.horizon)})" if sizes else ""
    return Panel(
        group=labels.memory(row.condition),
        title=title + where,
        description=(
            f"Norm of the gradient of the last state by the state so many steps before it, its bound, and the memory "
            f"function, against the lag for {title}{where}, logarithmic."
        ),
        draw=lambda ax: _draw(ax, part),
        identities=row.identities,
    )


def _draw(ax: Axes, part: pd.DataFrame) -> None:
    peak = part["learned"].abs().groupby(part["seed"]).transform("max")
    memory = _spread(part["lag"], part["learned"].abs() / peak.where(peak > 0))
    gradient, bound = (_spread(part["lag"], part[name]) for name in ("gradient", "gradient_bound"))
    ax.plot(bound.index, bound["middle"], **{**_BOUND.stroke(), "lw": 3.6}, solid_capstyle="round", zorder=1)
    for spread, style in ((memory, _MEMORY), (gradient, _GRADIENT)):
        ax.fill_between(spread.index, spread["low"], spread["high"], color=style.color, alpha=0.16, linewidth=0)
        marks = list(range(0, len(spread), max(1, len(spread) // _MARKS)))
        ax.plot(spread.index, spread["middle"], markevery=marks, **{**style.line(), "markersize": 3.6})
    measured = _finite([gradient["low"], gradient["high"], memory["middle"]])
    every = _finite([measured, bound["middle"]])
    bottom = max(float(every.min()), _DEEPEST) / 1.5
    # A bound that grows without end leaves through the top, and what was measured can still be read.
    top = max(1.0, min(float(every.max()), float(measured.max()) * _ROOM)) * 1.5
    top = max(min(top, _HIGHEST), bottom * 10)
    log_axis(ax, "y", label_between=top < 50 * bottom)
    ax.tick_params(axis="y", which="minor", labelsize=6.5)
    ax.set_ylim(bottom, top)
    ax.set_xlim(0, max(float(part["lag"].max()), 1.0))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlabel("lag (steps)")
    ax.set_ylabel("share left")


def _finite(parts: Sequence[pd.Series]) -> pd.Series:
    values = pd.concat(list(parts))
    return values[np.isfinite(values)]


def _spread(lag: pd.Series, values: pd.Series) -> pd.DataFrame:
    """Over the seeds, by lag; lags at which nothing was measured are left out, and zeros, which have no logarithm."""
    known = values.notna() & (values > 0)
    size = values[known].groupby(lag[known])
    return pd.DataFrame({"low": size.min(), "middle": size.median(), "high": size.max()})
