"""The panel of claims that compare cells: each effect with its interval, beside the line of no difference."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.numbers import clean
from memsweep.report.style import INK, log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 12  # pairs in one panel
_LETTERS = 46  # of a claim beside its interval
_COLOR = "#0072b2"


def claim_gallery(compared: pd.DataFrame, name: str) -> Gallery:
    """A panel per scale and 12 pairs of cells.

    Args:
        compared: of ``memsweep.report.analysis.claims.compared_frame``; pairs without a measured effect are left out.
        name: stem of the files.
    """
    known = compared[compared["effect"].map(math.isfinite) & (compared["seeds"] > 0)] if len(compared) else compared
    panels = [
        Panel("claims", f"effect: {scale} of the two cells", partial(_draw, rows=part[first : first + _MOST]))
        for scale, part in (known.groupby("scale", sort=False) if len(known) else ())
        for first in range(0, len(part), _MOST)
    ]
    return Gallery(name, panels, columns=1)


def _draw(ax: Axes, rows: pd.DataFrame) -> None:
    ratio = bool((rows["scale"] == "ratio").all()) and bool((rows["effect"] > 0).all())
    neutral = 1.0 if ratio else 0.0
    ends = [
        e for e in (*rows["low"], *rows["high"], *rows["effect"], neutral) if math.isfinite(e) and (e > 0 or not ratio)
    ]
    low, high = (min(ends) / 1.3, max(ends) * 1.3) if ratio else (min(ends), max(ends))
    if ratio:
        log_axis(ax, "x")
    else:
        low, high = low - 0.05 * (high - low or 1.0), high + 0.05 * (high - low or 1.0)
    ax.set_xlim(low, high)
    ax.axvline(neutral, color=INK, linewidth=0.9)
    for place, row in enumerate(rows.to_dict("records")):
        ax.plot([max(row["low"], low), min(row["high"], high)], [place, place], color=_COLOR, linewidth=1.4)
        ax.plot([row["effect"]], [place], marker="o", markersize=4, color=_COLOR)
        where = row["cells"] if isinstance(row["cells"], str) else ""
        text = clean(", ".join(filter(None, [str(row["claim"]), where])))
        shown = text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
        ax.annotate(shown, (0.01, place - 0.18), xycoords=ax.get_yaxis_transform(), fontsize=6.0, va="bottom")
    ax.set_ylim(len(rows) - 0.5, -0.8)
    ax.set_yticks([])
    ax.set_xlabel("left / right: 1 is no difference" if ratio else "left − right: 0 is no difference")
