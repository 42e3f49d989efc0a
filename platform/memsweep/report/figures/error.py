"""Panels of the perturbation error: sqrt(E / L0) against the radius, one line per width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle

from memsweep.report.analysis.findings import Finding
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import show
from memsweep.report.style import FAINT, MUTED, LineStyle, log_axis, ordered_styles
from memsweep.stability.verdict.radius import THRESHOLDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CEILING = 100.0  # beyond a hundred times the zero predictor, how much worse tells nothing
BESIDE = ("axes fraction", "data")  # right of the axes, at a height of the data
_RAIL = 0.13  # share of the panel's height above the ceiling, where infinite errors are shown


@dataclass(frozen=True)
class _Frame:
    """The limits that all panels of a gallery share, so that they can be compared by eye."""

    left: float
    right: float
    low: float
    high: float

    @property
    def top(self) -> float:
        return rail_top(self.low, self.high)


def rail_top(low: float, high: float) -> float:
    """Where an axis from ``low`` to ``high`` ends when a rail of infinities is put on it."""
    return float(high * (high / low) ** (_RAIL / (1 - _RAIL)))


def rail_lane(low: float, high: float, index: int, count: int) -> float:
    """Height of one line's lane within the rail of infinities."""
    return float(high * (rail_top(low, high) / high) ** ((index + 0.7) / (count + 0.4)))


def annotate_rail(ax: Axes, high: float, top: float) -> None:
    """Draw the rail itself: hatched, and named on its right."""
    ax.axhspan(high, top, facecolor="#f1f3f5", edgecolor="#c9d0d8", hatch="////", linewidth=0, zorder=0)
    ax.axhline(high, color=MUTED, linewidth=0.6)
    ax.annotate("∞", (1.02, (high * top) ** 0.5), xycoords=BESIDE, va="center", fontsize=10, color=MUTED)


def error_gallery(findings: Sequence[Finding], labels: Labels, name: str) -> Gallery:
    """One panel per condition, at its longest horizon.

    Lines are medians over seeds and bands reach from the smallest to the largest; an infinite error is drawn on a
    rail of its own at the top.
    """
    widths = sorted({float(w) for f in findings for w in f.curves["width"].dropna()})
    styles = ordered_styles(widths)
    frame = _shared_frame(findings)
    panels = tuple(_panel(finding, labels, styles, frame) for finding in findings) if frame else ()
    return Gallery(name=name, panels=panels, legend=tuple((f"width {w:g}", styles[w]) for w in widths))


def relative_error(curves: pd.DataFrame) -> pd.Series:
    """sqrt(E / L0): 1 is as bad as predicting zero."""
    relative: pd.Series = (curves["error"] / curves["zero_loss"]).pow(0.5)
    return relative


def _at_longest(finding: Finding) -> pd.DataFrame:
    curves = finding.curves
    return curves[curves["horizon"] == finding.horizon]


def _shared_frame(findings: Sequence[Finding]) -> _Frame | None:
    curves = [part[part["radius"] > 0] for part in map(_at_longest, findings)]
    radii = np.concatenate([part["radius"].to_numpy(float) for part in curves]) if curves else np.empty(0)
    if not radii.size:
        return None
    errors = np.concatenate([relative_error(part).to_numpy(float) for part in curves])
    errors = errors[np.isfinite(errors) & (errors > 0)]
    low, high = (errors.min(), errors.max()) if errors.size else (0.1, 1.0)
    high = min(max(float(high) * 1.2, 2.0), _CEILING)
    return _Frame(float(radii.min()), float(radii.max()), max(min(float(low) / 1.5, 0.05), high * 1e-8), high)


def _panel(finding: Finding, labels: Labels, styles: Mapping[float, LineStyle], frame: _Frame) -> Panel:
    part = _at_longest(finding)
    title = labels.machine(finding.condition)
    where = f", horizon {show(finding.horizon)}"
    return Panel(
        group=labels.memory(finding.condition),
        title=title,
        description=f"Root of the relative error against the perturbation radius for {title}{where}.",
        draw=lambda ax: _draw(ax, part, styles, frame),
        identities=tuple(part["identity"].unique()),
        right=0.42,
    )


def _draw(ax: Axes, part: pd.DataFrame, styles: Mapping[float, LineStyle], frame: _Frame) -> None:
    log_axis(ax, "x")
    log_axis(ax, "y")
    ax.set_xlim(frame.left / 1.15, frame.right * 1.15)
    ax.set_ylim(frame.low, frame.top)
    window = Rectangle((frame.left / 1.15, frame.low), frame.right * 2, frame.high - frame.low, transform=ax.transData)
    _reference_lines(ax, frame)
    part = part[part["radius"] > 0].assign(relative=relative_error(part))
    for index, (width, style) in enumerate(styles.items()):
        rows = part[part["width"] == width]
        if not rows.empty:
            spread = rows.groupby("radius")["relative"].agg(["min", "median", "max"]).clip(lower=frame.low)
            step = max(1, math.ceil(len(spread) / 8))
            marks = (index * step // len(styles), step)  # interleaved: lines that coincide all show their marks
            _median(ax, spread, style, frame, window, marks)
            _rail(ax, spread, style, rail_lane(frame.low, frame.high, index, len(styles)), marks)
    ax.set_xlabel("perturbation radius β")
    ax.set_ylabel("√(E(β) / L₀)")


def _median(
    ax: Axes, spread: pd.DataFrame, style: LineStyle, frame: _Frame, window: Rectangle, marks: tuple[int, int]
) -> None:
    radius = spread.index.to_numpy(float)
    line = ax.plot(radius, spread["median"].replace(np.inf, np.nan), markevery=marks, **style.line())[0]
    far = frame.high * 1e3  # beyond the window: a band up to infinity fills it to the top
    band = ax.fill_between(
        radius, spread["min"].clip(upper=far), spread["max"].clip(upper=far), color=style.color, alpha=0.16, linewidth=0
    )
    for artist in (line, band):
        artist.set_clip_path(window)


def _rail(ax: Axes, spread: pd.DataFrame, style: LineStyle, lane: float, marks: tuple[int, int]) -> None:
    """The radii whose median error is infinite, in the width's own lane of the rail."""
    infinite = spread.index[np.isinf(spread["median"].to_numpy(float))].to_numpy(float)
    if infinite.size:
        every = (0, marks[1])
        ax.plot(
            infinite, np.full(infinite.size, lane), markevery=every, **{**style.line(), "markersize": 3.2, "lw": 0.9}
        )


def _reference_lines(ax: Axes, frame: _Frame) -> None:
    annotate_rail(ax, frame.high, frame.top)
    beside: dict[str, Any] = {"xycoords": BESIDE, "va": "center", "fontsize": 6.5, "color": MUTED}
    ax.axhline(1.0, color=MUTED, linewidth=0.8, zorder=0.5)
    ax.annotate("L₀", (1.02, 1.0), **beside)
    crowded = frame.top > 3e3 * frame.low  # then only the outer thresholds' labels keep apart
    for threshold in THRESHOLDS:
        ax.axhline(threshold**0.5, color=FAINT, linewidth=0.8, zorder=0.5)
        if not crowded or threshold in (THRESHOLDS[0], THRESHOLDS[-1]):
            ax.annotate(f"{threshold:.0%}".replace("%", " %"), (1.02, threshold**0.5), **beside)
