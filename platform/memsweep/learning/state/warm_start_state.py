"""The state of one trial in training as plain data: the rows of its own replicas, whoever else was in the pack.

A row's numbers do not depend on the other rows, so rows that were trained in several packs go on together in one.
Every tensor has the replicas first, and the shape that the step implies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memsweep.learning.state.checkpoint_file import UnusableError
from memsweep.learning.state.checkpoint_state import (
    compact,
    fixed_part,
    like,
    must_hold,
    restore,
    size_of,
    whole_number,
)
from memsweep.learning.training import history

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrainingConfig
    from memsweep.learning.training.learner import Learner

Seats = Sequence[tuple["Learner", list[int]]]
"""Where a trial's replicas are, in order: learners, and rows in each."""
Rows = dict[str, Tensor]
"""Name -> ``[replicas, ...]``: all that becomes of a replica in training."""


def seats(learners: Iterable[Learner], trial: int) -> Seats:
    """Where the replicas of a trial of the pack are."""
    rows_of = (
        (learner, [row for row, replica in enumerate(learner.ensemble.replicas) if replica.trial == trial])
        for learner in learners
    )
    return [(learner, rows) for learner, rows in rows_of if rows]


def state_of(key: str, own: Seats, training: TrainingConfig) -> dict[str, Any]:
    """All that a training needs to go on with these replicas after ``training.end`` steps."""
    state: dict[str, Any] = compact({"key": key, "step": training.end, "replicas": _own(own, training.end, training)})
    return state


def step_of(state: Any, key_at: Callable[[int], str], training: TrainingConfig) -> int:
    """The step at which a state was left, if it is one of the trial whose key at a step ``key_at`` gives.

    Raises:
        UnusableError: it is not, or it does not lie on the way of this training.
    """
    must_hold(state, ("key", "step", "replicas"), "the file")
    step = whole_number(state["step"], training.end - 1, "step")
    if step == 0 or step % training.validate_every:
        raise UnusableError(f"does not fit: step must be one that is validated, got {step}")
    if state["key"] != key_at(step):
        raise UnusableError("belongs to another trial")
    return step


def checked(state: Any, own: Seats, step: int, training: TrainingConfig) -> Rows:
    """The rows of a state; nothing of the learners is changed.

    Raises:
        UnusableError: they are not what a trial in these seats would have left at that step.
    """
    found: Rows = like(state["replicas"], _own(own, step, training), step, "replicas")
    return found


def most_bytes(own: Seats, training: TrainingConfig) -> int:
    """What the file of such a state can take, with room to spare."""
    return (1 << 16) + size_of(_own(own, training.end, training))


def put_in(states: Iterable[tuple[Seats, Rows]], step: int, training: TrainingConfig) -> None:
    """Put all learners of a pack where its trials were at ``step``; rows of nobody repeat the first replica.

    Args:
        states: of each trial where its replicas are, and their rows from ``checked``.
        step: at which all of them are.
        training: of the pack.
    """
    pieces: dict[int, tuple[Learner, list[int], list[Rows]]] = {}
    for own, found in states:
        start = 0
        for learner, rows in own:
            _, places, parts = pieces.setdefault(id(learner), (learner, [], []))
            places += rows
            parts.append({name: value[start : start + len(rows)] for name, value in found.items()})
            start += len(rows)
    for learner, places, parts in pieces.values():
        order = torch.full((learner.ensemble.rows,), places.index(0), dtype=torch.long)
        order[places] = torch.arange(len(places))
        _restore(learner, {name: value[order] for name, value in _joined(parts).items()}, step, training)


def _own(own: Seats, step: int, training: TrainingConfig) -> Rows:
    return _joined([{name: value[rows] for name, value in _all(one, step, training).items()} for one, rows in own])


def _joined(parts: Sequence[Rows]) -> Rows:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _all(learner: Learner, step: int, training: TrainingConfig) -> Rows:
    """All rows of a learner as they are, with as many validations as ``step`` implies."""
    found: Rows = {}
    for name, value in fixed_part(learner).items():
        inner = {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
        found |= {path: item for path, item in inner.items() if isinstance(item, Tensor)}
    criterion, loss = learner.criterion, learner.loss
    counted = math.ceil(step / training.validate_every) if len(criterion.entries) else 0
    ratios = criterion.largest.new_empty(criterion.exists.shape)
    kept = len(history.kept_until(training, step))
    alignment = learner.alignment
    return found | {
        "alignment": _stacked(alignment.measured, alignment.expected(step), alignment.pattern()),
        "samples": _stacked(criterion.samples, counted, ratios),
        "train_losses": _stacked([trained for _, trained, _ in learner.history], kept, loss),
        "validation_losses": _stacked([validated for *_, validated in learner.history], kept, loss),
    }


def _stacked(values: Sequence[Tensor], count: int, pattern: Tensor) -> Tensor:
    """``[rows, count, ...]`` of tensors ``[rows, ...]``; where a pack ended early for want of live rows, nan."""
    missing = torch.full_like(pattern, math.nan)
    every = [*values, *[missing] * (count - len(values))][:count]
    return torch.stack(every, 1) if every else pattern.new_empty((len(pattern), 0, *pattern.shape[1:]))


def _restore(learner: Learner, rows: Rows, step: int, training: TrainingConfig) -> None:
    state: dict[str, Any] = {name: value for name, value in rows.items() if "." not in name}
    for part in ("optimizer", "plateau"):
        state[part] = {name.partition(".")[2]: value for name, value in rows.items() if name.startswith(f"{part}.")}
    if "step" in learner.optimizer.state():
        state["optimizer"]["step"] = step  # one update a step
    trained, validated = (rows[name].unbind(1) for name in ("train_losses", "validation_losses"))
    state["history"] = list(zip(history.kept_until(training, step), trained, validated, strict=True))
    state["samples"] = list(rows["samples"].unbind(1))
    state["alignment"] = list(rows["alignment"].unbind(1))
    restore(learner, state)
