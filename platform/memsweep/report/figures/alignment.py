"""Panels of a rule's gradients beside those of backpropagation through time: direction and size, layer by layer.

Against the training step; and, where a study varies a number of the model (its depth, the radius of its initial
eigenvalues), against that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

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

_ALL = LineStyle(INK, "", (0, (4, 1.2)))
_MARKS = 10
_LEAST, _MOST = 1e-3, 1e3  # ratios beyond tell nothing more

_Lines = Mapping[str, pd.DataFrame]
"""layer -> low, middle and high over seeds, by what they are drawn against."""


def alignment_gallery(rows: Sequence[AlignmentRow], labels: Labels, name: str) -> Gallery:
    """Two panels per condition, cosine and norm ratio against the step, at its largest size."""
    shown = {id(row) for row in largest([row.row for row in rows])}
    styles = _styles(layers_of(rows))
    panels: list[Panel] = []
    for row in rows:
        if id(row.row) in shown:
            of_layers = {layer: row.table[row.table["layer"] == layer].groupby("step") for layer in row.layers}
            title = labels.machine(row.condition) + _size(row, rows)
            for measure in MEASURES:
                lines = {
                    layer: pd.DataFrame({"low": seeds.min(), "middle": seeds.median(), "high": seeds.max()})
                    for layer, seeds in ((layer, steps[measure]) for layer, steps in of_layers.items())
                }
                panels.append(_panel(labels.memory(row.condition), title, measure, lines, styles, "training step"))
    return _gallery(name, panels, styles)


def alignment_along(rows: Sequence[AlignmentRow], labels: Labels, field: str, name: str) -> Gallery:
    """Two panels per condition, cosine and norm ratio against one of the fields that ``varied`` names."""
    apart = labels.without(field)
    grouped: dict[tuple[object, ...], list[AlignmentRow]] = {}
    for row in rows:
        rest = masked(row.condition, (field,))
        grouped.setdefault((*rest.values(), row.row.width, row.row.horizon), []).append(row)
    styles = _styles(layers_of(rows))
    panels: list[Panel] = []
    for members in grouped.values():
        members.sort(key=lambda row: float(row.condition[field]))
        if len(members) > 1:
            memory, machine = apart.names(masked(members[0].condition, (field,)))
            for measure in MEASURES:
                lines = {layer: _along(members, field, measure, layer) for layer in layers_of(members)}
                title = machine + _size(members[0], rows)
                panels.append(_panel(memory, title, measure, lines, styles, field_name(field)))
    return _gallery(name, panels, styles)


def _size(row: AlignmentRow, rows: Sequence[AlignmentRow]) -> str:
    several = len({(other.row.width, other.row.horizon) for other in rows}) > 1
    return f" (width {show(row.row.width)}, horizon {show(row.row.horizon)})" if several else ""


def _gallery(name: str, panels: Sequence[Panel], styles: Mapping[str, LineStyle]) -> Gallery:
    return Gallery(name, panels, [(layer_name(layer), style) for layer, style in styles.items()], columns=2)


def _styles(layers: Sequence[str]) -> dict[str, LineStyle]:
    """From pale, the layer that reads the input, to dark; all weights together as a black dashed line."""
    shades = ordered_styles([float(layer) for layer in layers if layer != ALL])
    return {layer: _ALL if layer == ALL else shades[float(layer)] for layer in layers}


def _along(rows: Sequence[AlignmentRow], field: str, measure: str, layer: str) -> pd.DataFrame:
    found = {float(row.condition[field]): row.layers[layer][measure] for row in rows if layer in row.layers}
    return pd.DataFrame([vars(spread) for spread in found.values()], index=list(found))


def _panel(memory: str, title: str, measure: str, lines: _Lines, styles: Mapping[str, LineStyle], along: str) -> Panel:
    words = measure.replace("_", " ")
    return Panel(memory, f"{title}: {words}", partial(_draw, measure=words, lines=lines, styles=styles, along=along))


def _draw(ax: Axes, measure: str, lines: _Lines, styles: Mapping[str, LineStyle], along: str) -> None:
    values = np.concatenate([line.to_numpy(float).ravel() for line in lines.values()])
    values = values[np.isfinite(values)]
    if measure == "cosine":
        ax.set_ylim(min(0.0, float(values.min(initial=0.0))) - 0.05, 1.06)
        ax.axhline(0.0, color=MUTED, linewidth=0.6, zorder=0.5)
    else:
        log_axis(ax, "y")
        above = values[values > 0]
        low, high = above.min(initial=0.5), above.max(initial=2.0)
        ax.set_ylim(max(low, _LEAST) / 1.3, min(high, _MOST) * 1.3)
    ax.axhline(1.0, color=MUTED, linewidth=0.6, zorder=0.5)
    for layer, line in lines.items():
        style = styles[layer]
        ax.fill_between(line.index, line["low"], line["high"], color=style.color, alpha=0.12, linewidth=0)
        every = max(1, math.ceil(len(line) / _MARKS))
        look = {**style.line(), "markersize": 3.8, "markevery": every, "zorder": 3 if layer == ALL else 2}
        ax.plot(line["middle"], **look)
    ax.set_xlabel(clean(along))
    ax.set_ylabel(measure)
    ax.xaxis.set_major_locator(MaxNLocator(6))
