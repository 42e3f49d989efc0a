"""Pictures as lists of panels: one panel is one set of axes, drawn alone for the page and together for papers."""

from __future__ import annotations

import base64
import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from memsweep.report.naming.numbers import clean
from memsweep.report.style import SETTINGS, LineStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEGEND_COLUMNS = 6
_LEGEND_MARK, _LEGEND_LETTERS = 0.5, 17.0  # of an entry: inches of its sample and of gaps, and letters per inch
_LETTERS = 16.2  # of a title, per inch
_PER_PICTURE = 12  # panels in one PNG: what a page of a paper can hold
_DPI = 200
_COORDINATES = re.compile(r'\s(?:d|x|y)="[^"]*"')
_DIGITS = re.compile(r"(\.\d\d)\d+")  # a hundredth of a point is finer than any screen
_LEFT, _TOP, _AXES_HEIGHT, _BOTTOM, _LINE, _TITLE = 0.58, 0.08, 1.9, 0.44, 0.165, 0.42  # inches


@dataclass(frozen=True)
class Panel:
    """One set of axes.

    Attributes:
        group: heading that this panel shares with its neighbours.
        title: what tells it from them.
        description: the picture in words, for readers who cannot see it.
        draw: draws onto empty axes.
        identities: the trials that the panel is drawn from.
        width: of the whole panel, inches.
        right: margin right of the axes, inches, for what is written there.
        legend_lines: lines of text below the axes, for which the panel grows.
    """

    group: str
    title: str
    description: str
    draw: Callable[[Axes], None]
    identities: tuple[str, ...]
    width: float = 3.3
    right: float = 0.1
    legend_lines: int = 0

    @property
    def names(self) -> tuple[str, str]:
        """The lines above the panel where it stands without headings."""
        return self.group, self.title

    @property
    def height(self) -> float:
        """Of the whole panel without a title, inches."""
        return _TOP + _AXES_HEIGHT + _BOTTOM + _LINE * self.legend_lines

    def place(self, figure: Figure, left: float, top: float) -> Axes:
        """Draw into a figure, ``left`` and ``top`` inches from its corner.

        Places are computed, not searched for: a layout engine would draw every picture twice.
        """
        width, height = figure.get_size_inches()
        bottom = height - top - _TOP - _AXES_HEIGHT
        inside = self.width - _LEFT - self.right
        ax = figure.add_axes(((left + _LEFT) / width, bottom / height, inside / width, _AXES_HEIGHT / height))
        self.draw(ax)
        return ax


@dataclass(frozen=True)
class Gallery:
    """The panels of one question for one ball.

    Attributes:
        name: stem of the PNG files.
        legend: entries that all panels share.
        columns: panels side by side in a PNG.
    """

    name: str
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, LineStyle], ...] = ()
    columns: int = 3


@contextmanager
def house_style() -> Iterator[None]:
    """Draw with the report's settings; a glyph that a font lacks is no reason to warn the reader of a terminal."""
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def svg(panel: Panel) -> str:
    """One panel as a ``data:`` address: an image of its own, whose text can run nothing in the page."""
    with house_style():
        figure = Figure(figsize=(panel.width, panel.height))
        panel.place(figure, 0.0, 0.0)
        return _data_address(figure)


def legend_mark(style: LineStyle) -> str:
    """A legend's sample of one line, as a ``data:`` address."""
    with house_style():
        figure = Figure(figsize=(0.42, 0.16))
        figure.patch.set_alpha(0)
        figure.add_artist(Line2D([0.02, 0.5, 0.98], [0.5] * 3, markevery=[1], **style.line()))
        return _data_address(figure)


def write_png(gallery: Gallery, folder: Path) -> list[Path]:
    """A gallery as PNG pictures of at most 12 panels each: ``<name>.png``, ``<name>-2.png``, ..."""
    written = []
    for first in range(0, len(gallery.panels), _PER_PICTURE):
        number = first // _PER_PICTURE + 1
        path = folder / (f"{gallery.name}.png" if number == 1 else f"{gallery.name}-{number}.png")
        _picture(gallery, gallery.panels[first : first + _PER_PICTURE], path)
        written.append(path)
    return written


def _picture(gallery: Gallery, panels: Sequence[Panel], path: Path) -> None:
    columns = min(gallery.columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    width, height = (max(getattr(panel, side) for panel in panels) for side in ("width", "height"))
    legend_columns = _legend_columns([label for label, _ in gallery.legend], width * columns)
    legend_rows = math.ceil(len(gallery.legend) / legend_columns)
    with house_style():
        figure = Figure(figsize=(width * columns, (height + _TITLE) * rows + 0.22 * legend_rows))
        for index, panel in enumerate(panels):
            row, column = divmod(index, columns)
            ax = panel.place(figure, width * column, (height + _TITLE) * row + _TITLE)
            ax.set_title(
                "\n".join(
                    clean(textwrap.shorten(part, int(_LETTERS * (panel.width - _LEFT)), placeholder="…"))
                    for part in panel.names
                )
            )
        if gallery.legend:
            handles = [Line2D([], [], label=clean(label), **style.line()) for label, style in gallery.legend]
            figure.legend(handles=handles, loc="lower center", ncols=legend_columns, handlelength=3.5)
        figure.savefig(path, dpi=_DPI, metadata={"Software": None})


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """How many entries of a legend fit beside each other in a picture of this width, inches; at most 6."""
    longest = max(map(len, labels), default=0)
    return max(1, min(_LEGEND_COLUMNS, int(width / (_LEGEND_MARK + longest / _LEGEND_LETTERS))))


def _data_address(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]  # without the document type, which names an address
    text = _COORDINATES.sub(lambda found: _DIGITS.sub(r"\1", found[0]), text)
    text = "\n".join(line.strip() for line in text.splitlines())
    return "data:image/svg+xml;base64," + base64.b64encode(text.encode()).decode()
