"""Texts as long sequences of symbols: predict each next one, with the state carried from window to window.

Letters: N leading dimensions (replicas, copies), B batch, T time (window), A symbols of the alphabet, R runs.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.stats
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from memsweep.data.losses import mean_cross_entropy, step_accuracy
from memsweep.data.task import Batch, CarriedTask
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream

SPLITS = (TRAIN, VALIDATION, TEST)
RUNS = 10  # sequences side by side in validation and test, as published
SYMBOLS = 4096  # of an alphabet, at most: a model reads and answers one number for each
SURE = 50.0  # nats by which the oracle's answer stands above the others


@dataclass(frozen=True)
class Corpus:
    """A text in three parts, as numbers of symbols.

    Attributes:
        alphabet: the symbols of the training part in their order; at the end ``UNKNOWN`` where the other parts hold
            symbols that the training part does not.
        parts: the numbers of the symbols, by stream (``train``, ``validation``, ``test``), in one or two bytes each.
    """

    UNKNOWN = ""

    alphabet: tuple[str, ...]
    parts: Mapping[str, np.ndarray]

    @staticmethod
    def of(train: Sequence[str], validation: Sequence[str], test: Sequence[str]) -> Corpus:
        """The corpus of these symbols; what does not occur in training becomes one symbol, the unknown.

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
        """The parts that do not hold a window of ``horizon`` steps and the symbol behind it, one sentence each."""
        return [
            f"the {name} part has {len(part):,} symbols; windows of {horizon} steps need at least {horizon + 1:,}"
            for name, part in self.parts.items()
            if len(part) <= horizon
        ]


class TextTask(CarriedTask):
    """Predict every next symbol of a text; cross entropy in nats, averaged over the symbols.

    Training batch ``index`` of B rows: the training part is cut into B sequences of equal length that are read side by
    side, window after window, and begun anew when they end (an epoch); what does not divide into B sequences, or fills
    no window, is left out. The training part has no order to draw: every seed reads the same.

    The other parts are cut into R = ``runs(size)`` sequences, at most 10 (as published). A batch of ``size`` windows
    holds ``size // R`` windows of each, one sequence's behind each other: in batch 0 from the beginning of the
    sequences, in batch 1 those behind them, and round again at the end; all of them where they are fewer. Nothing is
    random: validation and test are the same for every seed.
    """

    reports = ("bits_per_character", "accuracy")

    @abstractmethod
    def load(self) -> Corpus:
        """The text; whoever reads it from a file keeps it."""

    @cached_property
    def corpus(self) -> Corpus:
        """The text, read at first use.

        Raises:
            ValueError: a part is too short for one window.
        """
        found = self.load()
        if short := found.short(self.horizon):
            raise ValueError("; ".join(short))
        return found

    @property
    def inputs(self) -> int:
        return len(self.corpus.alphabet)

    @property
    def outputs(self) -> int:
        return len(self.corpus.alphabet)

    def _windows(self, name: str, rows: int = 1) -> int:
        """Windows in each of so many sequences side by side; the last symbol is a target alone."""
        return (len(self.corpus.parts[name]) // rows - 1) // self.horizon

    def _rows(self, name: str, wanted: int) -> int:
        """As many sequences side by side as were wanted, or as hold a window each."""
        return min(wanted, len(self.corpus.parts[name]) // (self.horizon + 1))

    def begins(self, index: int, size: int) -> bool:
        return index % self._windows(TRAIN, self._rows(TRAIN, size)) == 0

    def room(self) -> int:
        return self._rows(TRAIN, len(self.corpus.parts[TRAIN]))

    def runs(self, size: int) -> int:
        return min(RUNS, size, *(self._rows(name, RUNS) for name in SPLITS if name != TRAIN))

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """One-hot symbols ``[B, T, A]`` and the numbers of those that follow, ``[B, T]``."""
        name = stream.name
        rows = self._rows(name, size) if name == TRAIN else self.runs(size)
        held = self._windows(name, rows)
        each = 1 if name == TRAIN else min(size // rows, held)
        first = index % (held // each) * each  # a block of windows that follow each other, never one across the end
        part = self.corpus.parts[name]
        length = len(part) // rows
        starts_B = (np.arange(rows)[:, None] * length + (first + np.arange(each)) * self.horizon).ravel()
        symbols = torch.from_numpy(part[starts_B[:, None] + np.arange(self.horizon + 1)].astype(np.int64))
        return Batch(one_hot(symbols[:, :-1], self.inputs).to(torch.float64), symbols[:, 1:].contiguous())

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return mean_cross_entropy(outputs, batch.targets).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``bits_per_character``: the loss in bits; ``accuracy``: the share of right first guesses, 0 ... 1."""
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
        """What follows each window where the text holds it: the next symbol of the window, and the one behind it."""
        texts = ["".join(map(chr, part)) for part in self.corpus.parts.values()]
        answer = torch.zeros_like(inputs)
        for row, window in enumerate(inputs.argmax(-1).tolist()):
            read = "".join(map(chr, window))
            following = next(text[place + len(read)] for text in texts if (place := _place(text, read)) >= 0)
            answer[row, range(len(read)), [*window[1:], ord(following)]] = SURE
        return answer


def _place(text: str, window: str) -> int:
    """Where a window stands with a symbol behind it; -1: nowhere."""
    return text.find(window, 0, len(text) - 1)
