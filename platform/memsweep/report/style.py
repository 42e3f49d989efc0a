"""The look of every picture: colours for colour-blind readers and grey print, markers, axes, ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import matplotlib
from matplotlib.ticker import FuncFormatter, LogLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, FAINT = "#1d2530", "#5b6673", "#d5dae0"
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: small files, sharp at every zoom
    "pdf.fonttype": 42,  # TrueType: journals refuse Type 3
    "svg.hashsalt": "memsweep",  # the same data gives the same file
    "text.parse_math": False,  # a name with dollar signs is a name, not a formula
    "font.family": ["DejaVu Sans"],
    "font.size": 8,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "figure.facecolor": "white",
}
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")
_DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1)))
_CATEGORIES = ("#d55e00", "#0072b2", "#009e73", "#b5539b", "#8c6d00", "#56b4e9", "#222222")


@dataclass(frozen=True)
class LineStyle:
    """One line's colour, marker and dashes: any one of the three is enough to tell it apart."""

    color: str
    marker: str
    dashes: Any

    def line(self) -> dict[str, Any]:
        """Keyword arguments of ``Axes.plot`` for the line and its markers."""
        return {**self.stroke(), "marker": self.marker, "markeredgecolor": "white", "markeredgewidth": 0.5}

    def stroke(self) -> dict[str, Any]:
        """Keyword arguments of ``Axes.plot`` for the line alone."""
        return {"color": self.color, "linestyle": self.dashes}


def category_styles(names: Sequence[str]) -> dict[str, LineStyle]:
    """Styles for unordered names (parameterizations), in their order of appearance."""
    return {
        name: LineStyle(_CATEGORIES[i % 7], _MARKERS[i % 10], _DASHES[(i + i // 7) % 5]) for i, name in enumerate(names)
    }


def ordered_styles(values: Sequence[float]) -> dict[float, LineStyle]:
    """Styles for ordered values (widths): from pale to dark, so that grey print keeps the order."""
    palette = matplotlib.colormaps["viridis"]
    ranked = sorted(values)
    shade = [0.82 * (1 - i / max(1, len(ranked) - 1)) for i in range(len(ranked))]
    return {
        value: LineStyle(matplotlib.colors.to_hex(palette(shade[i])), _MARKERS[i % 10], _DASHES[i % 5])
        for i, value in enumerate(ranked)
    }


def power_of_ten(value: float, _position: object = None) -> str:
    """A tick label: plain from 0.001 to 1000, 10 with a superscript exponent further out."""
    if value <= 0:
        return ""
    exponent = round(math.log10(value))
    if -3 <= exponent <= 3:
        return f"{10.0**exponent:g}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def log_axis(ax: Axes, which: Literal["x", "y"]) -> None:
    """Make one axis logarithmic, with ticks at the decades and small ones at 2 and 5 (drawing all nine is slow).

    The small ones have numbers where the axis has few decades.
    """
    axis = ax.xaxis if which == "x" else ax.yaxis

    def between(value: float, _position: object) -> str:
        low, high = axis.get_view_interval()
        return f"{value:.3g}" if high < 200 * low else ""

    (ax.set_xscale if which == "x" else ax.set_yscale)("log")
    axis.set_major_locator(LogLocator(base=10, numticks=7))
    axis.set_major_formatter(FuncFormatter(power_of_ten))
    axis.set_minor_locator(LogLocator(base=10, subs=(2.0, 5.0), numticks=30))
    axis.set_minor_formatter(FuncFormatter(between))
    ax.tick_params(axis=which, which="minor", labelsize=6.5)


def ticks_at(ax: Axes, places: Sequence[float]) -> None:
    """A logarithmic x axis that is labelled at the values that were measured, at 6 at most."""
    ax.set_xscale("log")
    shown = places if len(places) <= 6 else places[:: math.ceil(len(places) / 6)]
    ax.set_xticks(shown, [f"{value:g}" for value in shown])
    ax.set_xticks([], minor=True)
