"""Checkpoints of a pack in training: written atomically, loaded only for the very same ensembles."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from memsweep.learning.loop import Learner

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
_log = logging.getLogger(__name__)


def save(path: Path, learners: list[Learner], step: int) -> None:
    """Write the state after ``step`` steps. Batches are a function of the step, so no generator state is needed."""
    state = {
        "step": step,
        "initial": [learner.ensemble.initial for learner in learners],
        "learners": [
            {name: getattr(learner, name) for name in _TENSORS}
            | {"optimizer": learner.optimizer.state(), "history": learner.history}
            for learner in learners
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as stream:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def load(path: Path, learners: list[Learner]) -> int:
    """Restore the learners from a checkpoint of the same ensembles.

    Returns:
        The number of steps that are done; 0, with the learners untouched, when there is no usable checkpoint:
        an unreadable or foreign file costs time, never numbers.
    """
    if not path.exists():
        return 0
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
        initial = state["initial"]
        same = len(initial) == len(learners) and all(
            torch.equal(mine.ensemble.initial, theirs) for mine, theirs in zip(learners, initial, strict=True)
        )
    except Exception as error:  # a damaged file can fail in many ways; starting again is always right
        _log.warning("checkpoint %s cannot be read (%s): training starts again", path, error)
        return 0
    if not same:
        _log.warning("checkpoint %s belongs to another pack: training starts again", path)
        return 0
    for learner, saved in zip(learners, state["learners"], strict=True):
        for name in _TENSORS:
            setattr(learner, name, saved[name])
        for name, value in saved["optimizer"].items():
            setattr(learner.optimizer, name, value)
        learner.history = [(step, train, validation) for step, train, validation in saved["history"]]
    return int(state["step"])
