"""Panels of a rule's gradients beside those of backpropagation through time: direction and size, layer by layer.

Against the training step; and, where a study varies a number of the model (its depth, the radius of its initial
eigenvalues), against that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from memsweep.report.analysis.gradient_alignment import ALL, MEASURES, AlignmentRow, layer_name, layers_of
from memsweep.report.analysis.losses import largest
from memsweep.report.figures.panels import Gallery, Panel
from memsweep.report.naming.labels import Labels, field_name, masked
from memsweep.report.naming.numbers import clean, show
from memsweep.report.style import INK, MUTED, LineStyle, log_axis, ordered_styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMES = dict(zip(MEASURES, ("cosine", "norm ratio"), strict=True))
_ALL = LineStyle(INK, "", (0, (4, 1.2)))
_MARKS = 10
_SIDE = 0.06  # left and right of the outermost values, as a share of their distance
_LEAST, _MOST = 1e-3, 1e3  # ratios beyond tell nothing more


@dataclass(frozen=True)
class _Line:
    """Median, smallest and largest over seeds at each place."""

    at: np.ndarray
    low: np.ndarray
    middle: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class _Along:
    """What the lines are against: its name, and how its axis is written."""

    name: str
    axis: Callable[[Axes], None]


_Lines = Mapping[str, _Line]
_Styles = Mapping[str, LineStyle]


def alignment_gallery(rows: Sequence[AlignmentRow], labels: Labels, name: str) -> Gallery:
    """Two panels per condition, cosine and norm ratio against the step, at its largest size."""
    sizes = len({(row.row.width, row.row.horizon) for row in rows}) > 1
    shown = {id(row) for row in largest([row.row for row in rows])}
    styles = _styles(layers_of(rows))
    panels: list[Panel] = []
    for row in rows:
        if id(row.row) in shown:
            where = f" (width {show(row.row.width)}, horizon {show(row.row.horizon)})" if sizes else ""
            title = labels.machine(row.condition) + where
            lines = {measure: _over_steps(row.table, measure) for measure in MEASURES}
            panels += _pair(labels.memory(row.condition), title, row.row.identities, lines, styles, _STEPS)
    return _gallery(name, panels, styles)


def alignment_along(rows: Sequence[AlignmentRow], labels: Labels, field: str, name: str) -> Gallery:
    """Two panels per condition, cosine and norm ratio against one of the fields that ``varied`` names."""
    apart = labels.without(field)
    grouped: dict[tuple[object, ...], list[AlignmentRow]] = {}
    for row in rows:
        rest = masked(row.condition, (field,))
        grouped.setdefault((*rest.values(), row.row.width, row.row.horizon), []).append(row)
    sizes = len({(row.row.width, row.row.horizon) for row in rows}) > 1
    styles = _styles(layers_of(rows))
    panels: list[Panel] = []
    for members in grouped.values():
        members.sort(key=lambda row: float(row.condition[field]))
        values = [float(row.condition[field]) for row in members]
        if len(set(values)) > 1:
            first = members[0]
            rest = masked(first.condition, (field,))
            where = f" (width {show(first.row.width)}, horizon {show(first.row.horizon)})" if sizes else ""
            lines = {measure: _along(members, field, measure) for measure in MEASURES}
            identities = tuple(dict.fromkeys(identity for row in members for identity in row.row.identities))
            along = _Along(field_name(field), _value_axis(values))
            panels += _pair(apart.memory(rest), apart.machine(rest) + where, identities, lines, styles, along)
    return _gallery(name, panels, styles)


def varied(rows: Sequence[AlignmentRow]) -> list[str]:
    """The numbers of the model that differ between the rows, beside its width: dotted paths."""
    names = [name for name in rows[0].condition if name.startswith("model.")] if rows else []
    found = {name: {row.condition[name] for row in rows} - {None} for name in names}
    return [name for name, values in found.items() if len(values) > 1 and all(map(_is_number, values))]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _gallery(name: str, panels: Sequence[Panel], styles: _Styles) -> Gallery:
    legend = tuple((layer_name(layer), style) for layer, style in styles.items())
    return Gallery(name=name, panels=tuple(panels), legend=legend if panels else (), columns=2)


def _styles(layers: Sequence[str]) -> dict[str, LineStyle]:
    """From pale, the layer that reads the input, to dark; all weights together as a black dashed line."""
    shades = ordered_styles([float(layer) for layer in layers if layer != ALL])
    return {layer: _ALL if layer == ALL else shades[float(layer)] for layer in layers}


def _over_steps(table: pd.DataFrame, measure: str) -> dict[str, _Line]:
    lines = {}
    for layer, part in table.groupby("layer"):
        seeds = part.groupby("step")[measure]
        low, middle, high = seeds.min(), seeds.median(), seeds.max()
        lines[str(layer)] = _Line(low.index.to_numpy(float), *(side.to_numpy(float) for side in (low, middle, high)))
    return lines


def _along(rows: Sequence[AlignmentRow], field: str, measure: str) -> dict[str, _Line]:
    lines = {}
    for layer in layers_of(rows):
        there = [row for row in rows if layer in row.layers]
        at = np.array([float(row.condition[field]) for row in there])
        spreads = [row.layers[layer][measure] for row in there]
        ends = (np.array([getattr(spread, end) for spread in spreads]) for end in ("low", "middle", "high"))
        lines[layer] = _Line(at, *ends)
    return lines


def _pair(
    group: str,
    title: str,
    identities: tuple[str, ...],
    lines: Mapping[str, _Lines],
    styles: _Styles,
    along: _Along,
) -> list[Panel]:
    return [
        Panel(
            group=group,
            title=f"{title}: {_NAMES[measure]}",
            description=(
                f"{_NAMES[measure]} of the rule's gradient and that of backpropagation through time against the "
                f"{along.name} for {title}, one line each: {', '.join(map(layer_name, found))}."
            ),
            draw=_drawing(measure, found, styles, along),
            identities=identities,
            width=3.8,
            right=0.3,
        )
        for measure, found in lines.items()
    ]


def _drawing(measure: str, lines: _Lines, styles: _Styles, along: _Along) -> Callable[[Axes], None]:
    def draw(ax: Axes) -> None:
        (_cosine_axis if measure == "cosine" else _ratio_axis)(ax, lines)
        for layer, line in lines.items():
            style = styles[layer]
            ax.fill_between(line.at, line.low, line.high, color=style.color, alpha=0.12, linewidth=0)
            every = max(1, math.ceil(len(line.at) / _MARKS))
            drawn = {**style.line(), "markersize": 3.8, "markevery": every, "zorder": 3 if layer == ALL else 2}
            ax.plot(line.at, line.middle, **drawn)
        ax.set_xlabel(clean(along.name))
        ax.set_ylabel(_NAMES[measure])
        along.axis(ax)

    return draw


def _cosine_axis(ax: Axes, lines: _Lines) -> None:
    low = np.concatenate([line.low for line in lines.values()])
    least = min(0.0, float(low[np.isfinite(low)].min(initial=0.0)))
    ax.set_ylim(least - 0.05, 1.06)
    for height in {0.0, 1.0}:
        ax.axhline(height, color=MUTED, linewidth=0.6, zorder=0.5)


def _ratio_axis(ax: Axes, lines: _Lines) -> None:
    values = np.concatenate([side for line in lines.values() for side in (line.low, line.high)])
    values = values[np.isfinite(values) & (values > 0)]
    low, high = (float(values.min()), float(values.max())) if values.size else (1.0, 1.0)
    low, high = max(min(low, 0.5), _LEAST) / 1.3, min(max(high, 2.0), _MOST) * 1.3
    log_axis(ax, "y", label_between=high < 50 * low)
    ax.tick_params(axis="y", which="minor", labelsize=6.5)
    ax.set_ylim(low, high)
    ax.axhline(1.0, color=MUTED, linewidth=0.6, zorder=0.5)


def _step_axis(ax: Axes) -> None:
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _value_axis(values: Sequence[float]) -> Callable[[Axes], None]:
    """An axis that is labelled at the values that were measured."""

    def axis(ax: Axes) -> None:
        ranked = sorted(set(values))
        side = _SIDE * (ranked[-1] - ranked[0])
        ax.set_xticks(ranked, [f"{value:g}" for value in ranked])
        ax.set_xlim(ranked[0] - side, ranked[-1] + side)

    return axis


_STEPS = _Along("training step", _step_axis)
