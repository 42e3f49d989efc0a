"""Charts: curves with their axes as plain data, which the page's script and ``memsweep.report.figures.charts`` draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memsweep.report.analysis.losses import Spread
from memsweep.report.naming.numbers import show

_PLACES = 40  # of a curve: finer than a small chart shows

Chart = dict[str, Any]
"""``title``; ``x`` and ``y``: words of the axes; ``log``: those that are logarithmic; ``lines``: name, points
``[x, middle, low, high]``; ``dots``: name, points ``[x, y, low, high]``; ``levels``: value and words; ``note``."""


def chart(title: str, x: str, y: str, log: str, lines: Mapping[str, Sequence[Any]], **more: Any) -> Chart:
    """A chart; arguments as of ``Chart``."""
    return {"title": title, "x": x, "y": y, "log": log, "lines": [*lines.items()], **more}


def spread_point(x: float, spread: Spread) -> list[float]:
    """``[x, middle, low, high]``."""
    return [x, spread.middle, spread.low, spread.high]


def over_seeds(groups: Any) -> list[list[float]]:
    """``[x, median, smallest, largest]`` of values by seed that were grouped by x, at few places."""
    table = groups.agg(["median", "min", "max"])
    places = np.unique(np.linspace(0, len(table) - 1, min(len(table), _PLACES)).round().astype(int))
    return [[float(x), *map(float, row)] for x, row in zip(table.index[places], table.to_numpy()[places], strict=True)]


def size_words(width: Any, horizon: Any, *, several: bool) -> list[str]:
    """Width and horizon for a title, where charts of several sizes stand side by side."""
    return [f"{name} {show(value)}" for name, value in (("width", width), ("horizon", horizon)) if several and value]
