"""Panels of the bits that a memory needs against its horizon: a line per rounding, a panel per machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator

from memsweep.report.analysis.bits import BitsRow, bits_panels
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.labels import Labels
from memsweep.report.rows.bits import ROUNDED
from memsweep.report.style import LineStyle, category_styles, value_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def bits_gallery(rows: Sequence[BitsRow], labels: Labels, name: str) -> Gallery:
    """A panel per memory, machine, and weights or states; their vertical axes agree.

    Lines are medians over the seeds that fit, and bands reach from the fewest to the most. A line ends where the median
    needs more bits than were measured.
    """
    styles = category_styles([ROUNDED[rounding] for rounding in dict.fromkeys(row.rounding for row in rows)])
    needed = [bits for row in rows for at in row.bits.values() for bits in (at.middle, at.high) if math.isfinite(bits)]
    most = max(needed, default=1.0)
    panels = [
        Panel(memory, f"{machine}: {what}", partial(_draw, rows=part, styles=styles, most=most))
        for (memory, machine, what), part in bits_panels(rows, labels).items()
    ]
    return Gallery(name, panels, tuple(styles.items()), columns=3)


def _draw(ax: Axes, rows: Sequence[BitsRow], styles: Mapping[str, LineStyle], most: float) -> None:
    for row in rows:
        horizons = np.array([*row.bits], float)
        middle, low, high = np.array([[at.middle, at.low, at.high] for at in row.bits.values()]).T
        style = styles[ROUNDED[row.rounding]]
        ax.fill_between(horizons, low, np.minimum(high, most + 1), color=style.color, alpha=0.1, linewidth=0)
        ax.plot(horizons, np.where(np.isfinite(middle), middle, np.nan), **{**style.line(), "markersize": 3.6})
    value_axis(ax, sorted({float(horizon) for row in rows for horizon in row.bits}))
    ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_ylim(0, most + 1)
    ax.set_xlabel("horizon T (steps)")
    ax.set_ylabel("bits")
