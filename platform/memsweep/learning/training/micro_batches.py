"""How many sequences of a batch are computed at a time: as many as a memory budget allows, by measurement.

The gradient of a batch is a sum over its sequences, so it may be computed in micro-batches. The bytes that it takes are
counted while it is computed on a few sequences (``memsweep.learning.memory``). They depend on shapes and code alone,
never on the machine: a sum over other micro-batches has other last bits, and a trial must have the same bits on every
machine of its kind.
"""

from __future__ import annotations

from collections.abc import Callable

from memsweep.config.schema.training import TrainingConfig
from memsweep.learning.loss.base import CHUNK, Data, TaskLoss
from memsweep.learning.memory import footprint
from memsweep.models.base import Model
from memsweep.streams import TRAIN, Stream

BUDGETS = {"cpu": 1 << 30, "cuda": 16 << 30}
"""Bytes of tensors that the gradient of one micro-batch may hold, by type of device.

One GiB on a processor leaves memory for its other workers. 16 GiB leave half of a common GPU to the data and to the
workspaces of its libraries, which are not counted. Speed does not matter here: smaller micro-batches cost little.
"""


def micro_batch(
    model: Model,
    task_loss: TaskLoss[Data],
    training: TrainingConfig,
    device: str,
    rehearse: Callable[[Data], object],
) -> int | None:
    """Sequences whose losses and gradients are computed at a time; None where batches are not split.

    Args:
        model: of all replicas.
        task_loss: that the model trains on.
        training: ``micro_batch`` decides where it is set. Otherwise the number is a power of two, at most ``CHUNK``.
        device: type of the device that computes.
        rehearse: computes gradients on prepared sequences, all of them at a time, and leaves nothing behind.
    """
    if not task_loss.splits(model):
        return None
    if training.micro_batch:
        return training.micro_batch
    if model.traits(model.config).whole_batch:
        return max(CHUNK, training.batch_size)
    stream = Stream(training.data_seed, TRAIN)

    def work(sequences: int) -> None:
        rehearse(task_loss.sample(stream, training.batch_size, sequences))

    largest = footprint(work, BUDGETS[device]).largest_count(BUDGETS[device])
    return min(CHUNK, 1 << (largest.bit_length() - 1))
