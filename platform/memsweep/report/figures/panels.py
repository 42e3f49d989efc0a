"""Pictures as lists of panels, and how they look; the page and the files show the same pictures."""

from __future__ import annotations

import base64
import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator

from memsweep.report.formats import FIGURES, PER_PICTURE, Shown
from memsweep.report.naming.numbers import clean

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


_LETTERS = 16.0  # of a title, per inch
_DPI = 200
_WIDTHS = {1: 4.6, 2: 3.2, 3: 2.5}  # of axes, inches, by panels side by side
_HIGHEST = 8.5  # inches of a picture on a page of a paper, with room for its caption
_NARROWEST = 3.0  # inches of a panel with its labels, where a paper sets the width of the picture
_LEFT, _RIGHT, _ABOVE, _BELOW, _LINE = 0.6, 0.4, 0.45, 0.45, 0.165  # around axes, and of a line below, inches
_METADATA: Mapping[str, dict[str, str | None]] = {  # no dates, and no versions of libraries
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
}
_ABOUT = {"png": "Description", "pdf": "Subject", "svg": "Description"}
_COORDINATES = re.compile(r'\s(?:d|x|y)="[^"]*"')
_DIGITS = re.compile(r"(\.\d\d)\d+")  # a hundredth of a point is finer than any screen


@dataclass(frozen=True)
class Panel:
    """One set of axes.

    Attributes:
        group: heading that this panel shares with its neighbours.
        title: what tells it from them.
        draw: draws onto empty axes.
        keys: lines of a legend below the axes, for which the panel grows.
        note: lines of text below the axes, below the legend.
        high: of the axes, inches.
        words: what the panel shows, as a sentence, for readers who do not see it.
    """

    group: str
    title: str
    draw: Callable[[Axes], None]
    keys: int = 0
    note: Sequence[str] = ()
    high: float = 1.9
    words: str = ""


@dataclass(frozen=True)
class Gallery:
    """The panels of one question for one ball.

    Attributes:
        name: stem of the files.
        legend: entries that all panels share.
        columns: panels side by side.
    """

    name: str
    panels: Sequence[Panel]
    legend: Sequence[tuple[str, LineStyle]] = ()
    columns: int = 3


def draw(
    gallery: Gallery,
    folder: Path,
    formats: Sequence[str] = FIGURES[:1],
    *,
    embed: bool = False,
    width: float | None = None,
) -> Shown | None:
    """Write a gallery as pictures of at most 12 panels each: ``<name>.png``, ``<name>-2.png``, ...

    Args:
        gallery: what to draw.
        folder: of the files.
        formats: of ``memsweep.report.formats.FIGURES``; each picture is a file in each of them.
        embed: return the first picture for a page.
        width: of the files' pictures, inches; None: that of the page's.
    """
    shown = embedded(gallery) if embed and width is not None else None
    for name, panels in parts_of(gallery, width).items():
        with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure, words = _picture(gallery, panels, width), _words(panels)
            for form in formats:
                # into memory first: at a full disk a backend fails in ways of its own while it closes its file
                drawn = io.BytesIO()
                figure.savefig(drawn, format=form, dpi=_DPI, metadata=_METADATA[form] | {_ABOUT[form]: words})
                (folder / f"{name}.{form}").write_bytes(drawn.getvalue())
            if embed and shown is None:
                shown = _data_address(figure), words
    return shown


def parts_of(gallery: Gallery, width: float | None = None) -> dict[str, Sequence[Panel]]:
    """The pictures of a gallery, by name: panels of at most 12 each, and no more than a page of a paper has room for.

    Args:
        gallery: whose panels they are.
        width: as of ``draw``.
    """
    most = PER_PICTURE
    if width is not None and gallery.panels:
        rows = int(_HIGHEST // sum(_heights(gallery.panels)))
        most = min(most, max(1, rows) * _columns(gallery, gallery.panels, width))
    starts = range(0, len(gallery.panels), most)
    names = (gallery.name if number == 1 else f"{gallery.name}-{number}" for number in range(1, len(starts) + 1))
    return {name: gallery.panels[at : at + most] for name, at in zip(names, starts, strict=True)}


def figure_of(gallery: Gallery, panels: Sequence[Panel], width: float | None = None) -> Picture:
    """One picture of a gallery, as a figure of its own; ``width`` as of ``draw``."""
    with matplotlib.rc_context(SETTINGS):
        return _picture(gallery, panels, width)


class Picture(Figure):
    """A figure that looks as in the report wherever it is drawn, and that a notebook shows without pyplot."""

    def draw(self, renderer: Any) -> None:
        with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=_DPI // 2)
        return buffer.getvalue()


def embedded(gallery: Gallery) -> Shown:
    """The first picture of a gallery for a page alone, without files."""
    panels = next(iter(parts_of(gallery).values()))
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        return _data_address(_picture(gallery, panels)), _words(panels)


def _words(panels: Sequence[Panel]) -> str:
    about = (panel.words or f"{', '.join(filter(None, (panel.group, panel.title)))}." for panel in panels)
    return clean(" ".join(about))


def _picture(gallery: Gallery, panels: Sequence[Panel], width: float | None = None) -> Picture:
    columns = _columns(gallery, panels, width)
    rows, labels = math.ceil(len(panels) / columns), [clean(label) for label, _ in gallery.legend]
    wide = _WIDTHS[columns] if width is None else width / columns - _LEFT - _RIGHT
    _, high, below = _heights(panels)
    width = width or columns * (_LEFT + wide + _RIGHT)
    abreast = max(1, min(6, int(width / (0.6 + max(map(len, labels), default=0) / 15))))  # entries of the legend
    legend = 0.22 * math.ceil(len(labels) / abreast)
    height = rows * (_ABOVE + high + below) + legend
    figure = Picture(figsize=(width, height))
    # Places are computed, not searched for: a layout engine takes five times as long.
    grid = figure.add_gridspec(
        rows,
        columns,
        left=_LEFT / width,
        right=1 - _RIGHT / width,
        top=1 - _ABOVE / height,
        bottom=(below + legend) / height,
        wspace=(_LEFT + _RIGHT) / wide,
        hspace=(_ABOVE + below) / high,
    )
    for place, panel in enumerate(panels):
        ax = figure.add_subplot(grid[divmod(place, columns)])
        panel.draw(ax)
        ax.set_title("\n".join(_heading(panel, int(_LETTERS * (wide + _RIGHT)))))
        for line, text in enumerate(panel.note):
            down = -72 * (_BELOW - 0.06 + _LINE * (panel.keys + line))
            spot: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 6.5}
            ax.annotate(text, (0, 0), xytext=(0, down), color=MUTED, va="top", **spot)
    if labels:
        handles = [
            Line2D([], [], label=label, **style.line())
            for label, (_, style) in zip(labels, gallery.legend, strict=True)
        ]
        figure.legend(handles=handles, loc="lower center", ncols=abreast, handlelength=3.5)
    return figure


def _columns(gallery: Gallery, panels: Sequence[Panel], width: float | None) -> int:
    """Panels side by side."""
    abreast = gallery.columns if width is None else min(gallery.columns, int(width // _NARROWEST))
    return min(abreast, len(panels))


def _heights(panels: Sequence[Panel]) -> tuple[float, float, float]:
    """Inches above the axes of a row of panels, of the axes, and below them."""
    lines = max(panel.keys + len(panel.note) for panel in panels)
    return _ABOVE, max(panel.high for panel in panels), _BELOW + _LINE * lines


def _heading(panel: Panel, letters: int) -> Sequence[str]:
    """Two lines: group and title, or a group that is alone, over both."""
    alone = textwrap.wrap(panel.group, letters, max_lines=2, placeholder="…")
    texts = (
        alone
        if not panel.title
        else [textwrap.shorten(text, letters, placeholder="…") for text in (panel.group, panel.title)]
    )
    return [clean(text) for text in texts]


def _data_address(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata=_METADATA["svg"])  # the page's ground shows
    text = buffer.getvalue()
    text = text[text.index("<svg") :]  # without the document type, which names an address
    text = _COORDINATES.sub(lambda found: _DIGITS.sub(r"\1", found[0]), text)
    return "data:image/svg+xml;base64," + base64.b64encode(text.encode()).decode()
