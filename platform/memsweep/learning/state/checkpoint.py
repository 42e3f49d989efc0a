"""Checkpoints of a pack in training: written whole or not at all, used only by the very same pack.

A state is plain data and tensors. It comes from a shared place, so every value is compared with the learners that it is
for: names, types, shapes and ranges. Nothing of a learner changes before all of it fits.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from memsweep.errors import StoreError
from memsweep.learning.parallel.process_group import ProcessGroup
from memsweep.learning.state.checkpoint_file import UnusableError, from_bytes, to_bytes

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

    def save(self, learners: list[Learner], step: int) -> None:
        """Write the state after ``step`` steps; batches are a function of the step, so no generator state is needed."""
        started = time.monotonic()
        if started < self._next_write:
            return
        try:
            self.slot.write(to_bytes(state_of(self.key, learners, step)))
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
            most = most_bytes(learners, training)
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
        for learner, state in zip(learners, states, strict=True):
            restore(learner, state)
        return step


def one_line(error: Exception) -> str:
    """Type and message of an error, short enough for a line of a log."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def state_of(key: str, learners: list[Learner], step: int) -> dict[str, Any]:
    """The state from which a training of ``key`` continues after ``step`` steps."""
    return {"key": key, "step": step, "learners": [compact(_learner_state(learner)) for learner in learners]}


def _learner_state(learner: Learner) -> dict[str, Any]:
    return fixed_state(learner) | {
        "samples": learner.criterion.samples,
        "alignment": learner.alignment.measured,
        "history": learner.history,
    }


def fixed_state(learner: Learner) -> dict[str, Any]:
    """The part of a learner's state whose shapes do not change in training."""
    carried = {} if learner.carried is None else {"carried": learner.carried}
    return {name: getattr(learner, name) for name in _TENSORS} | {
        **carried,
        "optimizer": learner.optimizer.state(),
        "plateau": learner.plateau.state(),
        "largest": learner.criterion.largest,
    }


def compact(value: Any) -> Any:
    """Plain data whose tensors own no more memory than their content; ``torch.save`` would store the rest, too."""
    if isinstance(value, Tensor):
        return value if value.untyped_storage().nbytes() == value.nbytes else value.clone()
    if isinstance(value, dict):
        return {key: compact(inner) for key, inner in value.items()}
    return type(value)(map(compact, value)) if isinstance(value, list | tuple) else value


def restore(learner: Learner, state: dict[str, Any]) -> None:
    """Put a learner into a state that was validated for it."""
    for name in _TENSORS:
        setattr(learner, name, state[name])
    for part in ("optimizer", "plateau"):
        for name, value in state[part].items():
            setattr(getattr(learner, part), name, value)
    learner.carried = state.get("carried")
    learner.criterion.largest, learner.criterion.samples = state["largest"], state["samples"]
    learner.alignment.measured = state["alignment"]
    learner.history = state["history"]


def validate(
    state: Any, key: str, learners: list[Learner], training: TrainingConfig
) -> tuple[int, list[dict[str, Any]]]:
    """The step and the learners' states, each on its learner's device; no learner is changed.

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
    return step, [
        _validate_learner(saved, learner, step, training)
        for saved, learner in zip(state["learners"], learners, strict=True)
    ]


def _validate_learner(saved: Any, learner: Learner, step: int, training: TrainingConfig) -> dict[str, Any]:
    fixed, most = fixed_state(learner), _most_validations(training)
    require_keys(saved, (*fixed, "samples", "alignment", "history"), "a learner")
    state = {name: matching(saved[name], pattern, step, name) for name, pattern in fixed.items()}
    ratios = learner.criterion.largest.new_empty(learner.criterion.exists.shape)
    comparisons, loss = learner.alignment.expected(step), learner.loss
    if len(_list(saved["alignment"], comparisons, "alignment")) < comparisons:
        raise UnusableError(
            f"does not fit: alignment must be a list of {comparisons} rows, got {len(saved['alignment'])}"
        )
    patterns: dict[str, tuple[Any, int]] = {
        "samples": (ratios, most),
        "alignment": (learner.alignment.pattern(), comparisons),
        "history": ((0, loss, loss), most),
    }
    for name, (pattern, longest) in patterns.items():
        state[name] = [matching(value, pattern, step, name) for value in _list(saved[name], longest, name)]
    steps = [row[0] for row in state["history"]]
    if steps != sorted(set(steps)):
        raise UnusableError("does not fit: the steps of its history are out of order")
    return state


def matching(value: Any, pattern: Any, step: int, name: str) -> Any:
    """``value``, which must have the pattern's structure, types and shapes; a whole number is at most ``step``.

    Raises:
        UnusableError: it has others.
    """
    if isinstance(pattern, Tensor):
        return _tensor(value, pattern, name)
    if isinstance(pattern, dict):
        require_keys(value, tuple(pattern), name)
        return {key: matching(value[key], inner, step, f"{name}.{key}") for key, inner in pattern.items()}
    if isinstance(pattern, tuple):
        if type(value) is not tuple or len(value) != len(pattern):
            raise UnusableError(f"does not fit: {name} must have {len(pattern)} entries a row")
        return tuple(matching(item, inner, step, name) for item, inner in zip(value, pattern, strict=True))
    return whole_number(value, step, name)


def _tensor(value: Any, pattern: Tensor, name: str) -> Tensor:
    if type(value) is not Tensor or value.layout != torch.strided:
        raise UnusableError(f"does not fit: {name} must be a tensor, got {type(value).__name__}")
    if value.dtype != pattern.dtype or value.shape != pattern.shape:
        required, got = (
            f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for tensor in (pattern, value)
        )
        raise UnusableError(f"does not fit: {name} must be {required}, got {got}")
    # a copy: tensors of a file may share memory, and training changes them in place
    return value.detach().clone().to(pattern.device)


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


def _list(value: Any, most: int, name: str) -> list[Any]:
    if type(value) is not list or len(value) > most:
        raise UnusableError(f"does not fit: {name} must be a list of at most {most} rows")
    return value


def most_bytes(learners: list[Learner], training: TrainingConfig) -> int:
    """An upper bound of the size of the learners' file."""
    total, rows = 1 << 16, _most_validations(training)
    for learner in learners:
        criterion = learner.criterion
        ratios = criterion.exists.numel() * criterion.largest.element_size()
        total += size_of(fixed_state(learner))
        total += learner.alignment.expected(training.end) * size_of(learner.alignment.pattern())
        total += rows * (ratios + _TENSOR_OVERHEAD) + 2 * rows * (learner.loss.nbytes + _TENSOR_OVERHEAD)
    return total


def _most_validations(training: TrainingConfig) -> int:
    return math.ceil(training.end / training.validate_every) + 1  # one before the first step


def size_of(value: Any) -> int:
    """An upper bound of the bytes of plain data in a file."""
    if isinstance(value, Tensor):
        return value.nbytes + _TENSOR_OVERHEAD
    return sum(map(size_of, value.values())) if isinstance(value, dict) else 64
