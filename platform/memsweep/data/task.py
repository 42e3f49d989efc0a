"""What a task is.

Letters: N leading dimensions (replicas, copies), B batch, T time (horizon), I inputs, O outputs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from memsweep.streams import Stream

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig


@dataclass(frozen=True)
class Batch:
    """Sequences and what a model should answer.

    Attributes:
        inputs: ``[B, T, I]``; or symbols ``[B, T]``, integers 0 ... I-1, and -1 behind the end of a sequence.
            A model reads them one-hot, where they stand for zeros alone at -1: a small form of large batches.
        targets: ``[B, T, O]``, or whatever the task's own loss understands (``[B]`` class numbers, for instance).
    """

    inputs: Tensor
    targets: Tensor


class Task(ABC):
    """A source of batches and a loss. Owns a frozen ``Config``; knows nothing of models.

    A task is deterministic: ``draw`` gives the same batch for the same stream and index, always.
    """

    Config: ClassVar[type]
    pack_fields: ClassVar[frozenset[str]] = frozenset()
    """Config fields in which the tasks of one pack may differ: the inputs must not depend on them."""
    knows_population: ClassVar[bool] = False
    """The expected loss of a linear model has a closed form on this task (see LinearFunctionalTask)."""
    carries_states: ClassVar[bool] = False
    """Models go on with the states in which they ended the batch before (see CarriedTask)."""
    reports: ClassVar[tuple[str, ...]] = ()
    """Names of what ``metrics`` gives, in its order: a study may search for ``test_<name>`` and compare by it."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @classmethod
    def data_files(cls, config: Any) -> Sequence[Path]:
        """The files that the task reads, in a fixed order: what is in them belongs to a trial's identity.

        A folder in their place stands for the names and sizes of the files in it, where they are too many to be read
        whenever a study is planned.
        """
        return ()

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        """Why a trial cannot be trained on such a task, a sentence without a full stop each; nothing where it can."""
        yield from ()

    @classmethod
    def sharing_problem(cls, config: Any) -> str | None:
        """Why several workers cannot share out the sequences of a training step; None where they can."""
        return None

    @property
    def inputs(self) -> int:
        """Numbers I that a model reads at a step; 1 unless the task says otherwise."""
        return 1

    @property
    def outputs(self) -> int:
        """Numbers O that a model answers at a step; 1 unless the task says otherwise."""
        return 1

    @property
    @abstractmethod
    def horizon(self) -> int:
        """Sequence length T."""

    @abstractmethod
    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """Batch number ``index`` of a stream: ``size`` sequences, float64 or symbols, and their targets.

        A task on finite data gives the sequences that it has, when they are fewer.
        """

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Loss of outputs ``[N, B, T, O]`` (any leading dimensions), averaged over the batch: ``[N]``."""

    def squared_weights(self) -> Tensor | None:
        """Where the loss is a weighted squared error, sum_{b,t,o} v_t (y - target)^2 / B: v, ``[T]``, float64.

        A loss of this form, told here, is computed with its gradient in one pass. None: the loss is another one.
        """
        return None

    @abstractmethod
    def chance(self) -> float:
        """Expected loss of the best model that ignores its input: the level that errors are compared with."""

    def memoryless_loss(self) -> float:
        """Expected loss of the best model that sees each input and forgets it: what a memory must beat.

        Drawn beside every curve; nan where it is not known.
        """
        return math.nan

    def best_loss(self) -> float:
        """Expected loss of the right answers: 0 unless the targets hold noise that no input tells."""
        return 0.0

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """What is worth knowing beside the loss, averaged over the batch: ``[N]`` each, by the names in ``reports``.

        Args:
            outputs: ``[N, B, T, O]``, any leading dimensions.
            batch: what was asked.
        """
        del outputs, batch
        return {}

    @abstractmethod
    def oracle(self, inputs: Tensor) -> Tensor:
        """The right answers ``[B, T, O]`` to inputs as ``draw`` gives them, by brute force, independently of ``draw``.

        Proves in the conformance suite that the task can be solved from its inputs.
        """


class CarriedTask(Task):
    """Long sequences, read window by window of T steps: what a model holds at the end of one window begins the next.

    Training goes through as many sequences as a batch has rows, side by side: batch ``index`` goes on where the one
    before it ended, row by row, unless it ``begins``. A batch of another stream holds several windows of each of its
    sequences: ``runs`` sequences in turn, the windows of one behind each other. The gradient stops at the beginning of
    a window (truncated backpropagation through time).
    """

    carries_states: ClassVar[bool] = True

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        task, training = trial.task, trial.training
        try:
            room = cls(task).room()
        except ValueError:  # no data: the task's own Config says so
            room = None
        if room is not None and training.batch_size > room:
            yield (
                f"training.batch_size is {training.batch_size}, but the training data of the task {task.name} are "
                f"enough for {room} sequences of one window each, side by side: use at most that, more data or a "
                "smaller horizon"
            )
        if training.train_size:
            yield (
                f"training.train_size is {training.train_size}, but the sequences of the task {task.name} follow one "
                "another and cannot be shuffled: use 0"
            )

    @classmethod
    def sharing_problem(cls, config: Any) -> str | None:
        return (
            f"data shares out the sequences of a step, but those of the task {config.name} go on from batch to batch, "
            "with states that stay where they are. Take strategy: replicas"
        )

    @abstractmethod
    def begins(self, index: int, size: int) -> bool:
        """Whether training batch ``index`` of ``size`` rows starts over, with states of zero."""

    def room(self) -> int | None:
        """Training sequences that can be read side by side, at most; None: any number.

        Raises:
            ValueError: the task has no data.
        """
        return None

    @abstractmethod
    def runs(self, size: int) -> int:
        """Sequences in a batch of ``size`` windows that is not for training: a divisor of the windows in it."""
