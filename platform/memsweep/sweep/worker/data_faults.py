"""Data that are not finite, where a seed stopped or has no error: a fault of the task, and no property of the model."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from memsweep import registry
from memsweep.data.task import on_processor
from memsweep.outcome import Outcome
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream

if TYPE_CHECKING:
    from memsweep.data.task import Batch, Task
    from memsweep.trial import TrialResult


class DataFaultError(ValueError):
    """A task drew numbers that are not finite."""


def data_fault(result: TrialResult) -> DataFaultError | None:
    """The fault in the data that left a trial's seeds without a finite loss; None where the data are in order.

    Looked at are the validation batch and the batch of the step at which a seed diverged, and the test batch of a seed
    without an error. Each is drawn again.
    """
    config = result.config
    lost = [row for row in result.tables["replicas"].to_dict("records") if not math.isfinite(row["error"])]
    if not lost or config.training.objective == "population":
        return None
    task: Task = registry.get(registry.TASK, config.task.name)(config.task)
    for stream, index, size in dict.fromkeys(batch for row in lost for batch in _batches(config, row)):
        with contextlib.suppress(Exception), on_processor():  # it was drawn before; what it raises now is not the fault
            batch = task.draw(Stream(config.training.data_seed, stream), index, size)
            if wrong := _not_finite(task, batch):
                return DataFaultError(
                    f"the task {config.task.name!r} gave {wrong} in batch {index} of the stream {stream!r} "
                    f"(data_seed {config.training.data_seed}, {size} sequences), and {len(lost)} of "
                    f"{config.training.seeds} seeds have no finite loss. All must be finite: correct its draw"
                )
    return None


def _batches(config: Any, row: Mapping[Any, Any]) -> Iterator[tuple[str, int, int]]:
    """Stream, index and size of the batches that may have left a seed without a finite loss."""
    training = config.training
    if row["outcome"] != Outcome.DIVERGED:
        yield TEST, row["seed"], config.perturbation.test_size
        return
    yield VALIDATION, 0, training.validation_size
    # a seed stops at the step of the batch, whose number is that of the steps before it
    yield (TRAIN, 0, training.train_size) if training.train_size else (TRAIN, row["steps"], training.batch_size)


def _not_finite(task: Task, batch: Batch) -> str:
    """Says which numbers of a batch are not finite; empty where none, or where the loss passes them over."""
    inputs, targets = batch.inputs, batch.targets
    if count := int((~torch.isfinite(inputs)).sum()):
        return f"inputs with {count} of {inputs.numel():,} numbers that are not finite"
    if count := int((~torch.isfinite(targets)).sum()):
        zeros = torch.zeros(1, *inputs.shape[:2], task.outputs, dtype=torch.float64)
        if not math.isfinite(float(task.loss(zeros, batch))):
            return f"targets with {count} of {targets.numel():,} numbers that are not finite"
    return ""
