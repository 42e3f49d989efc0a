"""What a trial must be like whose task carries states from window to window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memsweep import registry
from memsweep.errors import one_of


def carrying_problems(task: Any, model: Any, training: Any) -> Iterator[str]:
    """Why a model cannot be fitted to a task that carries states; nothing for other tasks.

    Args:
        task, model, training: their Configs.
    """
    if not registry.get(registry.TASK, task.name).carries_states:
        return
    if not registry.get(registry.MODEL, model.name).carries(model):
        able = [name for name in registry.names(registry.MODEL) if _carries_by_default(name)]
        yield (
            f"the task {task.name} reads long sequences window by window, and the model {model.name}, as it is set "
            f"here, cannot go on from the states of the window before. Models that can: {one_of(able)}"
        )
    room = _room(task)
    if room is not None and training.batch_size > room:
        yield (
            f"training.batch_size is {training.batch_size}, but the training data of the task {task.name} are enough "
            f"for {room} sequences of one window each, side by side: use at most that, more data or a smaller horizon"
        )
    if training.train_size:
        yield (
            f"training.train_size is {training.train_size}, but the sequences of the task {task.name} follow one "
            "another and cannot be shuffled: use 0"
        )


def _room(task: Any) -> int | None:
    try:
        found: int | None = registry.get(registry.TASK, task.name)(task).room()
    except ValueError:  # no data: the task's own Config says so
        return None
    return found


def _carries_by_default(model: str) -> bool:
    found = registry.get(registry.MODEL, model)
    try:
        return bool(found.carries(found.Config()))
    except TypeError:  # a Config that has a field without a default
        return False
