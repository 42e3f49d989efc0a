"""Checkpoints of a pack in training: written atomically, loaded only for the very same pack."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from memsweep.learning.learner import Learner

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


@dataclass(frozen=True)
class Checkpoint:
    """A place for the state of one pack.

    Attributes:
        path: the file.
        key: tells this pack's configs from all others; a file with another key is not used.
    """

    path: Path
    key: str

    def save(self, learners: list[Learner], step: int) -> None:
        """Write the state after ``step`` steps; batches are a function of the step, so no generator state is needed."""
        state = {
            "key": self.key,
            "step": step,
            "learners": [
                {name: getattr(learner, name) for name in _TENSORS}
                | {"optimizer": learner.optimizer.state(), "history": learner.history}
                | {"plateau": learner.plateau.state()}
                | {"largest": learner.criterion.largest, "samples": learner.criterion.samples}
                for learner in learners
            ],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        with temporary.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(self.path)

    def load(self, learners: list[Learner]) -> int:
        """Restore the learners.

        Returns:
            The number of steps that are done; 0, with the learners untouched, when there is no usable checkpoint:
            an unreadable or foreign file costs time, never numbers.
        """
        if not self.path.exists():
            return 0
        try:
            state: dict[str, Any] = torch.load(self.path, map_location=torch.get_default_device(), weights_only=True)
            mine = state["key"] == self.key and len(state["learners"]) == len(learners)
        except Exception as error:  # a damaged file can fail in many ways; starting again is always right
            _log.warning("checkpoint %s cannot be read (%s): training starts again", self.path, error)
            return 0
        if not mine:
            _log.warning("checkpoint %s belongs to another pack: training starts again", self.path)
            return 0
        for learner, saved in zip(learners, state["learners"], strict=True):
            for name in _TENSORS:
                setattr(learner, name, saved[name])
            for part in ("optimizer", "plateau"):
                for name, value in saved[part].items():
                    setattr(getattr(learner, part), name, value)
            learner.criterion.largest, learner.criterion.samples = saved["largest"], saved["samples"]
            learner.history = [(step, train, validation) for step, train, validation in saved["history"]]
        return int(state["step"])
