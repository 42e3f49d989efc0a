"""Words of a group: read its elements and output their product so far; parity and counters are the smallest of them.

The word problem of Merrill, Petty and Sabharwal (2024, arXiv 2404.08819): every step is answered, with the product
x_1 x_2 ... x_t of the elements read so far. S3, A4, S4, A5 and S5 are permutations of three to five things, all of them
(S) or the even ones (A). The words of A5 and S5, groups that cannot be solved in the sense of algebra, are complete for
the circuits NC1. State-space models whose matrices are diagonal, or the same at every step, compute in TC0, and so
cannot track them at every length unless TC0 is NC1. A linear recurrence of finite precision needs negative eigenvalues
for parity, and some that are not real for a modulus above 2 (Grazzi et al., 2024, arXiv 2411.12537).

All |G| states differ in their answers, so a state that makes no error has at least log2 |G| bits, at every length.

Letters: B batch, T time (horizon), G elements of the group.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar

import numpy as np

from memsweep.config.core.fields import setting
from memsweep.data.api import TEST, TrackedStates
from memsweep.registry import register_task

Element = tuple[int, ...]
"""A permutation: thing i goes to place ``element[i]``."""
GROUPS = ("S3", "A4", "S4", "A5", "S5")


def _elements(group: str) -> list[Element]:
    """Elements in a fixed order, the identity first: ``S5`` all permutations of 5 things, ``A5`` even ones, ``C5``
    rotations."""
    things = range(int(group[1:]))
    if group[0] == "C":
        return [tuple((thing + turn) % len(things) for thing in things) for turn in things]
    return [element for element in permutations(things) if group[0] == "S" or _even(element)]


def _even(element: Element) -> bool:
    return sum(one > two for place, two in enumerate(element) for one in element[:place]) % 2 == 0


def _product(first: Element, then: Element) -> Element:
    return tuple(then[thing] for thing in first)


@functools.lru_cache(maxsize=16)
def _table(group: str) -> np.ndarray:
    """The number of each product, ``[G, G]``."""
    elements = _elements(group)
    numbers = {element: number for number, element in enumerate(elements)}
    return np.array([[numbers[_product(first, then)] for then in elements] for first in elements])


class GroupWords(TrackedStates):
    """Products of random elements of a group."""

    @property
    def group(self) -> str:
        """Its letter and number: ``S3``."""
        raise NotImplementedError

    @property
    def inputs(self) -> int:
        return len(_table(self.group))

    @property
    def outputs(self) -> int:
        return self.inputs

    def sequences(self, rng: np.random.Generator, size: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        table, read_BT = _table(self.group), rng.integers(0, self.inputs, (size, steps))
        products_BT = read_BT.copy()
        for step in range(1, steps):
            products_BT[:, step] = table[products_BT[:, step - 1], read_BT[:, step]]
        return read_BT, products_BT

    def memoryless_loss(self) -> float:
        """Entropy of the product given its last element, which it is at the first step, and uniform afterwards."""
        steps, size = self.steps_of(TEST), self.inputs
        other = (1.0 - 1.0 / steps) / size
        last = other + 1.0 / steps
        return -last * math.log(last) - (size - 1) * other * math.log(other) if other else 0.0

    def answers(self, symbols: list[int]) -> list[int]:
        """Permutes things one element after the other."""
        elements = _elements(self.group)
        things, labels = elements[0], []
        for symbol in symbols:
            things = _product(things, elements[symbol])
            labels.append(elements.index(things))
        return labels


@register_task("word_problem")
class WordProblem(GroupWords):
    """Output the product of all permutations read so far; cross entropy, averaged over the steps."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The group, and the lengths of words."""

        horizon: int = setting(32, "elements of a word in training, T", at_least=1)
        group: str = setting("S3", "the group: permutations of 3, 4 or 5 things, or the even ones", choices=GROUPS)
        test_factor: int = setting(4, "length of a test word, in horizons", at_least=1)

    @property
    def group(self) -> str:
        return str(self.config.group)


@register_task("modular_counter")
class ModularCounter(GroupWords):
    """Output the sum of all numbers read so far, modulo k; cross entropy, averaged over the steps."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The modulus, and the lengths of sequences."""

        horizon: int = setting(32, "numbers of a sequence in training, T", at_least=1)
        modulus: int = setting(5, "k; numbers are 0 ... k - 1", at_least=2, at_most=1000)
        test_factor: int = setting(4, "length of a test sequence, in horizons", at_least=1)

    @property
    def group(self) -> str:
        return f"C{self.config.modulus}"


@register_task("parity")
class Parity(GroupWords):
    """Output whether the number of ones read so far is odd; cross entropy, averaged over the steps."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The lengths of sequences."""

        horizon: int = setting(32, "bits of a sequence in training, T", at_least=1)
        test_factor: int = setting(4, "length of a test sequence, in horizons", at_least=1)

    group: ClassVar[str] = "C2"
