"""Numbers as text for readers: few digits, a true minus sign, ∞, and a dash for a number that is not available."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from memsweep.redaction import without_secrets

if TYPE_CHECKING:
    from memsweep.stability.verdict.trend import Slope

MOST_NAMED = 6
"""Names in a sentence that can still be read."""
_SMALL, _LARGE = 1e-4, 1e6  # beyond them, a number is written with an exponent


def number(value: float, digits: int = 2) -> str:
    """A number with its sign and this many decimals."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:+.{digits}f}"
    if float(text) == 0:
        text = text[1:]  # neither +0.00 nor -0.00: rounding has left no sign to tell
    return text.replace("-", "−")


def is_number(value: Any) -> bool:
    """Whether a value has a place on a numeric axis."""
    return isinstance(value, Real) and not isinstance(value, bool)


def limit(value: float) -> str:
    """A limit as it was set, with a true minus sign: ``−0.2``."""
    return f"{value:g}".replace("-", "−")


def figure(value: float, digits: int = 3) -> str:
    """A number of few significant digits."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    return (mantissa + (f"e{int(exponent)}" if exponent else "")).replace("-", "−")


def interval(value: float, low: float, high: float, digits: int = 3) -> str:
    """``0.12 [0.10, 0.20]``: all three with as many decimals as the longest needs; none of a value too small for them.

    ``0.12 ± 0.0004`` where the ends cannot be told from the value so.
    """
    known = [abs(one) for one in (value, low, high) if math.isfinite(one)]
    if not known:
        return figure(value)
    tiny = 0 < abs(value) < _SMALL
    if math.isnan(value) or tiny or not (_SMALL <= max(known) < _LARGE or max(known) == 0):
        texts = [figure(one, digits) for one in (value, low, high)]
    else:
        short = [f"{one:.{digits}g}" for one in known if one >= _SMALL]
        lengths = [len(text.partition(".")[2]) for text in short if "e" not in text]
        texts = [_fixed(one, max(lengths, default=0)) for one in (value, low, high)]
    return _ends(texts, value, low, high)


def _fixed(value: float, decimals: int) -> str:
    return f"{value:.{decimals}f}".replace("-", "−") if math.isfinite(value) else figure(value)


def _ends(texts: Sequence[str], value: float, low: float, high: float) -> str:
    middle, *ends = texts
    if low < high and {*ends} == {middle} and math.isfinite(high - low):
        return f"{middle} ± {figure(max(value - low, high - value), 1)}"
    return f"{middle} [{', '.join(ends)}]"


def percent(value: float) -> str:
    """A share as a percentage with two significant digits, or whole: ``1 %``, ``10 %``, ``161 %``; ``2.2e16 %``."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    scaled = 100 * abs(value)
    sign = "−" if value < 0 else ""
    if scaled >= _LARGE:
        return f"{sign}{figure(scaled, 2)} %"
    return f"{sign}{scaled:.0f} %" if scaled >= 99.5 else f"{sign}{scaled:.2g} %"


def with_interval(value: float, low: float, high: float) -> str:
    """``0.12 [0.1, 0.2]``; an interval that is the whole line says that there were too few seeds for one."""
    if low == -math.inf and high == math.inf:
        return f"{figure(value)} [too few seeds]"
    return interval(value, low, high)


def slope_text(slope: Slope) -> str:
    """``−0.59 [−0.66, −0.55]``; a dash with an infinite interval where censoring hides it; or ``not available``."""
    if all(map(math.isnan, (slope.estimate, slope.low, slope.high))):
        return "not available"
    ends = (slope.estimate, slope.low, slope.high)
    return _ends([*map(number, ends)], *ends)


def show(value: Any) -> str:
    """A setting as a reader writes it: yes and no, and numbers without noise digits."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, (int, float)) else str(value)


def joined(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def quoted(names: Sequence[str]) -> str:
    """The names between backticks, as headlines have them; of many, how many there are."""
    return joined([f"`{name}`" for name in names]) if len(names) <= MOST_NAMED else f"{len(names)} settings"


def clean(text: str) -> str:
    """Text without secrets and without characters that no XML file may hold and that a terminal would obey."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in without_secrets(text))


def as_sentences(clauses: Iterable[str]) -> str:
    """Each clause with a capital and a full stop."""
    return " ".join(f"{clause[:1].upper()}{clause[1:]}." for clause in clauses)
