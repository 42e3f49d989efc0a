"""Batches in shards: loss and gradient of a batch as the sum of those of its shards.

The number of shards alone fixes their sequences and the order of the sum. So the numbers do not depend on how many
processes compute the shards: a process group gives the same bits as one process that computes one shard after the
other. They equal the numbers of the whole batch within rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from memsweep.data.task import Batch
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.parallel import ProcessGroup


class WorkersDisagreeError(RuntimeError):
    """The workers of a process group no longer hold the same weights."""


@dataclass(frozen=True)
class ShardedBatch(Generic[Data]):
    """A prepared batch, as the shards of it that this process computes.

    Attributes:
        shards: the share of the batch's sequences in each shard, and its data.
        group: whose processes compute one shard each; None: this process computes all of them.
    """

    shards: Sequence[tuple[float, Data]]
    group: ProcessGroup | None = None

    def mean(self, compute: Callable[[Data], Sequence[Tensor]], weights: Tensor, live: Tensor) -> Sequence[Tensor]:
        """Means over the batch (losses, gradients) from the means over each shard.

        Args:
            compute: gives the means over the data of one shard.
            weights, live: ``[rows, size]`` and ``[rows]``, at which they are computed.

        Raises:
            WorkersDisagreeError: the processes of the group hold different weights.
        """
        if len(self.shards) == 1 and self.group is None:
            return compute(self.shards[0][1])
        own = [[share * value for value in compute(data)] for share, data in self.shards]
        shapes = [value.shape for value in own[0]]
        # one flat tensor a shard: one message, whatever is summed
        flat = [torch.cat([value.flatten() for value in values]) for values in own]
        every = flat if self.group is None else _gather(self.group, flat[0], weights, live)
        total = every[0].clone()
        for values in every[1:]:  # in order: a reduction of the backend would sum in an order of its own
            total += values
        sizes = [shape.numel() for shape in shapes]
        return [piece.view(shape) for piece, shape in zip(total.split(sizes), shapes, strict=True)]


@dataclass(frozen=True)
class BatchSharding:
    """How batches are cut.

    Attributes:
        count: number of shards of every batch.
        group: whose processes compute one shard each; None: this process computes all of them.
    """

    count: int = 1
    group: ProcessGroup | None = None

    def __post_init__(self) -> None:
        if self.group is not None and self.group.size != self.count:
            raise ValueError(
                f"{self.group.size} workers cannot share {self.count} parts of a batch: there is one for each"
            )

    def prepare(self, task_loss: TaskLoss[Data], batch: Batch) -> ShardedBatch[Data]:
        """The shards of a batch that this process computes."""
        if self.count == 1:
            return ShardedBatch([(1.0, task_loss.prepare(batch))], self.group)
        size = len(batch.inputs)
        if size < self.count:
            raise ValueError(
                f"a batch of {size} sequences cannot be cut into {self.count} parts: use a larger training.batch_size "
                "and training.validation_size, fewer resources.workers, or resources.strategy=replicas"
            )
        cuts = torch.arange(size, device="cpu").tensor_split(self.count)
        own = cuts if self.group is None else cuts[self.group.rank : self.group.rank + 1]
        shards = [(len(rows) / size, task_loss.prepare(task_loss.select(batch, rows))) for rows in own]
        return ShardedBatch(shards, self.group)

    def population(self, task_loss: TaskLoss[Data]) -> ShardedBatch[Data]:
        """The data of the expected loss, which has no sequences to cut."""
        if self.count > 1:
            raise ValueError(
                "training.objective=population has no batch to cut into parts: use resources.strategy=replicas with it"
            )
        return ShardedBatch([(1.0, task_loss.population())])


ONE_SHARD = BatchSharding()


def _gather(group: ProcessGroup, own: Tensor, weights: Tensor, live: Tensor) -> list[Tensor]:
    """The tensors of all processes, after a check that all computed them at the same weights.

    Workers whose weights differ would sum gradients of different models, and in the end wait for one another without
    end. All of them see the difference at the same step, so all stop.
    """
    checksum = _checksum(weights, live).view(own.dtype)
    tensors = group.gather(torch.cat([own, checksum]))
    checksums = torch.stack([tensor[-len(checksum) :] for tensor in tensors]).view(torch.uint8)
    if bool((checksums != checksums[0]).any()):
        raise WorkersDisagreeError(
            "the workers that share out the data of a trial do not hold the same weights any more: they must run on "
            "one kind of processor with the same versions. Use nodes of one kind, or resources.strategy=replicas"
        )
    return [tensor[: -len(checksum)] for tensor in tensors]


def _checksum(weights: Tensor, live: Tensor) -> Tensor:
    """A number that depends on every bit of the weights and on which rows are live: ``[1]``, int64."""
    bits = weights.detach().contiguous().view({8: torch.int64, 4: torch.int32}[weights.element_size()])
    rows = torch.arange(1, len(live) + 1, device=live.device)
    return (bits.sum(dtype=torch.int64) + (live.long() * rows).sum()).view(1)
