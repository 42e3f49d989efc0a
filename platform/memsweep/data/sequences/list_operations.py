"""The expressions of ListOps: nested operations on lists of digits, whose value is one digit.

An expression is a digit, or an operation of two or more expressions: ``[MAX 2 9 [MIN 4 7 ] 0 ]``, whose value is 9.
The operations are those of Nangia and Bowman (2018, arXiv 1804.06028) in the choice of the Long Range Arena (Tay et
al., 2020, arXiv 2011.04006): the largest, the smallest, the median (of an even number: the mean of the middle two,
rounded down) and the sum modulo 10.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

DIGITS = tuple("0123456789")
OPERATIONS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: sum(values) % 10,
}
CLOSE = "]"
EXPRESSION_SYMBOLS = (*DIGITS, *OPERATIONS, CLOSE)
"""The symbols of an expression. The position of a symbol is its number; for a digit it is the digit itself."""

_NUMBER_OF = {symbol: number for number, symbol in enumerate(EXPRESSION_SYMBOLS)}
_BY_NUMBER = {_NUMBER_OF[name]: operation for name, operation in OPERATIONS.items()}
_FIRST, _CLOSE = min(_BY_NUMBER), _NUMBER_OF[CLOSE]
_OPERATION = 0.25  # probability that a node above the greatest depth is an operation, as published
_DRAWN_AT_ONCE = 4096


def expression_numbers(symbols: Sequence[str]) -> list[int]:
    """The numbers of symbols.

    Raises:
        KeyError: a symbol is not in the vocabulary; it is the error's argument.
    """
    return [_NUMBER_OF[symbol] for symbol in symbols]


def expression_value(numbers: Sequence[int]) -> int:
    """The value of an expression, given by the numbers of its symbols.

    Raises:
        ValueError: the numbers are no expression.
    """
    open_lists: list[tuple[int, list[int]]] = [(_CLOSE, [])]  # the outermost holds the value of the whole
    for number in numbers:
        if number in _BY_NUMBER:
            open_lists.append((number, []))
        elif number != _CLOSE:
            open_lists[-1][1].append(number)
        elif len(open_lists) > 1 and open_lists[-1][1]:
            operation, values = open_lists.pop()
            open_lists[-1][1].append(_BY_NUMBER[operation](values))
        else:
            raise ValueError(f"{_text(numbers)} is no expression: a list is closed that is empty or was never opened")
    if len(open_lists) > 1 or len(open_lists[0][1]) != 1:
        raise ValueError(f"{_text(numbers)} is no expression: it must come to one digit, with all lists closed")
    return open_lists[0][1][0]


def _text(numbers: Sequence[int]) -> str:
    shown = " ".join(EXPRESSION_SYMBOLS[number] for number in numbers[:12])
    return f"{shown!r}{' ...' if len(numbers) > 12 else ''}"


@dataclass(frozen=True)
class ExpressionLaw:
    """The law of random expressions of the Long Range Arena's generator.

    A node is an operation with probability 1/4, otherwise a digit, and always a digit at the greatest depth (the root
    has depth 1). Operations are equally likely, and so are 2 ... ``most_arguments`` arguments, which are nodes one
    deeper. Whole expressions are drawn until the length is allowed.

    Attributes:
        greatest_depth: of a node, at least 1.
        most_arguments: of an operation, at least 2.
        shortest, longest: allowed lengths in symbols, brackets included.
    """

    greatest_depth: int
    most_arguments: int
    shortest: int
    longest: int

    def draw(self, rng: np.random.Generator, attempts: int | None = None) -> Iterator[tuple[int, ...]]:
        """An endless stream of expressions of allowed length; it ends when ``attempts`` draws in a row had another."""
        uniform = _uniform(rng)
        while True:
            failures = 0
            while not (expression := self._attempt(uniform)):
                failures += 1
                if failures == attempts:
                    return
            yield expression

    def _attempt(self, uniform: Iterator[float]) -> tuple[int, ...]:
        """An expression, empty where its length is not allowed; drawing stops as soon as it is too long."""
        numbers: list[int] = []
        missing = [1]  # arguments that each open list lacks; the outermost list has one, the expression itself
        needed = 1  # symbols that are sure to follow
        while missing:
            if not missing[-1]:
                missing.pop()
                if missing:
                    numbers.append(_CLOSE)
                    needed -= 1
                continue
            missing[-1] -= 1
            if len(missing) < self.greatest_depth and next(uniform) < _OPERATION:
                numbers.append(_FIRST + int(next(uniform) * len(OPERATIONS)))
                arguments = 2 + int(next(uniform) * (self.most_arguments - 1))
                missing.append(arguments)
                needed += arguments  # and the closing bracket, in place of this symbol
            else:
                numbers.append(int(next(uniform) * len(DIGITS)))
                needed -= 1
            if len(numbers) + needed > self.longest:
                return ()
        return tuple(numbers) if len(numbers) >= self.shortest else ()


def _uniform(rng: np.random.Generator) -> Iterator[float]:
    """Numbers of [0, 1), one by one; they are drawn in blocks, which is many times faster."""
    while True:
        yield from rng.random(_DRAWN_AT_ONCE).tolist()
