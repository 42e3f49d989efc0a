"""Batches to train on: fresh sequences at every step, or a fixed set that is shuffled every epoch."""

from __future__ import annotations

from typing import Generic

import torch

from memsweep.config.schema.training import TrainingConfig
from memsweep.data.task import Batch
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.loss.batch_sharding import ONE_SHARD, BatchSharding, ShardedBatch
from memsweep.streams import TRAIN, Stream


class TrainingBatches(Generic[Data]):
    """The batches of a training run; batch ``step`` is a function of the config and the step.

    Args:
        task_loss: draws and prepares the sequences.
        training: ``train_size`` 0 draws a new batch at every step. Otherwise an epoch is a permutation of
            ``train_size`` sequences, cut into batches; sequences that do not fill a batch are left out of that epoch.
        sharding: how each batch is cut.

    Raises:
        ValueError: ``train_size`` is larger than the task's own training set.
    """

    def __init__(
        self, task_loss: TaskLoss[Data], training: TrainingConfig, sharding: BatchSharding = ONE_SHARD
    ) -> None:
        self.task_loss, self.training, self.sharding = task_loss, training, sharding
        self.stream = Stream(training.data_seed, TRAIN)
        self.order = Stream(training.data_seed, "train order")
        self.fixed_set = self._fixed_set() if training.train_size else None
        self.epoch, self.permutation = -1, torch.empty(0, dtype=torch.long)

    def _fixed_set(self) -> Batch:
        size = self.training.train_size
        batch = self.task_loss.draw(self.stream, 0, size)
        if len(batch.inputs) < size:
            raise ValueError(
                f"training.train_size is {size}, but the task has only {len(batch.inputs)} training sequences: use at "
                "most that, or 0, with which a task that has a training set of its own shuffles it every epoch"
            )
        return batch

    def batch(self, step: int) -> ShardedBatch[Data]:
        """The prepared batch of a step."""
        size = self.training.batch_size
        if self.fixed_set is None:
            return self.sharding.prepare(self.task_loss, self.task_loss.draw(self.stream, step, size))
        epoch, index = divmod(step, max(1, self.training.train_size // size))
        if epoch != self.epoch:
            shuffled = self.order.generator(epoch).permutation(self.training.train_size)
            self.epoch, self.permutation = epoch, torch.from_numpy(shuffled)
        rows = self.permutation[index * size : (index + 1) * size]
        return self.sharding.prepare(self.task_loss, self.task_loss.select(self.fixed_set, rows))
