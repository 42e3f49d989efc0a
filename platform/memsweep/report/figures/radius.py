"""Panels of the stability radius against width and against horizon, with the fitted slopes written in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from memsweep.report.analysis.findings import Finding
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import clean, limit, percent, show, slope_text
from memsweep.report.style import FAINT, MUTED, LineStyle, category_styles, log_axis, value_axis
from memsweep.stability.verdict.judgement import Verdict
from memsweep.stability.verdict.radius import THRESHOLD
from memsweep.stability.verdict.trend import Slope

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GUIDE = 4.0
"""The line of a slope covers this factor of the horizons or widths."""
_LONGEST = 34  # letters of a machine's name beside its slope
_LINES = 6  # conditions in one panel
_AXES = ("horizon", "width")
_WORDS = {"horizon": "horizon T (steps)", "width": "width m"}


def deciding_threshold(findings: Sequence[Finding]) -> float:
    """The threshold by which most verdicts were reached: of the unstable ones, else of all; the strictest without any.

    A figure of several verdicts has one threshold, and shows by it what decided.
    """
    unstable = [f.judgement.threshold for f in findings if f.judgement.verdict is Verdict.UNSTABLE]
    deciding = unstable or [f.judgement.threshold for f in findings]
    return max(sorted({*deciding}), key=deciding.count, default=THRESHOLD)


def radius_gallery(findings: Sequence[Finding], labels: Labels, name: str) -> Gallery:
    """Two panels per memory (against horizon, against width), one line per machine, at the deciding threshold."""
    threshold = deciding_threshold(findings)
    machines = list(dict.fromkeys(labels.machine(finding.condition) for finding in findings))
    styles = category_styles(machines)
    by_memory: dict[str, list[Finding]] = {}
    for finding in findings:
        by_memory.setdefault(labels.memory(finding.condition), []).append(finding)
    panels = []
    for memory, part in by_memory.items():
        for chunk in _chunks(part, labels):
            for axis in _AXES:
                if any(not _rows(finding, axis, threshold).empty for finding in chunk):
                    panels.append(_panel(chunk, memory, axis, threshold, labels, styles))
    return Gallery(name, panels, columns=2)


def _chunks(findings: Sequence[Finding], labels: Labels) -> list[list[Finding]]:
    """Findings that share a panel: whole families as long as they fit, at most 6 lines."""
    families: dict[str, list[Finding]] = {}
    for finding in findings:
        families.setdefault(labels.family(finding.condition), []).append(finding)
    chunks: list[list[Finding]] = [[]]
    for members in families.values():
        if len(chunks[-1]) + len(members) > _LINES:
            chunks.append([])
        for finding in members:
            if len(chunks[-1]) == _LINES:
                chunks.append([])
            chunks[-1].append(finding)
    return [chunk for chunk in chunks if chunk]


def _rows(finding: Finding, axis: str, threshold: float) -> pd.DataFrame:
    """The radii of one panel: against horizon at the finding's width, against width at its longest horizon."""
    rows = finding.radii[finding.radii["threshold"] == threshold]
    other, value = ("width", finding.width) if axis == "horizon" else ("horizon", finding.horizon)
    return rows[rows[other] == value]


def _panel(
    findings: Sequence[Finding],
    memory: str,
    axis: str,
    threshold: float,
    labels: Labels,
    styles: Mapping[str, LineStyle],
) -> Panel:
    title = f"{_family(findings, labels) or 'radius '}against {axis}{_held(findings, axis)}"
    draw = partial(_draw, findings=findings, axis=axis, threshold=threshold, labels=labels, styles=styles)
    return Panel(memory, title, draw, lines=len(findings) + 1)


def _family(findings: Sequence[Finding], labels: Labels) -> str:
    """What all machines of a panel have in common, for its title; empty where they have nothing, or it is all."""
    families = {labels.family(finding.condition) for finding in findings}
    return f"{families.pop()}: " if len(families) == 1 and families != {""} and len(findings) > 1 else ""


def _shortened(name: str) -> str:
    """The end of a long name: what tells machines apart comes last."""
    return name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"


def _held(findings: Sequence[Finding], axis: str) -> str:
    values = sorted({f.width if axis == "horizon" else f.horizon for f in findings})
    word = "width" if axis == "horizon" else "horizon"
    return f" ({word} {' or '.join(show(value) for value in values)})" if values else ""


def _draw(
    ax: Axes,
    findings: Sequence[Finding],
    axis: str,
    threshold: float,
    labels: Labels,
    styles: Mapping[str, LineStyle],
) -> None:
    ax.set_yscale("log")
    handles = []
    for index, finding in enumerate(findings):
        name = labels.machine(finding.condition)
        shown = labels.member(finding.condition) if _family(findings, labels) else name
        slope = _slope(finding, axis, threshold)
        shift = 1.02 ** (index - (len(findings) - 1) / 2)  # lines that coincide stay visible
        _condition(ax, _rows(finding, axis, threshold), axis, slope, styles[name], shift)
        label = f"{clean(_shortened(shown))}:  {slope_text(slope)}"
        handles.append(Line2D([], [], label=label, **styles[name].line()))
    value_axis(ax, sorted({float(x) for finding in findings for x in _rows(finding, axis, threshold)[axis]}))
    _room(ax)
    _guide(ax, findings[0].judgement.criteria.slope_limit)
    log_axis(ax, "y")
    ax.grid(axis="y", which="both", color=FAINT, linewidth=0.4)
    ax.set_xlabel(_WORDS[axis])
    ax.set_ylabel(f"radius β at {percent(threshold)} of L₀")
    ax.legend(
        handles=handles,
        title="limit slope [95 % over seeds]",
        title_fontsize=7,
        loc="upper left",
        bbox_to_anchor=(-0.12, -0.2),
        alignment="left",
        handlelength=3.2,
        labelspacing=0.35,
    )


def _slope(finding: Finding, axis: str, threshold: float) -> Slope:
    trends = finding.judgement.by_threshold[threshold]
    return trends.horizon.limit if axis == "horizon" else trends.along_width


def _condition(ax: Axes, rows: pd.DataFrame, axis: str, slope: Slope, style: LineStyle, shift: float) -> None:
    _seeds(ax, rows, axis, style, shift)
    middle = medians(rows[rows["valid"].astype(bool)], axis)
    if middle.empty:
        return
    _fit(ax, middle, slope, style, shift)
    inside = middle[middle["censored"] == ""]
    marks = {**style.line(), "linestyle": "none", "markersize": 5.5}
    ax.plot(inside.index * shift, inside["median"], **marks, zorder=3)
    arrow = {"arrowstyle": "<|-", "facecolor": "white", "edgecolor": style.color, "shrinkA": 0, "shrinkB": 0}
    for side, tail in (("above", 14), ("below", -14)):
        beyond = middle[middle["censored"] == side]
        for x, y in zip(beyond.index * shift, beyond["edge"], strict=True):
            ax.annotate("", (x, y), xytext=(0, tail), textcoords="offset points", arrowprops=arrow)
            ax.plot([x], [y], marker=style.marker, markerfacecolor="white", markeredgecolor=style.color, zorder=3)


def _seeds(ax: Axes, rows: pd.DataFrame, axis: str, style: LineStyle, shift: float) -> None:
    """Every replica as a small mark: filled where its fit is valid, hollow where it is not."""
    for valid, part in rows[np.isfinite(rows["radius"].astype(float))].groupby(rows["valid"].astype(bool)):
        look: dict[str, Any] = {"marker": "o" if valid else "s", "markersize": 2.6 if valid else 3.4}
        look |= {"markerfacecolor": style.color if valid else "none", "markeredgecolor": style.color}
        ax.plot(part[axis] * shift, part["radius"], linestyle="none", markeredgewidth=0.5, alpha=0.45, **look)


def medians(valid: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Per width or horizon: the median radius over seeds, and on which side of the grid it lies when beyond it.

    Args:
        valid: rows of ``Finding.radii`` whose fits are valid.
        axis: ``width`` or ``horizon``.

    Returns:
        Columns median (infinite or 0 beyond the grid), edge (a number in any case) and censored.
    """
    at, radii, sides = valid[axis].to_numpy(), valid["radius"].to_numpy(float), valid["censored"].to_numpy()
    places = np.unique(at)
    rows = [median_radius(radii[at == place], sides[at == place]) for place in places]
    return pd.DataFrame(rows, columns=["median", "edge", "censored"], index=pd.Index(places, name=axis))


def median_radius(radii: np.ndarray, sides: np.ndarray) -> tuple[float, float, str]:
    """One row of ``medians``, from the radii and what censors them."""
    median = _median(np.where(sides == "above", math.inf, np.where(sides == "below", 0.0, radii)))
    return median, _median(radii), "above" if math.isinf(median) else "below" if median == 0 else ""


def _median(values: np.ndarray) -> float:
    """The median of those that are known."""
    values = values[~np.isnan(values)]
    return float(np.median(values)) if values.size else math.nan


def _fit(ax: Axes, middle: pd.DataFrame, slope: Slope, style: LineStyle, shift: float) -> None:
    inside = middle[middle["censored"] == ""]
    if inside.empty or not math.isfinite(slope.estimate):
        return
    # the slope is that of the limit, so its line is drawn at the end of the range
    last = math.log(inside.index.max())
    ends = np.array([max(math.log(inside.index.min()), last - math.log(_GUIDE)), last])
    level = math.log(inside["median"].iloc[-1]) - slope.estimate * last
    ax.plot(np.exp(ends) * shift, np.exp(level + slope.estimate * ends), alpha=0.75, **style.stroke(), lw=1.1, zorder=1)


def _guide(ax: Axes, slope: float) -> None:
    """The slope below which a radius keeps shrinking, from the upper left corner: only directions are compared."""
    (left, right), (_, top) = ax.get_xlim(), ax.get_ylim()
    places = np.array([left * 1.1, right / 1.1])
    ax.plot(places, top / 1.15 * (places / places[0]) ** slope, color=MUTED, lw=0.8, linestyle=(0, (2, 2)))
    ax.annotate(f"slope {limit(slope)}", (places[0], top / 1.2), va="top", fontsize=6, color=MUTED)


def _room(ax: Axes) -> None:
    """At least one and a half decades of height: noise of a few percent must not look like a trend."""
    low, high = ax.get_ylim()
    missing = 1.5 - math.log10(high / low)
    grow = 10 ** max(0.06, missing / 2)
    ax.set_ylim(low / grow, high * grow)
