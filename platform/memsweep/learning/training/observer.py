"""What is measured of an ensemble while it trains, by the measures that a training asks for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.schema.trial import asked_of

if TYPE_CHECKING:
    from memsweep.config.schema.training import TrainingConfig
    from memsweep.learning.ensemble.replicas import Ensemble
    from memsweep.learning.loss.base import TaskLoss
    from memsweep.learning.loss.batch_sharding import ShardedBatch


@dataclass
class Observer(ABC):
    """What one measure has seen of an ensemble.

    Attributes:
        table: of the rows.
        rows: of the ensemble, P.
        every: steps between measurements; the first is before any step.
        measured: one tensor for each, ``[P, ...]`` float64.
    """

    table: str
    rows: int
    every: int
    measured: list[Tensor] = field(default_factory=list)

    def is_due(self, step: int) -> bool:
        """Whether it is measured after ``step`` steps."""
        return step % self.every == 0

    def expected(self, step: int) -> int:
        """Number of measurements up to ``step``, the one there included."""
        return step // self.every + 1

    @abstractmethod
    def pattern(self, device: torch.device) -> Tensor:
        """A tensor of the shape of one measurement."""

    @abstractmethod
    def of(self, row: int, steps: int) -> list[Mapping[str, Any]]:
        """The rows of the table of one replica, up to its last step."""

    def differentiated(  # noqa: B027  (a hook)
        self, learner: Any, task_loss: TaskLoss[Any], data: ShardedBatch[Any], step: int, gradient: Tensor
    ) -> None:
        """Measure in the step after ``step`` steps, where it is due; called at every step, before weights move.

        Args:
            learner: the ``Learner`` whose ensemble is measured; its weights do not change.
            task_loss: that is learnt.
            data: the batch of the step.
            step: steps that were done.
            gradient: of the loss without penalties, by the learner's rule: ``[P, S]`` over the flat weights; it is read
                alone.
        """

    def validated(  # noqa: B027  (a hook)
        self, learner: Any, task_loss: TaskLoss[Any], data: ShardedBatch[Any], step: int, training: TrainingConfig
    ) -> None:
        """Measure after ``step`` steps, where it is due; called at every validation.

        Args:
            learner: the ``Learner`` whose ensemble is measured; it does not change.
            task_loss: that is learnt.
            data: as many sequences of the validation set as a batch has, or an expectation.
            step: steps that were done.
            training: of the pack.
        """


def observers_of(ensemble: Ensemble, training: TrainingConfig) -> list[Observer]:
    """Those of the measures that a training asks for, before its first step."""
    asked = ((registry.get(registry.MEASURE, each.name), each) for each in asked_of(training))
    found = (measure.observer(each, ensemble, training) for measure, each in asked)
    return [observer for observer in found if observer is not None]
