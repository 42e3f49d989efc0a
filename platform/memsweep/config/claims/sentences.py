"""Claims in words: ``radius(exp) > radius(direct) at width 8``.

A sentence compares one metric of two sides. Its grammar::

    claim = side (">" | "<") side ["at" place {("," | "and") place}]
    side  = metric "(" item {"," item} ")"
    item  = value | field "=" value
    place = field ["="] value

A field is a path of a trial's configuration or its last parts (``width``, ``model.width``). A value alone stands for
the axis of the study that has it. Values with other characters than letters, digits and ``_ . + -`` go into quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

GREATER, LESS = ">", "<"
EXAMPLE = "radius(exp) > radius(direct) at width 8"

_TOKENS = re.compile(r"""\s*(?:(?P<word>[\w.+\-]+)|(?P<quoted>"[^"]*"|'[^']*')|(?P<mark>[()=,<>]))""")
_INTEGER = re.compile(r"[+-]?\d+")
_CONSTANTS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class Item:
    """One condition of a sentence: a field and its value; the field is empty where the value stands alone."""

    field: str
    value: Any


@dataclass(frozen=True)
class Sentence:
    """A claim as it was written, names not yet looked up in the study.

    Attributes:
        text: the whole sentence, blanks evened out.
        metric: what both sides have.
        left, right: the items of each side.
        op: ``>`` or ``<``.
        at: what holds on both sides.
    """

    text: str
    metric: str
    left: tuple[Item, ...]
    op: str
    right: tuple[Item, ...]
    at: tuple[Item, ...]


class GrammarError(Exception):
    """A sentence that cannot be read; the message says where and what may stand there."""


def parsed(text: str) -> Sentence:
    """Read a sentence.

    Raises:
        GrammarError: it is none.
    """
    return _Reader(text).sentence()


class _Reader:
    """Reads one sentence from left to right."""

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())
        self.tokens = [*_tokens(self.text), ("", len(self.text))]
        self.next = 0

    def sentence(self) -> Sentence:
        metric, left = self._side()
        op = self._one_of(GREATER, LESS)
        start = self._at
        other, right = self._side()
        if other != metric:
            raise GrammarError(f"compares {metric} with {other} (character {start + 1}); both sides need one metric")
        at = self._places() if self._token else ()
        return Sentence(self.text, metric, left, op, right, at)

    @property
    def _token(self) -> str:
        return self.tokens[self.next][0]

    @property
    def _at(self) -> int:
        return self.tokens[self.next][1]

    def _side(self) -> tuple[str, tuple[Item, ...]]:
        metric = self._word("a metric")
        self._one_of("(")
        items = [self._item()]
        while self._one_of(",", ")") == ",":
            items.append(self._item())
        return metric, tuple(items)

    def _item(self) -> Item:
        first = self._word("a value, or field=value")
        if self._token != "=":
            return Item("", _value(first))
        self._one_of("=")
        return Item(first, _value(self._word("a value")))

    def _places(self) -> tuple[Item, ...]:
        self._one_of("at")
        places = [self._place()]
        while self._token:
            self._one_of(",", "and")
            places.append(self._place())
        return tuple(places)

    def _place(self) -> Item:
        field = self._word("a field")
        if self._token == "=":
            self._one_of("=")
        return Item(field, _value(self._word("a value")))

    def _word(self, what: str) -> str:
        token = self._token
        if not token or token in "()=,<>":
            raise self._unexpected(what)
        self.next += 1
        return token

    def _one_of(self, *allowed: str) -> str:
        token = self._token
        if token not in allowed:
            raise self._unexpected(" or ".join(f"'{word}'" for word in allowed))
        self.next += 1
        return token

    def _unexpected(self, wanted: str) -> GrammarError:
        got = f"{self._token!r} at character {self._at + 1}" if self._token else "the end"
        return GrammarError(f"cannot be read as a claim such as {EXAMPLE}: {wanted} must stand where {got} is")


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Words, quoted text and marks, each with where it begins."""
    place = 0
    while place < len(text):
        match = _TOKENS.match(text, place)
        if match is None:
            raise GrammarError(
                f"has {text[place:].lstrip()[:1]!r} at character {place + 1}, which needs quotes around it"
            )
        token = match.group(match.lastgroup or 0)
        yield token, match.end() - len(token)
        place = match.end()


def _value(word: str) -> Any:
    """The value that a word stands for, as a study file would read it."""
    if word[0] in "\"'":
        return word[1:-1]
    if word in _CONSTANTS:
        return _CONSTANTS[word]
    if _INTEGER.fullmatch(word) and len(word) < 20:
        return int(word)
    try:
        return float(word) if word[-1].isdigit() or word[-1] == "." else word
    except ValueError:
        return word
