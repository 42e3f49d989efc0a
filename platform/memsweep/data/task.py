"""The interface of a task: a source of batches, and a loss.

Letters: N leading dimensions (replicas, copies), B batch, T time (horizon), I inputs, O outputs.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from memsweep import registry
from memsweep.data.contract import contract, sequences_given
from memsweep.data.levels import problems_of_reference
from memsweep.streams import TRAIN, Stream

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig


@dataclass(frozen=True)
class Batch:
    """Sequences and their targets.

    Attributes:
        inputs: ``[B, T, I]``; or symbols ``[B, T]``, integers 0 ... I-1, and -1 after the end of a sequence: a compact
            form of large batches. A model reads symbols as one-hot vectors, and -1 as zeros.
        targets: ``[B, T, O]``, or any tensor that the task's own loss reads (``[B]`` class numbers, for instance).
    """

    inputs: Tensor
    targets: Tensor


def on_processor() -> AbstractContextManager[Any]:
    """The processor as torch's default device, for a task's own code: it joins numpy's numbers and new tensors."""
    return nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")


class Task(ABC):
    """A source of batches and a loss; knows nothing of models.

    Required: a frozen ``Config``, ``draw``, ``loss``, ``chance`` and ``oracle``, and ``horizon`` unless the config has
    a field of that name. All other members have defaults. ``draw`` always gives the same batch for the same stream and
    index.
    """

    Config: ClassVar[type]
    pack_fields: ClassVar[frozenset[str]] = frozenset()
    """Config fields in which the tasks of one pack may differ: the inputs must not depend on them."""
    knows_population: ClassVar[bool] = False
    """Whether the expected loss of a linear model has a closed form on this task (see LinearFunctionalTask)."""
    functional: ClassVar[bool] = False
    """Whether the target is a functional of the inputs whose stability has a verdict (see FunctionalTask)."""
    carries_states: ClassVar[bool] = False
    """Whether models start a batch from their states at the end of the batch before (see CarriedTask)."""
    reports: ClassVar[tuple[str, ...]] = ()
    """Names of the values of ``metrics``, in their order: a study may search by ``test_<name>`` and compare it."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @classmethod
    def data_files(cls, config: Any) -> Sequence[Path]:
        """The files that the task reads, in a fixed order; their content is part of a trial's identity.

        A folder stands for the names and sizes of its files, where they are too many to be read for every plan.
        """
        return ()

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        """Why a trial cannot be trained on such a task, a sentence without a full stop each; nothing where it can."""
        yield from ()

    @classmethod
    def problems_of_code(cls, trial: TrialConfig) -> Iterator[str]:
        """``problems`` that only a batch shows, before a study: a breach of the task's contract, ids that are none."""
        found = contract(cls, trial.task)
        drawn = functools.partial(sequences_given, cls, trial.task)
        yield from found.problems or problems_of_reference(cls, trial, drawn)
        if found.problems or not registry.get(registry.MODEL, trial.model.name).traits(trial.model).reads_ids:
            return
        inputs = found.inputs
        if inputs is None and registry.is_own(cls):  # it reads files, which the contract leaves alone
            try:
                inputs = cls(trial.task).draw(Stream(0, TRAIN), 0, 2).inputs
            except (OSError, ValueError):  # no data: the task's own Config says so
                return
        if inputs is not None:
            try:
                as_ids(inputs, cls(trial.task).inputs)
            except ValueError as error:
                yield str(error)

    @classmethod
    def notes_of_code(cls, trial: TrialConfig) -> Iterator[str]:
        """Notes for the plan's reader on the task's code: what it raised, which is left to its trials."""
        if (failed := contract(cls, trial.task).failed) is not None:
            yield f"{failed}, or its trials fail"

    @classmethod
    def sharing_problem(cls, config: Any) -> str | None:
        """Why several workers cannot share out the sequences of a training step; None where they can."""
        return None

    @property
    def inputs(self) -> int:
        """Numbers I that a model reads at a step; 1 by default."""
        return 1

    @property
    def outputs(self) -> int:
        """Numbers O that a model outputs at a step; 1 by default."""
        return 1

    @property
    def horizon(self) -> int:
        """Sequence length T; the config's field ``horizon`` by default."""
        horizon: int = self.config.horizon
        return horizon

    @abstractmethod
    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """Batch number ``index`` of a stream: ``size`` sequences, float64 or symbols, and their targets.

        A task on finite data that has fewer sequences gives all of them.
        """

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Loss of outputs ``[N, B, T, O]`` (any leading dimensions), averaged over the batch: ``[N]``."""

    def squared_weights(self) -> Tensor | None:
        """The weights v, ``[T]``, float64, of a loss sum_{b,t,o} v_t (y - target)^2 / B; None for another loss.

        Kernels compute a loss of this form and its gradient in one pass.
        """
        return None

    @abstractmethod
    def chance(self) -> float:
        """Expected loss of the best model that ignores its input; errors are reported relative to it."""

    def memoryless_loss(self) -> float:
        """Expected loss of the best model that sees the present input alone; nan where it is unknown.

        Figures show it beside every curve.
        """
        return math.nan

    def best_loss(self) -> float:
        """Expected loss of the right answers: 0 unless the targets contain noise that no input determines."""
        return 0.0

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Measures besides the loss, averaged over the batch: ``[N]`` each, by the names in ``reports``.

        Args:
            outputs: ``[N, B, T, O]``, any leading dimensions.
            batch: the sequences and their targets.
        """
        del outputs, batch
        return {}

    def metric_levels(self) -> dict[str, tuple[float, float]]:
        """The metrics by which a model solves the task: name -> that of the right answers, and at chance.

        At chance is the expected metric of the best model that ignores its inputs. More is better. None by default: no
        verdict is given by a metric.
        """
        return {}

    @abstractmethod
    def oracle(self, inputs: Tensor) -> Tensor:
        """The right answers ``[B, T, O]`` to inputs of ``draw``, by brute force and without the code of ``draw``.

        The conformance suite uses them to prove that the task can be solved from its inputs.
        """


class CarriedTask(Task):
    """Long sequences, read in windows of T steps; a model's states at the end of a window start the next window.

    A training batch has one window of each of its sequences: row r of batch ``index`` continues row r of the batch
    before, unless the batch ``begins``. A batch of another stream holds several windows of each of its ``runs``
    sequences, the windows of one sequence after one another. The gradient stops at the start of a window (truncated
    backpropagation through time).
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
        """Whether training batch ``index`` of ``size`` rows starts new sequences, with states of zero."""

    def room(self) -> int | None:
        """Largest number of training sequences that can be read side by side; None: any number.

        Raises:
            ValueError: the task has no data.
        """
        return None

    @abstractmethod
    def runs(self, size: int) -> int:
        """Sequences in a validation or test batch of ``size`` windows: a divisor of the windows in it."""


def epoch_rows(stream: Stream, index: int, size: int, count: int) -> np.ndarray:
    """Positions of the members of batch ``index`` of a stream, ``[min(size, count)]``, of a set of ``count``.

    Every epoch of the training stream is a permutation of the set that the stream decides, cut into batches; members
    that do not fill a batch are left out of that epoch. The other streams go through their set in a fixed order, again
    and again: batch 0 is the first ``size`` members for every seed. A size beyond ``count`` gives all members once.
    """
    if size >= count:
        return np.arange(count) if stream.name != TRAIN else stream.generator(index).permutation(count)
    if stream.name != TRAIN:
        return (index * size + np.arange(size)) % count
    epoch, place = divmod(index, count // size)
    return stream.generator(epoch).permutation(count)[place * size : (place + 1) * size]


def are_symbols(inputs: Tensor) -> bool:
    """Whether these inputs are symbols ``[..., T]``, and not numbers ``[..., T, I]``."""
    return not inputs.is_floating_point()


def checked_symbols(inputs: Tensor, count: int, task: str) -> Tensor:
    """The inputs of a batch, after a check that symbols are 0 ... ``count - 1``, or -1 after the end of a sequence.

    Raises:
        ValueError: a symbol is out of this range.
    """
    if are_symbols(inputs) and inputs.numel():
        least, most = (int(value) for value in inputs.aminmax())
        if least < -1 or most >= count:
            raise ValueError(
                f"the task {task!r} drew the symbol {most if most >= count else least}, but has {count} of them: draw "
                f"must give 0 to {count - 1}, and -1 behind the end of a sequence"
            )
    return inputs


def as_ids(inputs: Tensor, size: int) -> Tensor:
    """The inputs of a model that reads ids: symbols, or one-hot vectors in their place.

    Args:
        inputs: ``[..., T]`` symbols, or ``[..., T, size]`` one-hot vectors and zeros.
        size: I, the number of symbols.

    Returns:
        ``[..., T]``, 0 ... I-1, and I at a step without a symbol.

    Raises:
        ValueError: the inputs are numbers.
    """
    if are_symbols(inputs):
        return torch.where(inputs < 0, size, inputs.long())
    total = inputs.sum(-1)
    if not bool((((inputs == 0) | (inputs == 1)).all(-1) & (total <= 1)).all()):
        raise ValueError(
            "the inputs of this task are numbers, not symbols, and model.tokens is true: use tokens false, with a "
            "model that reads [batch, time, inputs]"
        )
    return torch.where(total == 0, size, inputs.argmax(-1))


def as_read(inputs: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """The inputs of a model: numbers as they are, symbols as one-hot vectors, with zeros for -1.

    Args:
        inputs: ``[..., T, size]`` numbers, or ``[..., T]`` symbols.
        size: I, numbers that a model reads at a step.
        dtype: of the vectors.

    Returns:
        ``[..., T, size]``.
    """
    if not are_symbols(inputs):
        return inputs
    read = torch.zeros(*inputs.shape, size, dtype=dtype, device=inputs.device)
    known = (inputs >= 0).unsqueeze(-1)
    return read.scatter_(-1, inputs.long().clamp(min=0).unsqueeze(-1), known.to(dtype))
