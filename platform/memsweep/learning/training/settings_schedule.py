"""Which settings hold at a step: a training whose settings turn on the way is a sequence of stretches."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from memsweep.config.schema.trial import TURNING, TrainingConfig, Turn

Settings = TrainingConfig | Turn
"""What holds in a stretch: the present settings of a training, or those of one of its turns."""


def settings_at(training: TrainingConfig, step: int) -> Settings:
    """The settings of the step after ``step`` steps (before the first: those of the first)."""
    return next((turn for turn in training.turns if turn.until > step), training)


def rates_at(rates: Tensor, settings: Settings) -> Tensor:
    """Learning rates ``[rows]``: the replicas' own ``rates`` at present, one for all in an earlier stretch."""
    return torch.full_like(rates, settings.learning_rate) if isinstance(settings, Turn) else rates


def stretches(training: TrainingConfig, step: int) -> tuple[Turn, ...]:
    """The settings of the first ``step`` steps, as few stretches as they are; the last one ends at ``step``."""
    found: list[Turn] = []
    for turn in (*training.turns, _present(training)):
        begun = found[-1].until if found else 0
        if begun >= step:
            break
        turn = dataclasses.replace(turn, until=min(turn.until, step))
        if found and dataclasses.replace(found[-1], until=turn.until) == turn:
            found.pop()
        found.append(turn)
    return tuple(found)


def _present(training: TrainingConfig) -> Turn:
    return Turn(until=max(1, training.end), **{name: getattr(training, name) for name in TURNING})
