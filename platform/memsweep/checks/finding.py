"""The finding of one check of an audit."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from memsweep.errors import listed

_NAMED = 3
"""Numbers without a value that a sentence names."""
_SOME = 0.1
"""Seconds; with less a check has no time of its own."""
POINTS = 64
"""Of a curve: enough for a picture over a logarithmic axis."""


class Status(enum.StrEnum):
    """How a check ended."""

    PASS = "pass"
    SKIP = "skip"
    """The check does not apply to this module, or a fault that another one found makes it meaningless."""
    NOTE = "note"
    """Something that its author should know, and that may be meant; or something that could not be measured."""
    NOT_ENOUGH = "not enough"
    """No fault so far as the time allowed to look, which is less than was asked for."""
    FAULT = "fault"


@dataclass(frozen=True)
class Curve:
    """One line of a picture.

    Attributes:
        panel: the picture: ``memory``, ``gradient``, ``capacity``, ``hold``, ``precision``, ``seconds`` or ``bytes``.
        name: what the line is, among the lines of its panel.
        x: lags or lengths, in steps; of ``capacity``, the place of a singular value.
        y: values, in the unit of the panel.
    """

    panel: str
    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Finding:
    """The measurements of one check.

    Attributes:
        check: its name.
        status: how it ended.
        sentence: what was found, with its figures.
        numbers: what was measured; every value is a number, a text, a list or a mapping of these.
        curves: what the page draws.
        left_out: what the time did not allow to look at.
    """

    check: str
    status: Status
    sentence: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    curves: tuple[Curve, ...] = ()
    left_out: tuple[str, ...] = ()

    def without(self, left_out: Sequence[str], seconds: float) -> Finding:
        """The finding as it stands where the time did not allow all: not enough, unless it is a fault."""
        if not left_out:
            return self
        why = f" within {show(seconds)} s" if seconds >= _SOME else ", for no time was left"
        said = f"{self.sentence} Not looked at{why}: {'; '.join(left_out)}."
        status = Status.FAULT if self.status is Status.FAULT else Status.NOT_ENOUGH
        return replace(self, status=status, sentence=said, left_out=tuple(left_out))


def finding(
    check: str,
    well: str,
    numbers: Mapping[str, Any],
    *,
    faults: Sequence[str] = (),
    notes: Sequence[str] = (),
    curves: Sequence[Curve] = (),
) -> Finding:
    """A finding whose status is the worst of what was noticed; a number that is nan is noticed, too.

    Args:
        check: its name.
        well: the sentence where nothing was noticed.
        numbers: what was measured.
        faults, notes: one sentence each; faults come first.
        curves: what the page draws.
    """
    if not faults and not notes and (undefined := [*dict.fromkeys(_undefined(numbers))]):
        notes = [f"{well} No number came out for {listed(undefined, _NAMED)}."]
    status = Status.FAULT if faults else Status.NOTE if notes else Status.PASS
    return Finding(check, status, " ".join([*faults, *notes]) or well, numbers, tuple(curves))


def _undefined(value: Any, name: str = "") -> Iterator[str]:
    """The names of the numbers that are nan, by the keys that lead to them: ``float32.noise.error``.

    A value in a list, however deep, has the name of the list.
    """
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _undefined(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _undefined(each, name)
    elif value != value:
        yield name


def not_measured(check: str, why: str, status: Status = Status.NOTE) -> Finding:
    """A check that could not be made, or with ``SKIP`` does not apply."""
    return Finding(check, status, f"Not measured: {why}")


def curve(panel: str, name: str, values: np.ndarray, start: int = 0) -> Curve:
    """A curve over the lags ``start, start + 1, ...`` at no more than ``POINTS`` of them, evenly in their logarithm."""
    lags = np.unique(np.geomspace(1, len(values), POINTS).round().astype(int)) - 1 if len(values) else np.array([], int)
    return Curve(panel, name, tuple(map(float, lags + start)), tuple(map(float, values[lags])))


def show(value: float) -> str:
    """A measured number with two digits: ``3.1e-07``, ``0.25``, ``41``; nan is ``unknown``."""
    if math.isnan(value):
        return "unknown"
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    return (
        f"{value:.1e}"
        if abs(value) < 1e-3 or abs(value) >= 1e5
        else f"{value:.2g}"
        if abs(value) < 100
        else f"{value:.0f}"
    )
