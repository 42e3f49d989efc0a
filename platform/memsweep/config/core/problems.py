"""Mistakes in a configuration, one ``Problem`` each, and the spelling of values in messages."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from memsweep.errors import did_you_mean, one_of

VALUE, UNKNOWN, REQUIRED, WHOLE = "value", "unknown", "required", "whole"
"""Kinds: a value that its field refuses; a key without a field; a missing field; a rule about several fields."""

_LONGEST = 60


@dataclass(frozen=True)
class Problem:
    """One mistake.

    Attributes:
        path: dotted path of the field.
        rule: the rule that is broken, without a full stop.
        got: the written value (empty where the rule says it).
        kind: one of this module's kinds.
    """

    path: str
    rule: str
    got: str = ""
    kind: str = VALUE

    def __str__(self) -> str:
        return sentence(self.path, self.rule, self.got)


def sentence(path: str, rule: str, got: str = "", where: str = "") -> str:
    """``training.steps: must be at least 0, got -1 (in the grid).``"""
    head = f"{path}: " if path else ""
    text = f"{rule}, got {got}" if got else rule.rstrip(".")
    return f"{head}{text}{where}{'' if text.endswith('?') and not where else '.'}"


def not_one_of(path: str, value: Any, choices: Iterable[str]) -> Problem:
    """The value of a field is not among its choices."""
    near = did_you_mean(value, choices).strip().rstrip("?").replace("Did", "did")
    return Problem(path, f"must be one of {one_of(choices)}", show(value) + (f" ({near}?)" if near else ""))


def join(path: str, key: object) -> str:
    """The dotted path of a key below a path; always one line."""
    word = key if isinstance(key, str) and key.isprintable() else repr(key)
    return f"{path}.{word}" if path else word


def lies_in(path: str, place: str) -> bool:
    """Whether a dotted path is this place, or leads to a part of it."""
    return f"{path}.".startswith(f"{place}.")


def phrase(words: Iterable[str], most: int = 5) -> str:
    """The first ``most`` words as one phrase, and how many more there are."""
    spelled = list(words)
    more = len(spelled) - most
    return ", ".join([*spelled[:most], *([f"and {more} more"] if more > 0 else [])])


def show(value: Any) -> str:
    """A value as a study file would spell it, cut to a readable length."""
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):  # keys that JSON lacks, or a value that contains itself
        text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
