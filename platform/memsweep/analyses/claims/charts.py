"""Charts of claims that compare cells: each effect with its interval, beside the line of no difference."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import pandas as pd

from memsweep.analyses.claims.conclusions import conclusion, partly_measured
from memsweep.report.naming.numbers import figure
from memsweep.report.values.chart import Chart, rows_chart

_MOST = 12  # pairs in one chart
_NEUTRAL = {"ratio": (1.0, "left / right: 1 is no difference"), "difference": (0.0, "left − right: 0 is no difference")}
_NOTE = "Each effect with its 95 % interval over seeds; a line across the whole chart: too few seeds for an interval."


def claim_charts(compared: pd.DataFrame) -> Iterator[Chart]:
    """A chart per scale and 12 pairs of cells.

    Args:
        compared: of ``memsweep.analyses.claims.cells.compared_frame``; pairs without a measured effect are left out.
    """
    if compared.empty:
        return
    partly = partly_measured(compared)
    known = compared[compared["effect"].map(math.isfinite) & (compared["seeds"] > 0)]
    # The scale of most pairs comes first.
    scales = sorted(known["scale"].unique(), key=lambda scale: -int((known["scale"] == scale).sum()))
    for scale in scales:
        part = known[known["scale"] == scale].to_dict("records")
        for first in range(0, len(part), _MOST):
            yield _chart(str(scale), [_row(pair, partly) for pair in part[first : first + _MOST]])


def _row(pair: dict[Any, Any], partly: Collection[str]) -> dict[str, Any]:
    said = conclusion(pair, partly)
    where = pair["cells"] if isinstance(pair["cells"], str) else ""
    ends = {"middle": float(pair["effect"]), "low": float(pair["low"]), "high": float(pair["high"])}
    return {"name": ", ".join(filter(None, [str(pair["claim"]), where])), "tone": said.tone, "words": said.text, **ends}


def _chart(scale: str, rows: list[dict[str, Any]]) -> Chart:
    ratio = scale == "ratio" and all(row["middle"] > 0 for row in rows)
    neutral, label = _NEUTRAL["ratio" if ratio else "difference"]
    effects = [
        f"{row['name']} {figure(row['middle'])} [{figure(row['low'])}, {figure(row['high'])}], {row['words']}"
        for row in rows
    ]
    more = {"words": f"Effects with 95 % intervals: {'; '.join(effects)}.", "choice": {"effect": scale}}
    title = f"claims, effect: {scale} of the two cells"
    return rows_chart(title, label, rows, log=ratio, levels=[[neutral, ""]], note=_NOTE, **more)
