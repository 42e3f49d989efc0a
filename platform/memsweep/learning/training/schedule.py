"""What holds at a step: the learning rate's schedule, settings that change on the way, the steps of the history."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from memsweep.config.schema.training import TURNING, TrainingConfig, Turn

SMALLEST_GAIN = 1e-4
"""Smallest relative improvement of the validation loss that counts; torch's ReduceLROnPlateau has the same."""
HISTORY_ROWS = 100
"""Most history rows of one replica: enough for a curve, small enough for a tracking server."""
Settings = TrainingConfig | Turn
"""The settings of a step: the present ones of a training, or those of an earlier segment of it."""


@dataclass
class Plateau:
    """The learning-rate factor of each replica, reduced where its validation loss has stopped improving.

    Does what torch.optim.lr_scheduler.ReduceLROnPlateau (mode min, relative threshold, no cooldown) does for one model.

    Attributes:
        factor: ``[rows]``.
        best: ``[rows]``, the loss to improve on.
        bad: ``[rows]``, validations since the last improvement.
    """

    factor: Tensor
    best: Tensor
    bad: Tensor

    @staticmethod
    def start(rows: int, dtype: torch.dtype) -> Plateau:
        """Factor 1, before the first validation."""
        return Plateau(
            torch.ones(rows, dtype=dtype),
            torch.full((rows,), math.inf, dtype=dtype),
            torch.zeros(rows, dtype=torch.long),
        )

    def observe(self, loss: Tensor, factor: float, patience: int) -> None:
        """Update the factors after one validation, with its losses ``[rows]``."""
        better = loss < self.best * (1.0 - SMALLEST_GAIN)
        self.best = torch.where(better, loss, self.best)
        self.bad = torch.where(better, 0, self.bad + 1)
        reached = self.bad > patience
        self.factor = torch.where(reached, self.factor * factor, self.factor)
        self.bad = torch.where(reached, 0, self.bad)

    def state(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def rate_factor(step: int, steps: int, schedule: str | None, warmup: int = 0) -> float:
    """Factor of the learning rate at a step (0 ... steps-1); the factor of a plateau comes from ``Plateau``.

    The first ``warmup`` steps rise linearly, 1/warmup, 2/warmup, ... 1; the cosine falls over the steps after them.
    Without a schedule the rate is constant.
    """
    if step < warmup:
        return (step + 1) / warmup
    step, steps = step - warmup, steps - warmup
    return 0.5 * (1.0 + math.cos(math.pi * step / steps)) if schedule == "cosine" else 1.0


def settings_at(training: TrainingConfig, step: int) -> Settings:
    """The settings of the step after ``step`` steps (before the first step: those of the first)."""
    return next((turn for turn in training.turns if turn.until > step), training)


def rates_at(rates: Tensor, settings: Settings) -> Tensor:
    """Learning rates ``[rows]``: the replicas' own ``rates`` at present; an earlier segment has one for all."""
    return torch.full_like(rates, settings.learning_rate) if isinstance(settings, Turn) else rates


def merged_settings(training: TrainingConfig, step: int) -> tuple[Turn, ...]:
    """The settings of the first ``step`` steps; adjacent segments of equal settings are merged into one."""
    present = Turn(until=max(1, training.end), **{name: getattr(training, name) for name in TURNING})
    segments: list[Turn] = []
    for turn in (*training.turns, present):
        start = segments[-1].until if segments else 0
        if start >= step:
            break
        turn = dataclasses.replace(turn, until=min(turn.until, step))
        if segments and dataclasses.replace(segments[-1], until=turn.until) == turn:
            segments.pop()
        segments.append(turn)
    return tuple(segments)


def keeps_history(training: TrainingConfig, step: int, last: int | None) -> bool:
    """Whether the history keeps the validation after ``step`` steps, when ``last`` was the last kept (None: none).

    A function of the whole training's steps, so that a training that ends early has a prefix of the same history.
    """
    every = max(1, math.ceil(training.steps / HISTORY_ROWS))
    return last is None or step - last >= every or step == training.steps


def history_steps(training: TrainingConfig, step: int) -> list[int]:
    """The steps of a replica's history after ``step`` steps, the validation there included."""
    kept: list[int] = []
    for validated in range(0, step + 1, training.validate_every):
        if keeps_history(training, validated, kept[-1] if kept else None):
            kept.append(validated)
    return kept
