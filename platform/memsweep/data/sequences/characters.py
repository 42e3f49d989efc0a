"""Texts as numbers of their characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from memsweep.data.sequences.labelled import Sequences
from memsweep.data.sequences.text import SYMBOLS


@dataclass(frozen=True)
class Characters:
    """The characters that a task tells apart. All others have one number, the unknown.

    Attributes:
        known: the characters, the most frequent first: character n of the string has the number n.
    """

    known: str

    @staticmethod
    def of(texts: Iterable[str], at_least: int = 1) -> Characters:
        """The characters that occur so often in these texts or more often; those equally frequent in Unicode's order.

        Raises:
            ValueError: there are more than 4096.
        """
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text)
        frequent = sorted((-count, letter) for letter, count in counts.items() if count >= at_least)
        if len(frequent) > SYMBOLS:
            raise ValueError(f"hold {len(frequent)} different characters; at most {SYMBOLS} are allowed")
        return Characters("".join(letter for _, letter in frequent))

    @property
    def unknown(self) -> int:
        """The number of every other character; those from the next on are free."""
        return len(self.known)

    @cached_property
    def _numbers(self) -> np.ndarray:
        """The number of each character, by its place in Unicode."""
        few = len(self.known) < 250  # and a byte has room for the numbers that are free
        found = np.full(0x110000, self.unknown, np.uint8 if few else np.uint16)
        found[[ord(letter) for letter in self.known]] = np.arange(len(self.known))
        return found

    def sequences(self, texts: Sequence[str], labels: Sequence[int]) -> Sequences:
        """Texts as sequences of the numbers of their characters, with a class each."""
        places = np.frombuffer("".join(texts).encode("utf-32-le", errors="surrogatepass"), np.uint32)
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return Sequences(self._numbers[places], ends, np.asarray(labels, np.int64))
