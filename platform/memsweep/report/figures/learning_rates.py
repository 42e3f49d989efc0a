"""Panels of a learning-rate study: the loss and the gradient-over-weight criterion against the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memsweep.report.analysis.learning_rates import RateStudy, rate_of
from memsweep.report.analysis.losses import CRITERIA, LossRow, Spread
from memsweep.report.figures.error import BESIDE, annotate_rail, rail_lane, rail_top
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
        panels.append(_panel(study, styles, "test loss", _draw_loss))
        if any(row.spread(_CRITERION).middle > 0 for rows in study.lines.values() for row in rows):
            panels.append(_panel(study, styles, "largest gradient over weight", _draw_criterion))
    return Gallery(name=name, panels=tuple(panels), legend=tuple(styles.items()), columns=2)


def _panel(
    study: RateStudy,
    styles: Mapping[str, LineStyle],
    what: str,
    draw: Callable[[Axes, RateStudy, Mapping[str, LineStyle]], None],
) -> Panel:
    identities = dict.fromkeys(i for rows in study.lines.values() for row in rows for i in row.identities)
    return Panel(
        group=study.memory,
        title=f"{study.machine}: {what}",
        description=f"{what} against the learning rate for {study.machine}, one line each: {', '.join(study.lines)}.",
        draw=lambda ax: draw(ax, study, styles),
        identities=tuple(identities),
        width=3.8,
        right=0.3,
    )


def _draw_loss(ax: Axes, study: RateStudy, styles: Mapping[str, LineStyle]) -> None:
    rows = [row for line in study.lines.values() for row in line]
    finite = [v for row in rows for v in (row.loss.low, row.loss.middle, row.loss.high) if math.isfinite(v) and v > 0]
    zero = [row.zero_loss for row in rows if row.zero_loss > 0]
    known = [row.memoryless for row in rows if row.memoryless > 0]
    low, high = (min([*finite, *known]) / 1.5, max([*finite, *zero]) * 1.5) if finite else (0.1, 10.0)
    high = max(high, low * 10)
    diverged = any(row.diverged for row in rows)
    _axes(ax, study, low, rail_top(low, high) if diverged else high)
    if zero:
        ax.axhline(zero[0], color=MUTED, linewidth=0.8, zorder=0.5)
        ax.annotate("L₀", (1.02, zero[0]), xycoords=BESIDE, va="center", fontsize=6.5, color=MUTED)
    for baseline in sorted({row.memoryless for row in rows if row.memoryless > 0} - set(zero)):
        ax.axhline(baseline, color=INK, linewidth=0.9, zorder=0.5)
        ax.annotate("memoryless", (0.01, baseline), xycoords=BESIDE, va="bottom", fontsize=6.5, color=MUTED)
    if diverged:
        annotate_rail(ax, high, rail_top(low, high))
    for index, (name, line) in enumerate(study.lines.items()):
        _line(ax, line, [row.loss for row in line], styles[name], high)
        lost = [row for row in line if row.diverged]
        lane = rail_lane(low, high, index, len(study.lines))
        for row in lost:
            ax.plot([rate_of(row)], [lane], **{**styles[name].line(), "markersize": 4.0})
            if row.diverged < row.seeds:  # a bare mark: all of them
                spot: dict[str, Any] = {"xytext": (3.5, -1.8), "textcoords": "offset points", "fontsize": 5.5}
                ax.annotate(f"{row.diverged}/{row.seeds}", (rate_of(row), lane), **spot)
    ax.set_ylabel("test loss")


def _draw_criterion(ax: Axes, study: RateStudy, styles: Mapping[str, LineStyle]) -> None:
    spreads = [row.spread(_CRITERION) for line in study.lines.values() for row in line]
    finite = [v for s in spreads for v in (s.low, s.middle, s.high) if math.isfinite(v) and v > 0]
    high = max(finite) * 1.5
    _axes(ax, study, min(finite) / 1.5, max(high, min(finite) * 10))
    for name, line in study.lines.items():
        _line(ax, line, [row.spread(_CRITERION) for row in line], styles[name], high)
    ax.set_ylabel("max |gradient| / |weight|")


def _axes(ax: Axes, study: RateStudy, low: float, top: float) -> None:
    value_axis(ax, study.rates)
    log_axis(ax, "y", label_between=top < 200 * low)
    ax.tick_params(axis="y", which="minor", labelsize=6.5)
    ax.set_xlim(study.rates[0] / _MARGIN, study.rates[-1] * _MARGIN)
    ax.set_ylim(low, top)
    ax.set_xlabel("learning rate")


def _line(ax: Axes, rows: Sequence[LossRow], spreads: Sequence[Spread], style: LineStyle, high: float) -> None:
    """Median over seeds, with a band from the smallest to the largest; a band up to infinity ends at the rail."""
    rate = np.array([rate_of(row) for row in rows])
    low, middle, top = (np.array([getattr(s, name) for s in spreads]) for name in ("low", "middle", "high"))
    ax.fill_between(rate, np.minimum(low, high), np.minimum(top, high), color=style.color, alpha=0.14, linewidth=0)
    ax.plot(rate, np.where(np.isfinite(middle), middle, np.nan), **style.line())
