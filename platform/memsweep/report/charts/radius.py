"""Charts of the radii behind a verdict, and of their slopes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd

from memsweep.report.analysis.contents import Finding
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import figure, limit, percent, show, slope_text
from memsweep.report.rows.verdicts import MOVES, measured, share_of
from memsweep.report.values.chart import MOST_BESIDE, VERDICTS, Chart, chart, rows_chart
from memsweep.stability.verdict.judgement import Trends, Verdict
from memsweep.stability.verdict.radius import THRESHOLD
from memsweep.stability.verdict.trend import Slope

_GUIDE = 4.0
"""The line of a slope covers this factor of the horizons or widths."""
_LINES = 6  # conditions in one chart
_AXES = {"horizon": "horizon T (steps)", "width": "width m"}
_DECADES = 1.5  # of height at least: noise of a few percent must not look like a trend
JUDGED = "as judged"
_NO_FIT = (
    "No model fits its target here, so that there is no radius to draw: hollow marks are of fits that are not valid. "
    "The reasons of each verdict say what is short."
)
_KEYS = "limit slope [95 %]"


@dataclass(frozen=True)
class _Shown:
    """What a chart of radii shows: of which ball, at which threshold, against which axis, at which width."""

    ball: str
    threshold: float
    axis: str
    width: float | None
    seeds: bool


def deciding_threshold(findings: Sequence[Finding]) -> float:
    """The threshold by which most verdicts were reached: of the unstable ones, else of all; the strictest without any.

    A figure of several verdicts has one threshold, and shows by it what decided.
    """
    unstable = [f.judgement.threshold for f in findings if f.judgement.verdict is Verdict.UNSTABLE]
    deciding = unstable or [f.judgement.threshold for f in findings]
    return max(sorted({*deciding}), key=deciding.count, default=THRESHOLD)


def radius_charts(findings: Sequence[Finding], labels: Labels) -> Iterator[Chart]:
    """Of one ball, at the deciding threshold: for each memory against horizon and against width, as judged."""
    threshold = deciding_threshold(findings)
    shown = [_charts(findings, labels, axis, threshold, None) for axis in _axes(findings)]
    for beside in zip_longest(*shown):
        yield from (each for each in beside if each is not None)


def _axes(findings: Sequence[Finding]) -> Sequence[str]:
    """The axes along which something was measured at several places; of a single size the horizon."""
    return [axis for axis in _AXES if any(f.radii[axis].nunique() > 1 for f in findings)] or ["horizon"]


def other_charts(findings: Sequence[Finding], labels: Labels) -> Iterator[Chart]:
    """What a reader may choose instead: other thresholds, and other widths than the verdicts are about."""
    shown = deciding_threshold(findings)
    widths = sorted({float(width) for finding in findings for width in finding.radii["width"].unique()})
    thresholds = findings[0].judgement.criteria.thresholds if findings else ()
    for threshold in thresholds:
        for axis in _axes(findings):
            for width in (None, *(widths if axis == "horizon" and len(widths) > 1 else ())):
                if (threshold, width) != (shown, None):
                    yield from _charts(findings, labels, axis, threshold, width)


def choice_of(finding: Finding, labels: Labels, memories: int) -> dict[str, str]:
    """The words by which a reader comes to the chart that decided a verdict."""
    judged, (axis, _) = finding.judgement, finding.deciding
    return _choice(finding.ball, judged.threshold, axis, None, labels.memory(finding.condition), memories)


def _choice(ball: str, threshold: float, axis: str, width: float | None, memory: str, memories: int) -> dict[str, str]:
    moving = re.sub(r"^the | moves?$| weights", "", MOVES[ball])
    choice = {"error limit": percent(threshold), "moving weights": moving}
    choice |= {"memory": memory} if memories > MOST_BESIDE else {}
    return choice | {"against": axis, "width": JUDGED if width is None else show(width)}


def _charts(
    findings: Sequence[Finding], labels: Labels, axis: str, threshold: float, width: float | None
) -> Iterator[Chart]:
    by_memory: dict[str, list[Finding]] = {}
    for finding in findings:
        by_memory.setdefault(labels.memory(finding.condition), []).append(finding)
    limits = _limits([measured(_rows(finding, axis, threshold, width)) for finding in findings])
    for memory, part in by_memory.items():
        choice = _choice(part[0].ball, threshold, axis, width, memory, len(by_memory))
        for chunk in _chunks(part, labels):
            shown = _Shown(part[0].ball, threshold, axis, width, seeds=width is None)
            found = _chart(chunk, memory, shown, labels, limits)
            if found is not None:
                yield found | {"choice": choice, "ball": part[0].ball, "memory": memory}


def _chunks(findings: Sequence[Finding], labels: Labels) -> list[list[Finding]]:
    """Findings that share a chart: whole families as long as they fit, at most 6 lines."""
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


def _rows(finding: Finding, axis: str, threshold: float, width: float | None) -> pd.DataFrame:
    """The radii of one line: against horizon at one width, against width at the finding's longest horizon."""
    rows = finding.radii[finding.radii["threshold"] == threshold]
    if axis == "width":
        return rows[rows["horizon"] == finding.horizon]
    return rows[rows["width"] == (finding.width if width is None else width)]


def _limits(tables: Sequence[pd.DataFrame]) -> list[float]:
    radii = np.concatenate([table["radius"].to_numpy(float) for table in tables] or [np.empty(0)])
    radii = radii[np.isfinite(radii) & (radii > 0)]
    low, high = (math.log10(radii.min()), math.log10(radii.max())) if radii.size else (-1.0, 0.0)
    room = max(0.08, (_DECADES - (high - low)) / 2)
    return [10 ** (low - room), 10 ** (high + room) * 1.45]  # room for the guide


def _chart(
    findings: Sequence[Finding], memory: str, shown: _Shown, labels: Labels, limits: Sequence[float]
) -> Chart | None:
    names = [labels.machine(finding.condition) for finding in findings]
    made = {name: _line(finding, shown) for name, finding in zip(names, findings, strict=True)}
    parts = {
        part: [[name, one[part]] for name, one in made.items() if one.get(part)]
        for part in ("lines", "beyond", "seeds")
    }
    places = sorted({point[0] for each in parts.values() for _, points in each for point in points})
    if not places:
        return None
    lines: dict[str, list[Any]] = dict(parts.pop("lines"))
    named = {name: one for name, one in made.items() if one}
    tones = {name: f.judgement.verdict.value for name, f in zip(names, findings, strict=True) if name in named}
    guides = [[name, one["fit"], one["slope"]] for name, one in named.items() if one["fit"]]
    guides += _guide(places, limits, findings[0].judgement.criteria.slope_limit)
    said = f"radius β at {percent(shown.threshold)} {share_of(findings)}"
    more: dict[str, Any] = {"ticks": places, "limits": {"y": [*limits]}, "guides": guides, "look": VERDICTS, **parts}
    more |= {"keys": {name: one["slope"] for name, one in named.items()}, "keys_title": _KEYS, "tones": tones}
    more |= {"words": _words(memory, lines, tones, said)} | ({} if lines else {"note": _NO_FIT})
    title = f"{memory}: {_family(findings, labels) or 'radius '}against {shown.axis}{_held(findings, shown)}"
    return chart(title, _AXES[shown.axis], said, "xy", lines, **more)


def _line(finding: Finding, shown: _Shown) -> dict[str, Any]:
    """What is drawn of one condition; empty where it has no radius that is shown."""
    rows = _rows(finding, shown.axis, shown.threshold, shown.width)
    middle = medians(rows[rows["valid"].astype(bool)], shown.axis)
    every = measured(rows) if shown.seeds else rows[:0]
    if middle.empty and every.empty:
        return {}
    slope, outside = _slope(finding, shown.axis, shown.threshold), middle[middle["censored"] != ""]
    marks = zip(every[shown.axis], every["radius"], every["valid"], strict=True)
    return {
        "lines": [*_points(rows, middle, shown.axis)],
        "beyond": [[x, *row] for x, *row in outside[["edge", "censored"]].itertuples()],
        "seeds": [[float(x), float(y), int(valid)] for x, y, valid in marks],
        "fit": _fit(middle, slope),
        "slope": slope_text(slope),
    }


def _points(rows: pd.DataFrame, middle: pd.DataFrame, axis: str) -> Iterator[list[Any]]:
    """The median of the valid seeds, or the edge of the grid beyond which it lies, and the valid seeds' ends."""
    at, radii = rows[axis].to_numpy(), rows["radius"].to_numpy(float)
    valid, identities = rows["valid"].to_numpy(bool), rows["identity"].to_numpy()
    for x, median, edge, side in middle.itertuples():
        here = at == x
        found, fit = radii[here & valid], int((here & valid).sum())
        seeds = int(here.sum())
        said = [f"{fit} of {seeds} seeds fit"] if fit < seeds else []
        words = "; ".join([*said, *([f"{side} the grid"] if side else [])])
        ends = [edge if side else median, float(found.min()), float(found.max())]
        yield [float(x), *ends, str(identities[here][0]), words]


def _words(memory: str, lines: dict[str, list[Any]], tones: dict[str, str], said: str) -> str:
    """``polynomial, direct (unstable): from 0.05 at 50 to 0.01 at 400.``"""
    parts = [
        f"{memory}, {name} ({tones[name]}): from {figure(points[0][1])} at {figure(points[0][0])} to "
        f"{figure(points[-1][1])} at {figure(points[-1][0])}"
        for name, points in lines.items()
    ]
    return f"{said}. {'; '.join(parts)}."


def _family(findings: Sequence[Finding], labels: Labels) -> str:
    """What all machines of a chart have in common, for its title; empty where they have nothing, or it is all."""
    families = {labels.family(finding.condition) for finding in findings}
    return f"{families.pop()} " if len(families) == 1 and families != {""} and len(findings) > 1 else ""


def _held(findings: Sequence[Finding], shown: _Shown) -> str:
    if shown.axis == "width":
        return f" (horizon {' or '.join(show(value) for value in sorted({f.horizon for f in findings}))})"
    widths = sorted({f.width for f in findings} if shown.width is None else {shown.width})
    return f" (width {' or '.join(show(value) for value in widths)})"


def _slope(finding: Finding, axis: str, threshold: float) -> Slope:
    trends = finding.judgement.by_threshold[threshold]
    return trends.horizon.limit if axis == "horizon" else trends.along_width


def _fit(middle: pd.DataFrame, slope: Slope) -> list[list[float]]:
    """The ends of a slope's line; it is that of the limit, so it is drawn at the end of the range."""
    inside = middle[middle["censored"] == ""]
    if inside.empty or not math.isfinite(slope.estimate):
        return []
    last = math.log(inside.index.max())
    level = math.log(inside["median"].iloc[-1]) - slope.estimate * last
    first = max(math.log(inside.index.min()), last - math.log(_GUIDE))
    return [[math.exp(at), math.exp(level + slope.estimate * at)] for at in (first, last)] if first < last else []


def _guide(places: Sequence[float], limits: Sequence[float], slope: float) -> list[list[Any]]:
    """The slope below which a radius is unstable, from the upper left corner: only directions are compared."""
    if len(places) < 2:
        return []
    top = limits[1] / 1.3
    ends = [[places[0], top], [places[-1], top * (places[-1] / places[0]) ** slope]]
    return [["", ends, f"slope {limit(slope)}: what falls more steeply is unstable"]]


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


_RANGES: Mapping[str, Callable[[Trends], Slope]] = {
    "limit slope in horizon": lambda trends: trends.horizon.limit,
    "slope in width": lambda trends: trends.along_width,
    "slope over all horizons": lambda trends: trends.horizon.over_range,
}


def slope_charts(finding: Finding, title: str = "") -> Iterator[Chart]:
    """A chart per range: a row for each threshold, and the limit below which a slope is one of instability.

    Args:
        finding: the verdict.
        title: what tells it from others, before the range.
    """
    below = finding.judgement.criteria.slope_limit
    for name, of in _RANGES.items():
        slopes = {percent(t): of(trends) for t, trends in finding.judgement.by_threshold.items()}
        rows = [_row(threshold, slope, below) for threshold, slope in slopes.items() if slope.available]
        if rows:
            words = "; ".join(f"at {row['name']}: {row['text']}" for row in rows)
            ends = [end for row in rows for end in (row["middle"], row["low"], row["high"]) if math.isfinite(end)]
            limits = {"x": [min([-0.5, *ends]) - 0.05, max([0.2, *ends]) + 0.05]}
            more: dict[str, Any] = {"levels": [[below, limit(below)], [0.0, "0"]], "limits": limits}
            more["words"] = f"{name}; below {limit(below)} it is unstable. {words}."
            yield rows_chart(", ".join(filter(None, [title, name])), "slope", rows, **more)


def all_slope_charts(findings: Sequence[Finding], labels: Labels) -> Iterator[Chart]:
    """Those of all verdicts."""
    for finding in findings:
        yield from slope_charts(finding, ", ".join(filter(None, labels.names(finding.condition))))


def _row(threshold: str, slope: Slope, below: float) -> dict[str, Any]:
    tone = "unstable" if slope.high < below else "stable" if slope.low > below else "inconclusive"
    ends = {"middle": slope.estimate, "low": slope.low, "high": slope.high}
    return {"name": threshold, "text": slope_text(slope), "tone": tone, **ends}
