"""Batches to train on: fresh sequences at every step, or a fixed set that is shuffled every epoch."""

from __future__ import annotations

from typing import Any

import torch

from memsweep.config.schema.trial import TrainingConfig
from memsweep.data.api import Batch
from memsweep.learning.loss.problem import Problem
from memsweep.streams import TRAIN, Stream


class TrainingData:
    """The batches of a training run; batch ``step`` is a function of the config and the step.

    Args:
        problem: whose sequences.
        training: ``train_size`` 0 draws batch ``step`` anew; otherwise an epoch is a permutation of ``train_size``
            sequences, cut into batches, and what does not fill a batch is left out of that epoch.

    Raises:
        ValueError: ``train_size`` is larger than the task's own training set.
    """

    def __init__(self, problem: Problem, training: TrainingConfig) -> None:
        self.problem, self.training = problem, training
        self.stream = Stream(training.data_seed, TRAIN)
        self.order = Stream(training.data_seed, "train order")
        self.sequences = self._fixed_set() if training.train_size else None
        self.epoch, self.permutation = -1, torch.empty(0, dtype=torch.long)

    def _fixed_set(self) -> Any:
        wanted = self.training.train_size
        sequences = self.problem.sequences(self.stream, 0, wanted)
        held = len(sequences.inputs if isinstance(sequences, Batch) else sequences)
        if held < wanted:
            raise ValueError(
                f"training.train_size is {wanted}, but the task has only {held} training sequences: use at most that, "
                "or 0, with which a task that has a training set of its own shuffles it every epoch"
            )
        return sequences

    def batch(self, step: int) -> Any:
        """The prepared batch of a step."""
        size = self.training.batch_size
        if self.sequences is None:
            return self.problem.data(self.stream, step, size)
        epoch, place = divmod(step, max(1, self.training.train_size // size))
        if epoch != self.epoch:
            shuffled = self.order.generator(epoch).permutation(self.training.train_size)
            self.epoch, self.permutation = epoch, torch.from_numpy(shuffled)
        rows = self.permutation[place * size : (place + 1) * size]
        return self.problem.prepared(self.problem.chosen(self.sequences, rows))
