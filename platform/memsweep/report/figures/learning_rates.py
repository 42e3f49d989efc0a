"""Panels of a learning-rate study: the loss and the gradient-over-weight criterion against the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from memsweep.report.analysis.learning_rates.curves import RateStudy, rate_of
from memsweep.report.analysis.losses import CRITERIA, LossRow, Spread
from memsweep.report.figures.error import BESIDE, draw_rail, rail_lane
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.style import INK, MUTED, LineStyle, category_styles, log_axis, value_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARGIN = 1.6  # left and right of the outermost rates, as a factor
_CRITERION = CRITERIA[0]


def rate_gallery(studies: Sequence[RateStudy], name: str) -> Gallery:
    """Two panels per study: the test loss, and beside it the criterion where it was measured."""
    styles = category_styles(list(dict.fromkeys(line for study in studies for line in study.lines)))
    panels = []
    for study in studies:
        draw = partial(_draw_loss, study=study, styles=styles)
        panels.append(Panel(study.memory, f"{study.machine}: test loss", draw))
        if any(row.spread(_CRITERION).middle > 0 for rows in study.lines.values() for row in rows):
            title = f"{study.machine}: largest gradient over weight"
            panels.append(Panel(study.memory, title, partial(_draw_criterion, study=study, styles=styles)))
    return Gallery(name, panels, tuple(styles.items()), columns=2)


def _draw_loss(ax: Axes, study: RateStudy, styles: Mapping[str, LineStyle]) -> None:
    rows = [row for line in study.lines.values() for row in line]
    zero = {row.zero_loss for row in rows if row.zero_loss > 0}
    known = {row.memoryless for row in rows if row.memoryless > 0}
    low, high = _limits([row.loss for row in rows], {*zero, *known})
    _axes(ax, study, low, high)
    if zero:
        ax.axhline(min(zero), color=MUTED, linewidth=0.8, zorder=0.5)
        ax.annotate("L₀", (1.02, min(zero)), xycoords=BESIDE, va="center", fontsize=6.5, color=MUTED)
    for baseline in sorted(known - zero):
        ax.axhline(baseline, color=INK, linewidth=0.9, zorder=0.5)
        ax.annotate("memoryless", (0.01, baseline), xycoords=BESIDE, va="bottom", fontsize=6.5, color=MUTED)
    if any(row.diverged for row in rows):
        draw_rail(ax, low, high)
    for index, (name, line) in enumerate(study.lines.items()):
        _line(ax, line, [row.loss for row in line], styles[name])
        lane = rail_lane(low, high, index, len(study.lines))
        for row in line:
            if row.diverged:
                ax.plot([rate_of(row)], [lane], **{**styles[name].line(), "markersize": 4.0}, zorder=4)
            if 0 < row.diverged < row.seeds:  # a bare mark: all of them
                spot: dict[str, Any] = {"xytext": (3.5, -1.8), "textcoords": "offset points", "fontsize": 5.5}
                ax.annotate(f"{row.diverged}/{row.seeds}", (rate_of(row), lane), **spot, zorder=4)
    ax.set_ylabel("test loss")


def _draw_criterion(ax: Axes, study: RateStudy, styles: Mapping[str, LineStyle]) -> None:
    _axes(ax, study, *_limits([row.spread(_CRITERION) for line in study.lines.values() for row in line]))
    for name, line in study.lines.items():
        _line(ax, line, [row.spread(_CRITERION) for row in line], styles[name])
    ax.set_ylabel("max |gradient| / |weight|")


def _limits(spreads: Sequence[Spread], others: Iterable[float] = ()) -> tuple[float, float]:
    found = [value for one in spreads for value in (one.low, one.middle, one.high)]
    finite = [value for value in (*found, *others) if math.isfinite(value) and value > 0] or [1.0]
    low = min(finite) / 1.5
    return low, max(max(finite) * 1.5, low * 10)


def _axes(ax: Axes, study: RateStudy, low: float, top: float) -> None:
    value_axis(ax, study.rates)
    log_axis(ax, "y")
    ax.set_xlim(study.rates[0] / _MARGIN, study.rates[-1] * _MARGIN)
    ax.set_ylim(low, top)
    ax.set_xlabel("learning rate")


def _line(ax: Axes, rows: Sequence[LossRow], spreads: Sequence[Spread], style: LineStyle) -> None:
    """Median over seeds, with a band from the smallest to the largest."""
    rate = np.array([rate_of(row) for row in rows])
    low, middle, top = (np.array([getattr(s, name) for s in spreads]) for name in ("low", "middle", "high"))
    far = 1e3 * np.nanmax(np.where(np.isfinite(top), top, middle), initial=1.0)
    ax.fill_between(rate, np.minimum(low, far), np.minimum(top, far), color=style.color, alpha=0.14, linewidth=0)
    ax.plot(rate, np.where(np.isfinite(middle), middle, np.nan), **style.line())
