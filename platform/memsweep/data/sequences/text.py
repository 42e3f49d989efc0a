"""Texts as sequences of symbols: prediction of the next symbol, and the numbers of characters.

Letters: N leading dimensions (replicas, copies), B batch, T time (window), A symbols of the alphabet, R runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # its parts are imported when they are used
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from memsweep.data.losses import mean_cross_entropy, step_accuracy
from memsweep.data.sequences.labelled import SURE, Sequences
from memsweep.data.task import Batch, CarriedTask
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream

SPLITS = (TRAIN, VALIDATION, TEST)
RUNS = 10
"""Sequences side by side in validation and test, as published."""
SYMBOLS = 4096
"""Largest alphabet: a model reads and outputs one number for each symbol."""


@dataclass(frozen=True)
class Corpus:
    """A text in three parts, as numbers of symbols.

    Attributes:
        alphabet: the symbols of the training part, sorted; ``UNKNOWN`` at the end where the other parts have symbols
            that the training part has not.
        parts: the numbers of the symbols, by stream (``train``, ``validation``, ``test``), in one or two bytes each.
    """

    UNKNOWN = ""

    alphabet: tuple[str, ...]
    parts: Mapping[str, np.ndarray]

    @staticmethod
    def of(train: Sequence[str], validation: Sequence[str], test: Sequence[str]) -> Corpus:
        """The corpus of these symbols; symbols that do not occur in training become one symbol, the unknown.

        Raises:
            ValueError: there are more than 4096 symbols.
        """
        known = sorted(set(train))
        number = {symbol: place for place, symbol in enumerate(known)}
        if not (set(validation) | set(test)).issubset(number):
            known.append(Corpus.UNKNOWN)
        if len(known) > SYMBOLS:
            raise ValueError(f"holds {len(known)} different symbols; at most {SYMBOLS} are allowed")
        kind = np.uint8 if len(known) <= 256 else np.uint16
        number |= dict.fromkeys((set(validation) | set(test)).difference(number), len(number))
        parts = {
            name: np.fromiter(map(number.__getitem__, part), kind, len(part))
            for name, part in zip(SPLITS, (train, validation, test), strict=True)
        }
        return Corpus(tuple(known), parts)

    def short(self, horizon: int) -> list[str]:
        """The parts without a window of ``horizon`` steps and a symbol after it, one sentence each."""
        return [
            f"the {name} part has {len(part):,} symbols; windows of {horizon} steps need at least {horizon + 1:,}"
            for name, part in self.parts.items()
            if len(part) <= horizon
        ]


class TextTask(CarriedTask):
    """Predict every next symbol of a text; cross entropy in nats, averaged over the symbols.

    The training part is cut into B sequences of equal length, one for each row of a batch. They are read side by side,
    window after window, and again from the start when they end (an epoch). Symbols that do not divide into B sequences
    or fill no window are left out. Every seed reads the same batches.

    The other parts are cut into R = ``runs(size)`` sequences, at most 10 (as published). A batch of ``size`` windows
    has ``size // R`` consecutive windows of each sequence: batch 0 from its start, batch 1 the windows after those, and
    again from the start at its end; all windows where there are fewer. They are the same for every seed.

    The config has ``horizon`` and ``corpus()``.
    """

    reports = ("bits_per_character", "accuracy")

    def load(self) -> Corpus:
        """The text; a Config that reads it from files caches it."""
        corpus: Corpus = self.config.corpus()
        return corpus

    @cached_property
    def corpus(self) -> Corpus:
        """The text, read at first use.

        Raises:
            ValueError: a part is too short for one window.
        """
        corpus = self.load()
        if short := corpus.short(self.horizon):
            raise ValueError("; ".join(short))
        return corpus

    @property
    def inputs(self) -> int:
        return len(self.corpus.alphabet)

    @property
    def outputs(self) -> int:
        return len(self.corpus.alphabet)

    def _windows(self, name: str, rows: int = 1) -> int:
        """Windows in each of ``rows`` sequences side by side; the last symbol is only a target."""
        return (len(self.corpus.parts[name]) // rows - 1) // self.horizon

    def _rows(self, name: str, most: int) -> int:
        """Sequences side by side, at most ``most``, that have a window each."""
        return min(most, len(self.corpus.parts[name]) // (self.horizon + 1))

    def begins(self, index: int, size: int) -> bool:
        return index % self._windows(TRAIN, self._rows(TRAIN, size)) == 0

    def room(self) -> int:
        return self._rows(TRAIN, len(self.corpus.parts[TRAIN]))

    def runs(self, size: int) -> int:
        return min(RUNS, size, *(self._rows(name, RUNS) for name in SPLITS if name != TRAIN))

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """One-hot symbols ``[B, T, A]`` and the numbers of the next symbols, ``[B, T]``."""
        name = stream.name
        rows = self._rows(name, size) if name == TRAIN else self.runs(size)
        windows = self._windows(name, rows)
        each = 1 if name == TRAIN else min(size // rows, windows)
        first = index % (windows // each) * each  # a block of consecutive windows, never one across the end
        part = self.corpus.parts[name]
        length = len(part) // rows
        starts_B = (np.arange(rows)[:, None] * length + (first + np.arange(each)) * self.horizon).ravel()
        symbols = torch.from_numpy(part[starts_B[:, None] + np.arange(self.horizon + 1)].astype(np.int64))
        return Batch(one_hot(symbols[:, :-1], self.inputs).to(torch.float64), symbols[:, 1:].contiguous())

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return mean_cross_entropy(outputs, batch.targets).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``bits_per_character``: the loss in bits; ``accuracy``: the share of symbols predicted correctly, 0 ... 1."""
        return {
            "bits_per_character": self.loss(outputs, batch) / math.log(2.0),
            "accuracy": step_accuracy(outputs, batch.targets),
        }

    def chance(self) -> float:
        """Entropy of a symbol of the training part, in nats, by its frequencies."""
        return float(scipy.stats.entropy(np.bincount(self.corpus.parts[TRAIN])))

    def memoryless_loss(self) -> float:
        """Entropy of a symbol given the one before it, in nats, by the frequencies of pairs in the training part."""
        part, symbols = self.corpus.parts[TRAIN].astype(np.int64), self.outputs
        pairs = np.bincount(part[:-1] * symbols + part[1:])
        return float(scipy.stats.entropy(pairs[pairs > 0]) - scipy.stats.entropy(np.bincount(part[:-1])))

    def oracle(self, inputs: Tensor) -> Tensor:
        """The symbols after each position of a window, found by a search of the text for the window."""
        texts = ["".join(map(chr, part)) for part in self.corpus.parts.values()]
        answer = torch.zeros_like(inputs)
        for row, window in enumerate(inputs.argmax(-1).tolist()):
            read = "".join(map(chr, window))
            # the end of the text is no match: no symbol follows there
            following = next(
                text[start + len(read)] for text in texts if (start := text.find(read, 0, len(text) - 1)) >= 0
            )
            answer[row, range(len(read)), [*window[1:], ord(following)]] = SURE
        return answer


@dataclass(frozen=True)
class Characters:
    """The characters that a task distinguishes. All others have one number, the unknown.

    Attributes:
        known: the characters, the most frequent first: character n of the string has the number n.
    """

    known: str

    @staticmethod
    def of(texts: Iterable[str], at_least: int = 1) -> Characters:
        """The characters that occur ``at_least`` times in these texts; equally frequent ones in Unicode's order.

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
        """The number of every other character; greater numbers are free."""
        return len(self.known)

    @cached_property
    def _numbers(self) -> np.ndarray:
        """The number of each character, by its code point."""
        kind = np.uint8 if len(self.known) < 250 else np.uint16  # with room for the numbers that are free
        numbers = np.full(0x110000, self.unknown, kind)
        numbers[[ord(letter) for letter in self.known]] = np.arange(len(self.known))
        return numbers

    def sequences(self, texts: Sequence[str], labels: Sequence[int]) -> Sequences:
        """Texts as sequences of the numbers of their characters, with a class each."""
        points = np.frombuffer("".join(texts).encode("utf-32-le", errors="surrogatepass"), np.uint32)
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return Sequences(self._numbers[points], ends, np.asarray(labels, np.int64))
