"""Charts of the slopes behind a verdict, at every threshold and over every range."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from memsweep.report.analysis.findings import Finding
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import limit, percent, slope_text
from memsweep.report.values.chart import Chart, rows_chart
from memsweep.stability.verdict.judgement import Trends
from memsweep.stability.verdict.trend import Slope

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
            more["words"] = f"{name}; below {limit(below)} the radius keeps shrinking. {words}."
            yield rows_chart(", ".join(filter(None, [title, name])), "slope", rows, **more)


def all_slope_charts(findings: Sequence[Finding], labels: Labels) -> Iterator[Chart]:
    """Those of all verdicts."""
    for finding in findings:
        yield from slope_charts(finding, ", ".join(filter(None, labels.names(finding.condition))))


def _row(threshold: str, slope: Slope, below: float) -> dict[str, Any]:
    tone = "unstable" if slope.high < below else "stable" if slope.low > below else "inconclusive"
    ends = {"middle": slope.estimate, "low": slope.low, "high": slope.high}
    return {"name": threshold, "text": slope_text(slope), "tone": tone, **ends}
