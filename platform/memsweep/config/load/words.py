"""What a word of a command line may be, whatever it says: bounds that keep the reading of it short."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memsweep.config.core.problems import show
from memsweep.config.load.yaml_text import CONTROL, MOST_LEVELS

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

MOST_WORDS = 1_000
LONGEST_WORD = 10_000
LONGEST_LINE = 100_000
"""Characters of one word and of all together; Hydra's parser takes seconds for the former."""
MOST_VALUES = 100_000
"""Values of all axes together."""


def refused(words: Sequence[str]) -> list[str]:
    """Why these words are not read at all; empty when they are."""
    if len(words) > MOST_WORDS:
        return [f"the command line has {len(words):,} overrides, more than {MOST_WORDS:,}. {_FILE}."]
    total = sum(map(len, words))
    if total > LONGEST_LINE:
        return [f"the overrides have {total:,} characters, more than {LONGEST_LINE:,}. {_FILE}."]
    found = []
    for word in words:
        if len(word) > LONGEST_WORD:
            size = f"{len(word):,} characters, more than {LONGEST_WORD:,}"
            found.append(f"the override {show(word)} has {size}. {_FILE}.")
        elif sign := CONTROL.search(word):
            found.append(f"the override {show(word)} holds the character U+{ord(sign[0]):04X}. Take it out.")
    return found


def listed(override: Override, room: int) -> list[Any]:
    """The values of an override that sweeps.

    Args:
        override: as it was parsed.
        room: values that there may be.

    Raises:
        TooManyError: there are more.
        Exception: whatever Hydra says of a sweep that lists no values.
    """
    from hydra.core.override_parser.types import RangeSweep, Transformer

    value = override.value()
    if isinstance(value, RangeSweep) and len(list(itertools.islice(value.range(), room + 1))) > room:
        raise TooManyError(_count(value))
    return list(override.sweep_iterator(Transformer.identity))


class TooManyError(Exception):
    """An axis is longer than it may be; the message is its length, as far as it is known."""


def depth(value: Any) -> int:
    """How many levels of lists and mappings a value has."""
    level, inside = 0, [value]
    while inside := [item for one in inside if isinstance(one, Mapping | list | tuple) for item in _inner(one)]:
        level += 1
    return level


def too_deep(path: str, value: Any) -> str | None:
    """Why a dotted path or its value is refused, if it is."""
    levels = path.count(".") + depth(value)
    return f"{show(path)} is nested more than {MOST_LEVELS} levels deep" if levels > MOST_LEVELS else None


_FILE = "Write what is longer into a study file"


def _inner(value: Any) -> Sequence[Any]:
    # an empty collection is a level, too
    return list(value.values() if isinstance(value, Mapping) else value) or [None]


def _count(sweep: Any) -> str:
    try:
        return f"{math.ceil((sweep.stop - sweep.start) / sweep.step):,}"
    except (ArithmeticError, ValueError, TypeError):
        return "endlessly many"
