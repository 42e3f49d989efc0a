"""Numbers, text and truth values: the right type, finite, within the limits of their ``setting``."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from fractions import Fraction
from typing import Any, Final

from memsweep import registry
from memsweep.config.core.problems import Problem, not_one_of, show

INVALID: Final = object()
"""Stands for a value that could not be built; the reasons are among the problems."""

NAMES: Final[dict[Any, str]] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}

_SWEPT = frozenset({"task", "model", "training", "perturbation"})
"""Sections whose fields may be axes of the grid."""
_LIMITS = (
    ("at_least", operator.ge, "at least"),
    ("above", operator.gt, "above"),
    ("at_most", operator.le, "at most"),
    ("below", operator.lt, "below"),
)


_EXACT = 2.0**53  # up to here a float is a whole number without doubt
_LIST = re.compile(r"[-+\d.e]+(?:(?:\.\.|[:;/|x ])[-+\d.e]+)+")
"""Numbers with other signs between them than commas."""
_FRACTION = re.compile(r"(-?\d{1,15})/0*([1-9]\d{0,14})")
_OTHER_BASE = re.compile(r"0[xX][0-9a-fA-F]{1,12}|0[oO][0-7]{1,12}|0[bB][01]{1,40}")
_ZEROS = re.compile(r"[-+]?0\d")
_WORD = re.compile(r"[\w.:/+-]+")
"""A value that a shell, Hydra and YAML leave as it is."""


def scalar(wanted: type, field: dataclasses.Field[Any], data: Any, path: str, problems: list[Problem]) -> Any:
    """``data`` as a bool, int, float or str within the field's limits and choices, or INVALID.

    Types are exact: true is not read as a number, 2.0 not as a whole number. Only a whole number is read as a float.
    """
    value = _convert(wanted, data)
    if value is INVALID:
        problems.append(Problem(path, f"must be {NAMES[wanted]}", f"{show(data)}{_advice(wanted, data, path)}"))
        return INVALID
    if isinstance(value, float) and not math.isfinite(value):
        problems.append(Problem(path, "must be a finite number", show(data)))
        return INVALID
    choices = field.metadata.get("choices")
    if choices is not None and value not in choices:
        problems.append(not_one_of(path, value, choices))
        return INVALID
    kind = field.metadata.get("named")
    if kind is not None and value not in registry.names(kind):
        problems.append(Problem(path, registry.unknown(kind, value)))
        return INVALID
    for name, holds, words in _LIMITS:
        limit = field.metadata.get(name)
        if limit is not None and not isinstance(value, str) and not holds(value, limit):
            problems.append(Problem(path, f"must be {words} {limit:,}".replace(",", "_"), show(data)))
            return INVALID
    return value


def _convert(wanted: type, data: Any) -> Any:
    if type(data) is wanted:
        return data
    if wanted is float and type(data) is int:
        try:
            return float(data)
        except OverflowError:
            return math.inf
    return INVALID


def _advice(wanted: type, data: Any, path: str) -> str:
    if isinstance(data, list):
        return several_values(data, path)
    if wanted is str and isinstance(data, bool | int | float):
        return " (write it in quotes to make it text)"
    if wanted is int and isinstance(data, float) and data.is_integer() and abs(data) < _EXACT:
        return f" (write {int(data)})"
    return _of_text(wanted, data, path) if wanted in (int, float) and isinstance(data, str) else ""


def _of_text(wanted: type, text: str, path: str) -> str:
    """Says how a number, or several, would be written where a text was."""
    if not text:
        return " (nothing stands after the =)"
    if found := _worked_out(wanted, text):
        return f" (write {found})"
    if _ZEROS.match(text) and _is_number(text):
        return " (leave out the zeros in front; decimals stand behind a point)"
    if _LIST.fullmatch(text):
        return f" (several values stand between commas: {path}=2,4,8, or range(2,9,2))"
    return " (write it without quotes to make it a number)" if _is_number(text) else ""


def _worked_out(wanted: type, text: str) -> str:
    """The number that a fraction stands for, or a whole number in another base; empty for other texts."""
    if fraction := _FRACTION.fullmatch(text):
        value = Fraction(int(fraction[1]), int(fraction[2]))
        return str(value) if value.denominator == 1 else show(float(value)) if wanted is float else ""
    return str(int(text, 0)) if _OTHER_BASE.fullmatch(text) else ""


def several_values(data: Any, path: str) -> str:
    """How the values of a list are tried one after the other, in brackets; empty where they cannot be meant so."""
    is_axis = path.partition(".")[0] in _SWEPT and isinstance(data, list) and data
    if not is_axis or not all(isinstance(each, int | float) or _is_word(each) for each in data):
        return ""
    words = ",".join(each if isinstance(each, str) else show(each) for each in data)
    return f" (to try several values, write {path}={words} or grid.{path}=[{words}])"


def _is_word(data: Any) -> bool:
    """Whether a value stands on a command line, between commas, as it is."""
    return isinstance(data, str) and _WORD.fullmatch(data) is not None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
