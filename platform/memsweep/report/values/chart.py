"""Charts: data, axes, guide lines and words as one plain value, made once.

The page's script draws it, and ``memsweep.report.figures.charts`` draws the same value as a file: neither decides a
scale, a limit or a word.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from memsweep.report.analysis.losses import Spread
from memsweep.report.naming.numbers import figure, show

_PLACES = 40  # of a curve: finer than a small chart shows
_WIDE = 8.0  # values that span more than this factor are drawn on a logarithmic axis
_DEEP = 1e9  # below the largest value by more than this factor a curve leaves the chart
_TICKS = 10  # places on a logarithmic x axis that are labelled one by one
_MOST_SAID, _FEW = 12, 6  # lines that the words of a chart name; points of a line that they name all
ORDERED, ROLES, VERDICTS = "ordered", "roles", "verdicts"
"""Looks of lines: from pale to dark by their order; winner, trained, stopped; by verdict on the page."""

Chart = dict[str, Any]
"""A chart of one of four kinds, with ``title``, ``note`` (text below it), ``x`` and ``y`` (words of the axes), ``log``
(the axes that are logarithmic), ``limits`` (axis -> its ends), ``ticks`` (places on the x axis that are labelled; none:
round ones), ``whole`` (the axes that count, whose labels are whole numbers), ``levels`` (``[value, words]``: guide
lines across the axis of values) and ``words`` (what it shows, as a sentence).

``curves``: ``lines`` and ``dots``, each ``[name, points]`` with points ``[x, middle, low, high, trial, words]``, of
which the last ones may be missing; ``rings``: points that stand out; ``lost``: ``[name, [[x, words]]]``, what lies
beyond the top, and ``rail``: whether there is room for it where nothing is; ``beyond``: ``[name, [[x, y, side]]]``,
known to lie above or below that place; ``seeds``: ``[name, [[x, y, valid]]]``, small marks, hollow where not valid;
``guides``: ``[name or empty, [[x, y], [x, y]], words]``, straight lines; ``keys``: name -> words beside it in a legend,
below ``keys_title``.

``rows``: ``rows``, one below the other: ``name``, ``middle``, ``low``, ``high``, ``values`` (by seed), ``tone``,
``words`` (before the name), ``text`` (the middle, written), ``trial``.

``cells``: ``columns``, and ``rows`` of ``name`` and ``cells``: ``[share, text, trial, words]``, None where nothing is
known.

``parallel``: ``axes`` side by side, each a name and the words of its lower and upper end, and lines ``across`` them:
``[shade, places, trial, words]``, with places in [0, 1], None where there is none.

``look`` says how names become colours, and ``choice`` by which words a reader of the page chooses the chart."""


TARGET = "target"
"""Name of a line that others are to reach: broad and grey."""
MOST_BESIDE = 3
"""Charts beside one another in the figure of the answer; of more, a reader chooses."""


class ChartSet:
    """Charts that belong together: one part of a page, and one series of figure files.

    A chart is made when it is asked for first: of thousands a page has room for some, and files are drawn of a few. One
    that has nothing to say is left out.

    Attributes:
        name: stem of the files, and of the part of the page.
        columns: side by side in a file.
        paged: whether the page draws them, too.
        chosen: whether the page shows those that a reader chooses, in the figure of its answer.
        sectioned: whether the page has them in a section, too, where they are chosen.
        extra: whether files are drawn only where formats are asked for.
    """

    def __init__(
        self,
        name: str,
        charts: Iterable[Chart],
        *,
        columns: int = 2,
        paged: bool = True,
        chosen: bool = False,
        sectioned: bool = False,
        extra: bool = False,
    ) -> None:
        self.name, self.columns = name, columns
        self.paged, self.chosen, self.sectioned, self.extra = paged, chosen, sectioned, extra
        self._made, self._rest = list[Chart](), filter(says_something, charts)

    def __iter__(self) -> Iterator[Chart]:
        """All of them, in their order."""
        place = 0
        while place < len(self._made) or self._make():
            yield self._made[place]
            place += 1

    def first(self, most: int | None = None) -> list[Chart]:
        """The first ones; None: all."""
        return list(islice(self, most))

    def _make(self) -> bool:
        found = next(self._rest, None)
        if found is not None:
            self._made.append(found)
        return found is not None


def chart(title: str, x: str, y: str, log: str, lines: Mapping[str, Sequence[Any]], **more: Any) -> Chart:
    """A chart of curves; arguments as of ``Chart``.

    An axis that is named in ``log`` is logarithmic where the values allow it. ``limits`` may hold those of one axis;
    the others follow from the values.
    """
    value = {"kind": "curves", "title": title, "x": x, "y": y, "lines": [*map(list, lines.items())], **more}
    at = {axis: [*_along(value, axis)] for axis in "xy"}
    value["log"] = "".join(axis for axis in "xy" if axis in log and _allows(at[axis], axis))
    given = dict(value.get("limits", {}))
    value["limits"] = {axis: given.get(axis) or _limits(at[axis], axis, value["log"]) for axis in "xy"}
    places = sorted({*at["x"]})
    if "x" in value["log"] and "ticks" not in value and len(places) <= _TICKS and all(map(_is_round, places)):
        value["ticks"] = places
    return value | {"words": more.get("words") or _said(value)}


def rows_chart(title: str, x: str, rows: Sequence[Mapping[str, Any]], *, log: bool = False, **more: Any) -> Chart:
    """A chart of rows; arguments as of ``Chart``."""
    ends = [value for row in rows for value in (row.get("middle"), row.get("low"), row.get("high"))]
    at = [*ends, *(value for row in rows for value in row.get("values", ())), *(at for at, _ in more.get("levels", ()))]
    known = [float(value) for value in at if value is not None and math.isfinite(value) and (value > 0 or not log)]
    axes = "x" if log and known else ""
    limits = {"x": more.pop("limits", {}).get("x") or _limits(known, "y", axes.replace("x", "y"), least=0.6)}
    return {"kind": "rows", "title": title, "x": x, "y": "", "log": axes, "limits": limits, "rows": [*rows], **more}


def cells_chart(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]], **more: Any) -> Chart:
    """A chart of cells; arguments as of ``Chart``."""
    return {
        "kind": "cells",
        "title": title,
        "x": "",
        "y": "",
        "log": "",
        "columns": [*columns],
        "rows": [*rows],
        **more,
    }


def parallel_chart(title: str, axes: Sequence[Sequence[str]], lines: Sequence[Any], **more: Any) -> Chart:
    """A chart of lines across axes that stand side by side."""
    named = {"title": title, "x": "", "y": "", "log": "", "axes": [*map(list, axes)]}
    return {"kind": "parallel", **named, "across": [*lines], **more}


def says_something(value: Chart) -> bool:
    """Whether a chart shows any value, and of a single curve more than one place."""
    if value["kind"] == "rows":
        return any(math.isfinite(end) for row in value["rows"] for end in (row["middle"], *row.get("values", ())))
    if value["kind"] != "curves":
        return bool(value["across"] if value["kind"] == "parallel" else value["rows"])
    parts = {part: [name for name, points in value.get(part, ()) if points] for part in _LAST}
    places, marked = {*_along(value, "x")}, any(names for part, names in parts.items() if part != "lines")
    return bool(places) and (marked or len(places) > 1 or len(parts["lines"]) > 1)


def names_of(charts: Iterable[Chart]) -> list[str]:
    """The names of all lines and marks, in their order: each looks alike in all of the charts."""
    parts = ("lines", "dots", "rings", "lost", "beyond", "seeds")
    return [*dict.fromkeys(name for one in charts for part in parts for name, _ in one.get(part, ()))]


def wide(values: Iterable[float]) -> bool:
    """Whether values are positive and span so much that only a logarithmic axis shows them."""
    known = [value for value in values if math.isfinite(value)]
    return bool(known) and 0 < _WIDE * min(known) < max(known)


def spread_point(x: float, spread: Spread) -> list[float]:
    """``[x, middle, low, high]``."""
    return [x, spread.middle, spread.low, spread.high]


def over_seeds(groups: Any, *, geometric: bool = False) -> list[list[float]]:
    """``[x, median, smallest, largest]`` of values by seed that were grouped by x, at few places.

    Args:
        groups: of a data frame's column.
        geometric: places lie closer near the first one, as a logarithmic axis shows them.
    """
    table = groups.agg(["median", "min", "max"])
    count, space = len(table), np.geomspace if geometric else np.linspace
    if not count:
        return []
    places = np.unique(np.round(space(1, count, min(count, _PLACES))).astype(int)) - 1
    return [[float(x), *map(float, row)] for x, row in zip(table.index[places], table.to_numpy()[places], strict=True)]


def size_words(width: Any, horizon: Any, *, several: bool) -> list[str]:
    """Width and horizon for a title, where charts of several sizes stand side by side."""
    return [f"{name} {show(value)}" for name, value in (("width", width), ("horizon", horizon)) if several and value]


_LAST = {"lines": 4, "dots": 4, "rings": 4, "seeds": 2, "beyond": 2, "lost": 1}
"""Part of a chart -> where the values along y end in each of its points: a value, or with its interval, or none."""


def _along(value: Chart, axis: str) -> Iterator[float]:
    """All finite values along an axis."""
    found: list[Any] = [] if axis == "x" else [at for at, _ in value.get("levels", ())]
    for part, last in _LAST.items():
        ends = slice(0, 1) if axis == "x" else slice(1, last)
        found += [number for _, points in value.get(part, ()) for point in points for number in point[ends]]
    yield from (float(number) for number in found if number is not None and math.isfinite(number))


def _allows(values: Sequence[float], axis: str) -> bool:
    """A curve may leave a logarithmic chart through its bottom; no place along x is ever left out."""
    return bool(values) and (min(values) > 0 if axis == "x" else max(values) > 0)


def _is_round(place: float) -> bool:
    """Whether its label is short: a width, a learning rate of a grid; not one that a search drew."""
    return place.is_integer() or float(f"{place:.2g}") == place


def _limits(values: Sequence[float], axis: str, log: str, least: float = 0.8) -> list[float]:
    """The ends of an axis around values; on a logarithmic one at least so many decades: noise is no trend."""
    if axis in log:
        known = [value for value in values if value > 0]
        low, high = math.log10(max(min(known), max(known) / _DEEP)), math.log10(max(known))
        room = 0.05 if axis == "x" and high > low else max(0.08, (least - (high - low)) / 2)
        return [10 ** (low - room), 10 ** (high + room)]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    room = 0.04 * (high - low) or 0.1 * abs(high) or 0.5
    return [0.0 if 0 <= low < room else low - room, high + room]


def _said(value: Chart) -> str:
    """``title: y against x. name: 0.2 at 1 to 0.1 at 100; ...``"""
    parts = []
    for name, points in [*value["lines"], *value.get("dots", ())][:_MOST_SAID]:
        known = [point for point in points if point[1] is not None and math.isfinite(point[1])]
        if known:
            some = known if len(known) <= _FEW else [known[0], known[-1]]
            said = dict.fromkeys(f"{figure(y)} at {figure(x)}" for x, y in sorted(point[:2] for point in some))
            parts.append(f"{name}: {(', ' if some is known else ' to ').join(said)}".removeprefix(": "))
    about = ", ".join(dict.fromkeys(part for part in (value["title"], f"{value['y']} against {value['x']}") if part))
    return f"{about}. {'; '.join(parts)}." if parts else f"{about}."
