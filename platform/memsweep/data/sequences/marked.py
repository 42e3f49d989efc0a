"""Sequences of symbols with answers at marked steps: recall, copying, state tracking.

Letters: N leading dimensions (replicas, copies), B batch, T time (horizon), I symbols, C classes.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from memsweep.data.losses import counted_cross_entropy, step_accuracy
from memsweep.data.sequences.labelled import NOTHING, SURE
from memsweep.data.task import Batch, Task
from memsweep.streams import Stream


class MarkedSequences(Task):
    """Read symbols and answer at the marked steps; cross entropy of an answer, averaged over those of a sequence.

    A task has ``inputs`` symbols and ``outputs`` classes. Every sequence has an answer at one step at least.
    """

    reports = ("accuracy",)

    @abstractmethod
    def sequences(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Symbols, 0 ... I-1, and classes, 0 ... C-1, or ``NOTHING`` where no answer counts: ``[B, T]`` each."""

    @abstractmethod
    def answers(self, symbols: list[int]) -> list[int]:
        """The class at every step of one sequence, ``NOTHING`` where none counts, from its symbols alone."""

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """Symbols and classes ``[B, T]``, in two bytes each."""
        read_BT, asked_BT = self.sequences(stream.generator(index), size)
        return Batch(*(torch.from_numpy(each.astype(np.int16)) for each in (read_BT, asked_BT)))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return counted_cross_entropy(outputs, batch.targets).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``accuracy``: the share of right answers at the marked steps, 0 ... 1."""
        return {"accuracy": step_accuracy(outputs, batch.targets, batch.targets != NOTHING)}

    def chance(self) -> float:
        """ln C: each class is as probable as the others."""
        return math.log(self.outputs)

    def memoryless_loss(self) -> float:
        """ln C, like chance: the symbol of a marked step says nothing of its answer."""
        return self.chance()

    def oracle(self, inputs: Tensor) -> Tensor:
        """``answers``, as sure logits."""
        answer = torch.zeros(*inputs.shape, self.outputs, dtype=torch.float64)
        for row, symbols in enumerate(inputs.tolist()):
            for step, label in enumerate(self.answers(symbols)):
                if label != NOTHING:
                    answer[row, step, label] = SURE
        return answer
