"""Panels of the perturbation error: sqrt(E / L0) against the radius, one line per width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memsweep.report.analysis.findings import Finding
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import percent
from memsweep.report.style import FAINT, MUTED, LineStyle, log_axis, ordered_styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CEILING = 100.0  # beyond a hundred times the zero predictor, how much worse tells nothing
BESIDE = ("axes fraction", "data")  # right of the axes, at a height of the data
_RAIL = 0.13  # share of the panel's height above the ceiling, where infinite errors are shown


@dataclass(frozen=True)
class _Frame:
    """The limits that all panels of a gallery share, so that they can be compared by eye, and thresholds to draw."""

    left: float
    right: float
    low: float
    high: float
    thresholds: tuple[float, ...]


def draw_rail(ax: Axes, low: float, high: float) -> None:
    """Set the y axis from ``low`` to ``high`` with a rail of infinities on top, which hides what is beyond."""
    top = rail_lane(low, high, 0, 0)
    ax.set_ylim(low, top)
    ax.axhspan(high, top, facecolor="#f1f3f5", edgecolor="#c9d0d8", hatch="////", linewidth=0, zorder=3)
    ax.axhline(high, color=MUTED, linewidth=0.6, zorder=3)
    ax.annotate("∞", (1.02, (high * top) ** 0.5), xycoords=BESIDE, va="center", fontsize=10, color=MUTED)


def rail_lane(low: float, high: float, index: int, count: int) -> float:
    """Height of one line's lane within the rail of infinities; the rail's top where no lane is counted."""
    share = (index + 0.7) / (count + 0.4) if count else 1.0
    return float(high * (high / low) ** (share * _RAIL / (1 - _RAIL)))


def error_gallery(findings: Sequence[Finding], labels: Labels, name: str) -> Gallery:
    """One panel per condition, at its longest horizon.

    Lines are medians over seeds and bands reach from the smallest to the largest; an infinite error is drawn on a
    rail of its own at the top.
    """
    parts = [_at_longest(finding) for finding in findings]
    styles = ordered_styles(sorted({float(w) for part in parts for w in part["width"]}))
    if not any(map(len, parts)):
        return Gallery(name, ())
    frame = _shared_frame(pd.concat(parts), findings[0].judgement.criteria.thresholds)
    panels = [
        Panel(*labels.names(f.condition), partial(_draw, part=part, styles=styles, frame=frame))
        for f, part in zip(findings, parts, strict=True)
    ]
    return Gallery(name, panels, [(f"width {width:g}", style) for width, style in styles.items()])


def _at_longest(finding: Finding) -> pd.DataFrame:
    """The curves at the longest horizon, with the relative error sqrt(E / L0): 1 is as bad as predicting zero."""
    curves = finding.curves[(finding.curves["horizon"] == finding.horizon) & (finding.curves["radius"] > 0)]
    return curves.assign(relative=(curves["error"] / curves["zero_loss"]).pow(0.5))


def _shared_frame(curves: pd.DataFrame, thresholds: tuple[float, ...]) -> _Frame:
    errors = curves["relative"][np.isfinite(curves["relative"]) & (curves["relative"] > 0)]
    low, high = (errors.min(), errors.max()) if len(errors) else (0.1, 1.0)
    high = min(max(float(high) * 1.2, 2.0), _CEILING)
    left, right = float(curves["radius"].min()), float(curves["radius"].max())
    return _Frame(left, right, max(min(float(low) / 1.5, 0.05), high * 1e-8), high, thresholds)


def _draw(ax: Axes, part: pd.DataFrame, styles: Mapping[float, LineStyle], frame: _Frame) -> None:
    log_axis(ax, "x")
    log_axis(ax, "y")
    ax.set_xlim(frame.left / 1.15, frame.right * 1.15)
    draw_rail(ax, frame.low, frame.high)
    _reference_lines(ax, frame)
    far = frame.high * 1e3  # a band up to infinity fills the panel to the rail
    for index, (width, style) in enumerate(styles.items()):
        rows = part[part["width"] == width]
        if rows.empty:
            continue
        spread = rows.groupby("radius")["relative"].agg(["min", "median", "max"]).clip(lower=frame.low)
        step = max(1, math.ceil(len(spread) / 8))
        marks = (index * step // len(styles), step)  # interleaved: lines that coincide all show their marks
        ax.plot(spread["median"].replace(np.inf, np.nan), markevery=marks, **style.line())
        band = (spread.index, spread["min"].clip(upper=far), spread["max"].clip(upper=far))
        ax.fill_between(*band, color=style.color, alpha=0.16, linewidth=0)
        lost = spread.index[np.isinf(spread["median"])]
        lane = np.full(len(lost), rail_lane(frame.low, frame.high, index, len(styles)))
        ax.plot(lost, lane, markevery=step, **{**style.line(), "markersize": 3.2, "linewidth": 0.9}, zorder=4)
    ax.set_xlabel("perturbation radius β")
    ax.set_ylabel("√(E(β) / L₀)")


def _reference_lines(ax: Axes, frame: _Frame) -> None:
    beside: dict[str, Any] = {"xycoords": BESIDE, "va": "center", "fontsize": 6.5, "color": MUTED}
    ax.axhline(1.0, color=MUTED, linewidth=0.8, zorder=0.5)
    ax.annotate("L₀", (1.02, 1.0), **beside)
    crowded = frame.high > 1e3 * frame.low  # then only the outer thresholds' labels keep apart
    for threshold in frame.thresholds:
        ax.axhline(threshold**0.5, color=FAINT, linewidth=0.8, zorder=0.5)
        if not crowded or threshold in (frame.thresholds[0], frame.thresholds[-1]):
            ax.annotate(percent(threshold), (1.02, threshold**0.5), **beside)
