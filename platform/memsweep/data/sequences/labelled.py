"""Sequences of symbols, of different lengths, each with a class: expressions, reviews, pairs of papers.

Letters: N leading dimensions (replicas, copies), B batch, T time (horizon), I symbols, C classes, S steps in all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # its parts are imported when they are used
import torch
from torch import Tensor

from memsweep.data.losses import counted_cross_entropy, last_counted_accuracy
from memsweep.data.task import Batch, Task, epoch_rows
from memsweep.streams import TRAIN, Stream

ANSWERS = ("last", "every")
NOTHING = -1
"""Input after the end of a sequence, and target where no answer counts."""
SURE = 50.0
"""Nats by which the logit of an oracle's answer is above the others."""
AT_ONCE = 256
"""Sequences that are laid out at a time while their symbols are counted."""


@dataclass(frozen=True)
class Sequences:
    """Sequences of symbols and their classes.

    Attributes:
        symbols: numbers of symbols, 0 ... I-1, one sequence after the other, ``[S]``, in one or two bytes.
        ends: where each sequence ends among them, ``[B]``; it starts where the one before it ends.
        labels: the classes, ``[B]``, int64, 0 ... C-1.
    """

    symbols: np.ndarray
    ends: np.ndarray
    labels: np.ndarray

    @staticmethod
    def of(sequences: Sequence[Sequence[int] | np.ndarray], labels: Sequence[int]) -> Sequences:
        """Build from sequences with a class each."""
        arrays = [np.asarray(sequence) for sequence in sequences]
        highest = max((int(array.max()) for array in arrays if array.size), default=0)
        kind = np.uint8 if highest < 256 else np.uint16
        symbols = np.concatenate([array.astype(kind, copy=False) for array in arrays] or [np.empty(0, kind)])
        ends = np.cumsum([len(array) for array in arrays], dtype=np.int64)
        return Sequences(symbols, ends, np.asarray(labels, np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[np.ndarray]:
        begin = 0
        for end in self.ends.tolist():
            yield self.symbols[begin:end]
            begin = end

    def select(self, rows: np.ndarray) -> Sequences:
        """The sequences at these positions."""
        begins = np.concatenate([[0], self.ends[:-1]])
        parts = [self.symbols[begins[row] : self.ends[row]] for row in rows]
        lengths = (self.ends - begins)[rows]
        return Sequences(np.concatenate(parts or [self.symbols[:0]]), np.cumsum(lengths), self.labels[rows])

    def split(self, held_out: int, stream: Stream) -> tuple[Sequences, Sequences]:
        """Two disjoint sets, the second with ``held_out`` members, by a permutation that the stream decides."""
        order = stream.generator().permutation(len(self))
        return self.select(order[held_out:]), self.select(order[:held_out])


class LabelledSequences(Task):
    """Classify a sequence of symbols; cross entropy of the answer at its last step, or at every step of it.

    After the end of a sequence, inputs are zeros and no answer counts. A sequence that is longer than T loses its end,
    except for the ``end`` symbol where the task has one. With the config's ``answer``

    - ``last``, the loss is that of the last step of each sequence;
    - ``every``, the mean over all its steps, though most have read only a part: rules that go forward in time learn
      from a loss at every step (Zucchet et al., 2023, arXiv 2305.15947).

    Either is averaged over the sequences, so a short sequence has the weight of a long one. The accuracy is that of
    the last step in both. Batches are drawn as in ``epoch_rows``.

    The config has ``horizon`` and ``answer``.
    """

    reports = ("accuracy",)

    @abstractmethod
    def load(self) -> Mapping[str, Sequences]:
        """The sequences of the streams ``train``, ``validation`` and ``test``: disjoint, in a fixed order.

        Without an ``end`` symbol, no sequence may be empty.
        """

    @property
    @abstractmethod
    def classes(self) -> int:
        """Number of classes, C."""

    @property
    def end(self) -> int | None:
        """Number of the symbol after every sequence, which occurs in none of them; None: there is no such symbol."""
        return None

    @cached_property
    def splits(self) -> Mapping[str, Sequences]:
        """The sequences of each stream, read at first use."""
        return self.load()

    @property
    def outputs(self) -> int:
        return self.classes

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """Symbols ``[B, T]`` and classes ``[B, T]``, both -1 after the end of a sequence, in two bytes each."""
        split = self.splits[stream.name]
        return self.laid_out(split.select(epoch_rows(stream, index, size, len(split))))

    def laid_out(self, sequences: Sequences) -> Batch:
        """A batch of sequences, each cut to T steps or followed by -1, with the targets of each step.

        Raises:
            ValueError: a sequence is empty, and the task has no ``end``.
        """
        shape = len(sequences), self.horizon
        read_BT, asked_BT = (np.full(shape, NOTHING, dtype=np.int16) for _ in range(2))
        room = self.horizon - (self.end is not None)
        for read, asked, sequence, label in zip(read_BT, asked_BT, sequences, sequences.labels, strict=True):
            length = min(len(sequence), room)
            read[:length] = sequence[:length]
            if self.end is not None:
                read[length] = self.end
                length += 1
            if not length:
                raise ValueError("a sequence is empty: without a symbol that ends it, no step of it can be answered")
            asked[0 if self.config.answer == "every" else length - 1 : length] = label
        return Batch(torch.from_numpy(read_BT), torch.from_numpy(asked_BT))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return counted_cross_entropy(outputs, batch.targets).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``accuracy``: the share of sequences that are classified correctly at their last step, 0 ... 1."""
        return {"accuracy": last_counted_accuracy(outputs, batch.targets)}

    def typical(self) -> Sequences:
        """The sequences whose frequencies give chance and the memoryless loss: those of the training stream."""
        return self.splits[TRAIN]

    def metric_levels(self) -> dict[str, tuple[float, float]]:
        """1, and the share of the most frequent class."""
        counts = np.bincount(self.typical().labels)
        return {"accuracy": (1.0, float(counts.max() / counts.sum()))}

    def chance(self) -> float:
        """Entropy of the classes among the typical sequences, in nats; their lengths are not used."""
        return float(scipy.stats.entropy(np.bincount(self.typical().labels)))

    def memoryless_loss(self) -> float:
        """Entropy of the class given the symbol of a step that counts, among the typical sequences, in nats."""
        if self.end is not None and self.config.answer == "last":
            return self.chance()  # the last symbol is the same for all; and the sequences may take gigabytes
        typical = self.typical()
        weights_IC = np.zeros(self.inputs * self.classes)
        for first in range(0, len(typical), AT_ONCE):
            batch = self.laid_out(typical.select(np.arange(first, min(first + AT_ONCE, len(typical)))))
            read_BT, asked_BT = batch.inputs.numpy().astype(np.int64), batch.targets.numpy()
            counted_BT = asked_BT != NOTHING
            pairs = (read_BT * self.classes + asked_BT)[counted_BT]
            # each sequence has weight 1, shared by its steps
            each_BT = np.broadcast_to(1.0 / counted_BT.sum(1, keepdims=True), counted_BT.shape)
            weights_IC += np.bincount(pairs, each_BT[counted_BT], minlength=len(weights_IC))
        by_symbol = weights_IC.reshape(self.inputs, self.classes).sum(1)
        return float(scipy.stats.entropy(weights_IC) - scipy.stats.entropy(by_symbol))

    def oracle(self, inputs: Tensor) -> Tensor:
        """The known class of each sequence, at every step of it, looked up by the sequence's symbols."""
        known: dict[bytes, int] = {}
        for split in self.splits.values():
            for read, label in zip(self.laid_out(split).inputs.numpy(), split.labels.tolist(), strict=True):
                known[read.tobytes()] = label
        return self.sure([known[read.tobytes()] for read in inputs.contiguous().numpy()])

    def sure(self, classes: Sequence[int]) -> Tensor:
        """Logits ``[B, T, C]`` of these classes at every step."""
        answer = torch.zeros(len(classes), self.horizon, self.classes, dtype=torch.float64)
        answer[torch.arange(len(classes)), :, torch.tensor(classes)] = SURE
        return answer
