"""Checkpoints of a pack in training: written whole or not at all, used only by the very same pack.

A state is plain data and tensors, whose shapes the step implies. It comes from a shared place, so every value is
compared with the learners that it is for: names, types and shapes. Nothing of a learner changes before all of it fits.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from memsweep.errors import StoreError
from memsweep.learning.parallel import ProcessGroup
from memsweep.learning.state.checkpoint_file import UnusableError, from_bytes, to_bytes
from memsweep.learning.training.optimizer import history_steps

if TYPE_CHECKING:
    from memsweep.config.schema.training import TrainingConfig
    from memsweep.learning.training.learner import Learner

_BACK_OFF = 10.0
"""After a failed write, the next one waits this many times the seconds that the failed one took."""
_TENSORS = (
    *("weights", "best_weights", "best", "best_loss", "best_step"),
    *("stale", "running", "diverged", "steps", "loss"),
)
"""Attributes of a learner whose shapes do not change."""
_PARTS = ("optimizer", "plateau")
"""Attributes with states of their own."""
Rows = dict[str, Tensor]
"""Name -> ``[rows, ...]``: everything that training changes in replicas, in shapes that the step implies."""
_TENSOR_OVERHEAD = 1024
"""Bytes of a tensor in a file besides its content: its zip entry, its pickled name and shape."""
_log = logging.getLogger(__name__)


class Slot(Protocol):
    """Storage of one checkpoint; its text names the place in messages."""

    def read(self, most: int) -> bytes | None:
        """All bytes, or the first ``most + 1`` of more; None where nothing is stored."""

    def write(self, data: bytes) -> None:
        """Replace the stored bytes with these, as a whole or not at all."""

    def delete(self) -> None:
        """Delete the stored bytes."""


class ProcessGroupSlot:
    """The slot of a whole process group: rank 0 reads for all, and is the only one that writes."""

    def __init__(self, slot: Slot, group: ProcessGroup) -> None:
        self._slot, self._group = slot, group

    def __str__(self) -> str:
        return str(self._slot)

    def read(self, most: int) -> bytes | None:
        """See ``Slot``. Where rank 0 cannot read, it alone raises; the others get None.

        All processes must continue from the same step, so rank 0 starts from the beginning then, too.
        """
        content, error = None, None
        if self._group.rank == 0:
            try:
                content = self._slot.read(most)
            except Exception as raised:  # the others wait for a message, whatever was raised here
                error = raised
        content = self._group.broadcast(content)
        if error is not None:
            raise error
        return content

    def write(self, data: bytes) -> None:
        if self._group.rank == 0:
            self._slot.write(data)

    def delete(self) -> None:
        if self._group.rank == 0:
            self._slot.delete()


@dataclass
class Checkpoint:
    """The checkpoint of one pack.

    An unreadable or unwritable slot never ends a training: it starts from the beginning, or goes on without a state.

    Attributes:
        slot: where the state is stored.
        key: identifies the pack's configs; a state with another key is not used.
    """

    slot: Slot
    key: str
    _warned: bool = field(default=False, init=False)
    _next_write: float = field(default=-math.inf, init=False)

    def save(self, learners: list[Learner], step: int, training: TrainingConfig) -> None:
        """Write the state after ``step`` steps; batches are a function of the step, so no generator state is needed."""
        started = time.monotonic()
        if started < self._next_write:
            return
        try:
            self.slot.write(to_bytes(state_of(self.key, learners, step, training)))
        except (OSError, StoreError) as error:
            # a storage that is away may answer after a long time only, and must not slow the training down much
            ended = time.monotonic()
            self._next_write = ended + _BACK_OFF * (ended - started)
            if not self._warned:
                self._warned = True
                _log.warning(
                    "checkpoint %s cannot be written (%s): training goes on; if it is interrupted, it continues from "
                    "the last one that was written",
                    self.slot,
                    one_line(error),
                )

    def load(self, learners: list[Learner], training: TrainingConfig) -> int:
        """Restore the learners.

        Args:
            learners: before their first step.
            training: of the pack; it bounds the sizes of a state.

        Returns:
            The number of steps that are done; 0, with the learners untouched, without a usable checkpoint.
        """
        try:
            most = most_bytes(rows_of(learner, training.end, training) for learner in learners)
            data = self.slot.read(most)
            if data is None:
                return 0
            step, states = validate(from_bytes(data, most), self.key, learners, training)
        except UnusableError as error:
            _log.warning("checkpoint %s %s: training starts again", self.slot, error)
            return 0
        except (OSError, StoreError) as error:
            _log.warning("checkpoint %s cannot be read (%s): training starts again", self.slot, one_line(error))
            return 0
        for learner, rows in zip(learners, states, strict=True):
            restore(learner, rows, step, training)
        return step


def one_line(error: Exception) -> str:
    """Type and message of an error, short enough for a line of a log."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def state_of(key: str, learners: Sequence[Learner], step: int, training: TrainingConfig) -> dict[str, Any]:
    """The state from which a training of ``key`` continues after ``step`` steps."""
    return {"key": key, "step": step, "learners": [compact(rows_of(learner, step, training)) for learner in learners]}


def rows_of(learner: Learner, step: int, training: TrainingConfig) -> Rows:
    """All that training changes in a learner's rows, with as many validations as ``step`` implies.

    Names of an inner part are joined by a dot. Tensors share memory with the learner.
    """
    parts = {part: getattr(learner, part).state() for part in _PARTS}
    inner = {f"{part}.{name}": value for part, state in parts.items() for name, value in state.items()}
    rows = {name: getattr(learner, name) for name in _TENSORS}
    rows |= {name: value for name, value in inner.items() if isinstance(value, Tensor)}
    rows |= {} if learner.carried is None else {"carried": learner.carried}
    criterion, loss = learner.criterion, learner.loss
    samples = math.ceil(step / training.validate_every) if len(criterion.entries) else 0
    ratios = criterion.largest.new_empty(criterion.exists.shape)
    validations = len(history_steps(training, step))
    return rows | {
        "largest": criterion.largest,
        "samples": _stack(criterion.samples, samples, ratios),
        **{
            each.table: _stack(each.measured, each.expected(step), each.pattern(loss.device))
            for each in learner.observers
        },
        "train_losses": _stack([trained for _, trained, _ in learner.history], validations, loss),
        "validation_losses": _stack([validated for *_, validated in learner.history], validations, loss),
    }


def _stack(values: Sequence[Tensor], count: int, pattern: Tensor) -> Tensor:
    """``[rows, count, ...]`` of tensors ``[rows, ...]``; nan after the step at which a pack had no live row left."""
    missing = torch.full_like(pattern, math.nan)
    every = [*values, *[missing] * (count - len(values))][:count]
    return torch.stack(every, 1) if every else pattern.new_empty((len(pattern), 0, *pattern.shape[1:]))


def restore(learner: Learner, rows: Rows, step: int, training: TrainingConfig) -> None:
    """Put a learner into the state after ``step`` steps; the rows were validated for it."""
    for name in _TENSORS:
        setattr(learner, name, rows[name])
    for name, value in rows.items():
        part, _, inner = name.partition(".")
        if inner:
            setattr(getattr(learner, part), inner, value)
    if "step" in learner.optimizer.state():
        learner.optimizer.step = step  # type: ignore[attr-defined]  # one update a step
    learner.carried = rows.get("carried")
    learner.criterion.largest, learner.criterion.samples = rows["largest"], list(rows["samples"].unbind(1))
    for observer in learner.observers:
        observer.measured = list(rows[observer.table].unbind(1))
    losses = (rows[name].unbind(1) for name in ("train_losses", "validation_losses"))
    learner.history = list(zip(history_steps(training, step), *losses, strict=True))


def compact(rows: Rows) -> Rows:
    """Tensors that own no more memory than their content; ``torch.save`` would store the rest, too."""
    return {
        name: value if value.untyped_storage().nbytes() == value.nbytes else value.clone()
        for name, value in rows.items()
    }


def validate(state: Any, key: str, learners: Sequence[Learner], training: TrainingConfig) -> tuple[int, list[Rows]]:
    """The step and the learners' rows, each on its learner's device; no learner is changed.

    Raises:
        UnusableError: the state has something that this pack would not have written.
    """
    require_keys(state, ("key", "step", "learners"), "the file")
    if state["key"] != key:
        raise UnusableError("belongs to another pack")
    step = whole_number(state["step"], training.end, "step")
    if step == 0:
        raise UnusableError("holds no training")
    if type(state["learners"]) is not list or len(state["learners"]) != len(learners):
        raise UnusableError(f"does not fit: it must hold {len(learners)} learners")
    saved = zip(state["learners"], learners, strict=True)
    return step, [matching(rows, rows_of(learner, step, training)) for rows, learner in saved]


def matching(rows: Any, pattern: Rows) -> Rows:
    """Copies of the rows, which must have the names, types and shapes of the pattern.

    Raises:
        UnusableError: they have others.
    """
    if type(rows) is dict:  # an earlier version kept empty tensors of what was not measured
        rows = {name: value for name, value in rows.items() if name in pattern or not _is_empty(value)}
    require_keys(rows, tuple(pattern), "a state")
    for name, like in pattern.items():
        value = rows[name]
        if type(value) is not Tensor or value.layout != torch.strided:
            raise UnusableError(f"does not fit: {name} must be a tensor, got {type(value).__name__}")
        if value.dtype != like.dtype or value.shape != like.shape:
            required, got = (
                f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for tensor in (like, value)
            )
            raise UnusableError(f"does not fit: {name} must be {required}, got {got}")
    # copies: tensors of a file may share memory, and training changes them in place
    return {name: rows[name].detach().clone().to(like.device) for name, like in pattern.items()}


def _is_empty(value: Any) -> bool:
    return type(value) is Tensor and value.numel() == 0


def whole_number(value: Any, most: int, name: str) -> int:
    """``value``, which must be an int from 0 to ``most``."""
    if type(value) is not int or not 0 <= value <= most:
        got = f"{value:.6g}" if type(value) is int and abs(value) < 10**15 else type(value).__name__
        raise UnusableError(f"does not fit: {name} must be a whole number from 0 to {most}, got {got}")
    return value


def require_keys(value: Any, names: tuple[str, ...], where: str) -> None:
    """Refuse a value that is not a dict with exactly these keys."""
    if type(value) is not dict or set(value) != set(names):
        raise UnusableError(f"does not fit: {where} must hold {', '.join(names)} and nothing else")


def most_bytes(every: Iterable[Rows]) -> int:
    """An upper bound of the size of a file with these rows."""
    return (1 << 16) + sum(value.nbytes + _TENSOR_OVERHEAD for rows in every for value in rows.values())
