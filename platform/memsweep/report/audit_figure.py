"""The figure of an audit as SVG: small panels of lines over two logarithmic axes, drawn without any library."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memsweep.gate import gated

Lines = Mapping[str, Sequence[tuple[float, float]]]
"""Name of a line -> its points, all above 0."""

_WIDE, _HIGH = 300, 170  # of the axes of a panel, in pixels
_LEFT, _ABOVE, _RIGHT, _BELOW = 58, 44, 22, 44
_KEY = 15  # height of a line of the legend
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b5539b", "#8c6d00", "#56b4e9", "#222222")
_DASHES = ("", "6 2", "2 2", "7 2 2 2", "4 2")
_MOST_TICKS = 6
_ROOM = 1.6
"""Factor above the largest and below the smallest value."""
_STYLE = "font: 11px 'DejaVu Sans', Verdana, sans-serif; fill: #1d2530"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Panel:
    """One chart.

    Attributes:
        title, second: its two lines of words.
        x, y: words of the axes.
        lines: by name.
    """

    title: str
    second: str
    x: str
    y: str
    lines: Lines

    @property
    def words(self) -> str:
        """What it shows, for whoever sees no picture."""
        names = ", ".join(self.lines)
        return gated(f"{self.title}: {self.second}; {self.y} against {self.x}; lines: {names}.")


def address(panels: Sequence[Panel], columns: int) -> str:
    """The picture as a data URI."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg(panels, columns).encode()).decode()}"


def svg(panels: Sequence[Panel], columns: int) -> str:
    """The picture: panels side by side in so many columns."""
    columns = min(columns, len(panels))
    keys = max(len(panel.lines) for panel in panels)
    across, down = _LEFT + _WIDE + _RIGHT, _ABOVE + _HIGH + _BELOW + _KEY * keys
    width, height = across * columns, down * math.ceil(len(panels) / columns)
    parts = []
    for place, panel in enumerate(panels):
        at = f"translate({place % columns * across + _LEFT} {place // columns * down + _ABOVE})"
        parts.append(f'<g transform="{at}">{"".join(_panel(panel))}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img"><rect width="100%" height="100%" fill="white"/><g style="{_STYLE}">{"".join(parts)}</g></svg>'
    )


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis: its ends, and its length in pixels."""

    low: float
    high: float
    pixels: int

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(share * self.pixels, 1)

    def ticks(self) -> list[float]:
        """Powers of ten inside; steps of 1, 2 and 5 where there are few."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        every = max(1, math.ceil((last - first) / _MOST_TICKS))
        factors = (1, 2, 5) if last - first <= 2 else (1,)
        values = [factor * 10.0**power for power in range(first, last + 1, every) for factor in factors]
        return [value for value in values if self.low <= value <= self.high]


def _panel(panel: Panel) -> Iterator[str]:
    points = [point for line in panel.lines.values() for point in line]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    across = _Axis(min(xs), max(*xs, min(xs) * 1.01), _WIDE)
    up = _Axis(min(ys) / _ROOM, max(ys) * _ROOM, _HIGH)
    yield _text(panel.title, 0, -26, 'font-weight="bold"')
    yield _text(panel.second, 0, -11, 'fill="#5b6673"')
    yield f'<path d="M0 0V{_HIGH}H{_WIDE}" fill="none" stroke="#5b6673"/>'
    for tick in across.ticks():
        x = across.at(tick)
        yield f'<path d="M{x} {_HIGH}v4" stroke="#5b6673"/>' + _text(_power(tick), x, _HIGH + 16, _MIDDLE)
    for tick in up.ticks():
        y = _HIGH - up.at(tick)
        yield f'<path d="M0 {y}H{_WIDE}" stroke="#e6e9ed"/>' + _text(_power(tick), -6, y + 4, 'text-anchor="end"')
    yield _text(panel.x, _WIDE / 2, _HIGH + 33, _MIDDLE)
    yield _text(panel.y, 0, 0, f'text-anchor="middle" transform="translate(-44 {_HIGH / 2}) rotate(-90)"')
    for place, (name, line) in enumerate(panel.lines.items()):
        look = f'stroke="{_COLOURS[place % len(_COLOURS)]}" stroke-dasharray="{_DASHES[place % len(_DASHES)]}"'
        path = " ".join(f"{across.at(x)},{_HIGH - up.at(y)}" for x, y in line)
        yield f'<polyline points="{path}" fill="none" stroke-width="1.6" {look}/>'
        key = _HIGH + 46 + _KEY * place
        yield f'<path d="M0 {key}h24" stroke-width="1.6" {look}/>' + _text(name, 30, key + 4)


_MIDDLE = 'text-anchor="middle"'


def _text(words: str, x: float, y: float, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" {more}>{html.escape(gated(words))}</text>'


def _power(value: float) -> str:
    """``0.2``, ``100``, and beyond a thousandth and ten thousand ``10⁻⁵``."""
    exponent = round(math.log10(value), 6)
    if -3 <= exponent < 4 or not exponent.is_integer():
        return f"{value:g}"
    return "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
