"""The state of a pack in training as plain data, and the proof that a state read from somewhere is one of this pack."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memsweep.learning.state.checkpoint_file import UnusableError

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrainingConfig
    from memsweep.learning.training.learner import Learner

_TENSORS = (
    "weights",
    "best_weights",
    "best",
    "best_loss",
    "best_step",
    "stale",
    "running",
    "diverged",
    "steps",
    "loss",
)
_TENSOR_OVERHEAD = 1024
"""Bytes that a tensor takes in a file beside its content: its zip entry, its pickled name and shape."""


def state_of(key: str, learners: list[Learner], step: int) -> dict[str, Any]:
    """All that a training of ``key`` needs to go on after ``step`` steps."""
    return {"key": key, "step": step, "learners": [compact(_state(learner)) for learner in learners]}


def restore(learner: Learner, state: dict[str, Any]) -> None:
    """Put a learner into a state that ``checked`` returned."""
    for name in _TENSORS:
        setattr(learner, name, state[name])
    for part in ("optimizer", "plateau"):
        for name, value in state[part].items():
            setattr(getattr(learner, part), name, value)
    learner.carried = state.get("carried")
    learner.criterion.largest, learner.criterion.samples = state["largest"], state["samples"]
    learner.alignment.measured = state["alignment"]
    learner.history = state["history"]


def compact(value: Any) -> Any:
    """The same without what lies around a tensor in memory, which would be stored with it."""
    if isinstance(value, Tensor):
        return value if value.untyped_storage().nbytes() == value.nbytes else value.clone()
    if isinstance(value, dict):
        return {key: compact(inner) for key, inner in value.items()}
    return type(value)(map(compact, value)) if isinstance(value, list | tuple) else value


def _state(learner: Learner) -> dict[str, Any]:
    return fixed_part(learner) | {
        "samples": learner.criterion.samples,
        "alignment": learner.alignment.measured,
        "history": learner.history,
    }


def fixed_part(learner: Learner) -> dict[str, Any]:
    """The part of a learner's state whose shape does not change in training."""
    carried = {} if learner.carried is None else {"carried": learner.carried}
    return {name: getattr(learner, name) for name in _TENSORS} | {
        **carried,
        "optimizer": learner.optimizer.state(),
        "plateau": learner.plateau.state(),
        "largest": learner.criterion.largest,
    }


def checked(
    state: Any, key: str, learners: list[Learner], training: TrainingConfig
) -> tuple[int, list[dict[str, Any]]]:
    """The step and the learners' states, each on its learner's device; nothing of the learners is changed.

    Raises:
        UnusableError: something in ``state`` is not what this pack would have written.
    """
    must_hold(state, ("key", "step", "learners"), "the file")
    if state["key"] != key:
        raise UnusableError("belongs to another pack")
    step = whole_number(state["step"], training.end, "step")
    if step == 0:
        raise UnusableError("holds no training")
    if type(state["learners"]) is not list or len(state["learners"]) != len(learners):
        raise UnusableError(f"does not fit: it must hold {len(learners)} learners")
    return step, [
        _checked_learner(saved, learner, step, training)
        for saved, learner in zip(state["learners"], learners, strict=True)
    ]


def _checked_learner(saved: Any, learner: Learner, step: int, training: TrainingConfig) -> dict[str, Any]:
    fixed = fixed_part(learner)
    must_hold(saved, (*fixed, "samples", "alignment", "history"), "a learner")
    found = {name: like(saved[name], pattern, step, name) for name, pattern in fixed.items()}
    criterion, loss = learner.criterion, learner.loss
    ratios = criterion.largest.new_empty(criterion.exists.shape)
    samples = _list(saved["samples"], _most_validations(training), "samples")
    history = _list(saved["history"], _most_validations(training), "history")
    found["samples"] = [like(sample, ratios, step, "samples") for sample in samples]
    found["alignment"] = _checked_alignment(saved["alignment"], learner, step)
    found["history"] = [like(row, (0, loss, loss), step, "history") for row in history]
    at = [row[0] for row in found["history"]]
    if at != sorted(set(at)):
        raise UnusableError("does not fit: the steps of its history are out of order")
    return found


def _checked_alignment(value: Any, learner: Learner, step: int) -> list[Tensor]:
    wanted, pattern = learner.alignment.expected(step), learner.alignment.pattern()
    found = _list(value, wanted, "alignment")
    if len(found) < wanted:
        raise UnusableError(f"does not fit: alignment must be a list of {wanted} rows, got {len(found)}")
    return [like(one, pattern, step, "alignment") for one in found]


def like(value: Any, pattern: Any, step: int, name: str) -> Any:
    """``value``, which must have the pattern's structure, types and shapes; a whole number is at most ``step``.

    Raises:
        UnusableError: it does not.
    """
    if isinstance(pattern, Tensor):
        return _tensor(value, pattern, name)
    if isinstance(pattern, dict):
        must_hold(value, tuple(pattern), name)
        return {key: like(value[key], inner, step, f"{name}.{key}") for key, inner in pattern.items()}
    if isinstance(pattern, tuple):
        if type(value) is not tuple or len(value) != len(pattern):
            raise UnusableError(f"does not fit: {name} must have {len(pattern)} entries a row")
        return tuple(like(item, inner, step, name) for item, inner in zip(value, pattern, strict=True))
    return whole_number(value, step, name)


def _tensor(value: Any, pattern: Tensor, name: str) -> Tensor:
    if type(value) is not Tensor or value.layout != torch.strided:
        raise UnusableError(f"does not fit: {name} must be a tensor, got {type(value).__name__}")
    if value.dtype != pattern.dtype or value.shape != pattern.shape:
        wanted, got = (f"{_short(one.dtype)} {list(one.shape)}" for one in (pattern, value))
        raise UnusableError(f"does not fit: {name} must be {wanted}, got {got}")
    # a copy: tensors of a file may share memory, which the training changes in place
    return value.detach().clone().to(pattern.device)


def whole_number(value: Any, most: int, name: str) -> int:
    if type(value) is not int or not 0 <= value <= most:
        got = f"{value:.6g}" if type(value) is int and abs(value) < 10**15 else type(value).__name__
        raise UnusableError(f"does not fit: {name} must be a whole number from 0 to {most}, got {got}")
    return value


def must_hold(value: Any, names: tuple[str, ...], where: str) -> None:
    if type(value) is not dict or set(value) != set(names):
        raise UnusableError(f"does not fit: {where} must hold {', '.join(names)} and nothing else")


def _list(value: Any, most: int, name: str) -> list[Any]:
    if type(value) is not list or len(value) > most:
        raise UnusableError(f"does not fit: {name} must be a list of at most {most} rows")
    return value


def most_bytes(learners: list[Learner], training: TrainingConfig) -> int:
    """What the file of these learners' state can take, with room to spare."""
    total, rows = 1 << 16, _most_validations(training)
    for learner in learners:
        criterion = learner.criterion
        ratios = criterion.exists.numel() * criterion.largest.element_size()
        total += size_of(fixed_part(learner))
        total += learner.alignment.expected(training.end) * size_of(learner.alignment.pattern())
        total += rows * (ratios + _TENSOR_OVERHEAD) + 2 * rows * (learner.loss.nbytes + _TENSOR_OVERHEAD)
    return total


def _most_validations(training: TrainingConfig) -> int:
    return math.ceil(training.end / training.validate_every) + 1  # one before the first step


def size_of(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.nbytes + _TENSOR_OVERHEAD
    return sum(map(size_of, value.values())) if isinstance(value, dict) else 64


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
