"""Sequences of symbols with answers at marked steps: recall, copying, state tracking.

Letters: N leading dimensions (replicas, copies), B batch, T time (horizon), I symbols, C classes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from memsweep.data.losses import counted_cross_entropy, step_accuracy
from memsweep.data.sequences.labelled import NOTHING, SURE
from memsweep.data.task import Batch, Task
from memsweep.streams import TEST, Stream


class MarkedSequences(Task):
    """Read symbols and answer at the marked steps; cross entropy of an answer, averaged over those of a sequence.

    A task has ``inputs`` symbols and ``outputs`` classes. Every sequence has an answer at one step at least.
    """

    reports: ClassVar[tuple[str, ...]] = ("accuracy",)

    @abstractmethod
    def sequences(self, rng: np.random.Generator, size: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Symbols, 0 ... I-1, and classes, 0 ... C-1, or ``NOTHING`` where no answer counts: ``[B, steps]`` each."""

    @abstractmethod
    def answers(self, symbols: list[int]) -> list[int]:
        """The class at every step of one sequence, ``NOTHING`` where none counts, from its symbols alone."""

    def steps_of(self, stream: str) -> int:
        """Steps of a sequence of this stream; T unless a task has other test sequences."""
        del stream
        return self.horizon

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """Symbols and classes ``[B, T]``, in two bytes each."""
        read_BT, asked_BT = self.sequences(stream.generator(index), size, self.steps_of(stream.name))
        return Batch(*(torch.from_numpy(each.astype(np.int16)) for each in (read_BT, asked_BT)))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return counted_cross_entropy(outputs, batch.targets).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``accuracy``: the share of right answers at the marked steps, 0 ... 1."""
        return {"accuracy": step_accuracy(outputs, batch.targets, batch.targets != NOTHING)}

    def metric_levels(self) -> dict[str, tuple[float, float]]:
        """1 and 1/C: each class is as probable as the others."""
        return dict.fromkeys(self.reports, (1.0, 1.0 / self.outputs))

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


class TrackedStates(MarkedSequences):
    """Sequences whose answers are states that their symbols change, with test sequences longer than the others.

    A test sequence has ``test_factor`` times the T steps of training and validation. No answer depends on later
    symbols, so the first 2T and 4T steps of a test sequence are a test at these lengths: the accuracies at T, 2T and
    4T say how a model generalizes to sequences that are longer than those it was trained on. The test loss is the mean
    over all steps.

    The config has ``horizon`` and ``test_factor``; ``sequences`` has an answer in the first T steps.
    """

    reports = ("accuracy", "accuracy_2T", "accuracy_4T")

    def steps_of(self, stream: str) -> int:
        return self.horizon * (self.config.test_factor if stream == TEST else 1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Shares of right answers, 0 ... 1: in the first T, 2T and 4T steps, as far as a sequence goes."""
        found = {}
        for name, factor in zip(self.reports, (1, 2, 4), strict=True):
            targets = batch.targets[:, : factor * self.horizon]
            found[name] = step_accuracy(outputs[..., : targets.shape[1], :], targets, targets != NOTHING)
        return found
