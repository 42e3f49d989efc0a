"""Charts of the memory: the learned impulse response beside the target's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from memsweep.report.analysis.findings import Finding
from memsweep.report.naming.labels import Labels
from memsweep.report.values.chart import TARGET, Chart, chart, over_seeds

_DEPTH = 1e-5  # how far below the target's peak the chart reaches


def memory_charts(findings: Sequence[Finding], labels: Labels) -> Iterator[Chart]:
    """One per condition that has a memory function: the smallest and the largest width at the longest horizon."""
    for finding in {finding.key: finding for finding in findings}.values():
        widths = finding.replicas[["identity", "seed", "width", "horizon"]]
        rows = finding.memory.merge(widths, on=["identity", "seed"])
        rows = rows[rows["horizon"] == finding.horizon]
        if not rows.empty:
            ends = dict.fromkeys((float(rows["width"].max()), float(rows["width"].min())))
            parts = {f"learned, width {width:g}": rows[rows["width"] == width] for width in ends}
            yield memory_chart(", ".join(filter(None, labels.names(finding.condition))), parts)


def memory_chart(title: str, parts: dict[str, pd.DataFrame]) -> Chart:
    """The learned memory of each part beside the target's, where the task has one.

    Args:
        title: of the chart.
        parts: name -> rows of the table memory.
    """
    rows = pd.concat([*parts.values()])
    target = rows.groupby("lag")["target"].first().abs()
    # A task that is no linear functional has no target memory: the axes then follow what was learned.
    seen = target.dropna() if target.notna().any() else rows["learned"].abs().groupby(rows["lag"]).max()
    seen = seen[np.isfinite(seen)]
    peak = float(seen.max()) if len(seen) and seen.max() > 0 else 1.0
    power = _decays_like_a_power(target)
    learned = {name: _shifted(part.assign(size=part["learned"].abs()), "size", power) for name, part in parts.items()}
    lines = {TARGET: [point[:2] for point in _shifted(rows.assign(size=rows["target"].abs()), "size", power)]}
    lines = learned if target.isna().all() else lines | learned
    above = seen.index[seen > peak * _DEPTH]
    across = (
        {}
        if power
        else {"x": [-1.0, min(float(above.max() if len(above) else 1) * 1.25 + 2, float(rows["lag"].max()) + 1)]}
    )
    limits = {"y": [max(peak * _DEPTH, float(seen.min()) / 8 if len(seen) else 0.0), peak * 3], **across}
    words = "lag + 1 (steps)" if power else "lag (steps)"
    return chart(title, words, "|memory|", "xy" if power else "y", lines, limits=limits)


def _shifted(rows: pd.DataFrame, column: str, power: bool) -> list[list[Any]]:
    """The values by lag; one step to the right on a logarithmic axis, where a lag of 0 has no place."""
    known = rows[rows[column].notna()]
    points = over_seeds(known.groupby("lag")[column], geometric=power)
    return [[point[0] + power, *point[1:]] for point in points]


def _decays_like_a_power(target: pd.Series) -> bool:
    """Whether log|target| is nearer to a line in log(lag + 1) than in lag."""
    seen = target[target > target.max() * 1e-12]
    if len(seen) < 4 or seen.nunique() < 2:
        return False
    height, lag = np.log(seen.to_numpy(float)), seen.index.to_numpy(float)
    power, exponential = (abs(np.corrcoef(x, height)[0, 1]) for x in (np.log1p(lag), lag))
    return bool(power > exponential)
