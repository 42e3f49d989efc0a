"""How the learning rate rises and falls: by the step alone, or with the validation loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

SMALLEST_GAIN = 1e-4
"""Relative improvement of the validation loss that counts as one; torch's ReduceLROnPlateau has the same."""


@dataclass
class Plateau:
    """The learning-rate factor of each replica, reduced where its validation loss has stopped to improve.

    Does what torch.optim.lr_scheduler.ReduceLROnPlateau (mode min, relative threshold, no cooldown) does for one model.

    Attributes:
        factor: ``[rows]``.
        best: ``[rows]``, the loss to improve on.
        bad: ``[rows]``, validations since it was improved on.
    """

    factor: Tensor
    best: Tensor
    bad: Tensor

    @staticmethod
    def start(rows: int, dtype: torch.dtype) -> Plateau:
        return Plateau(
            torch.ones(rows, dtype=dtype),
            torch.full((rows,), math.inf, dtype=dtype),
            torch.zeros(rows, dtype=torch.long),
        )

    def observe(self, loss: Tensor, factor: float, patience: int) -> None:
        """Take in the validation losses ``[rows]`` of one validation."""
        better = loss < self.best * (1.0 - SMALLEST_GAIN)
        self.best = torch.where(better, loss, self.best)
        self.bad = torch.where(better, 0, self.bad + 1)
        reached = self.bad > patience
        self.factor = torch.where(reached, self.factor * factor, self.factor)
        self.bad = torch.where(reached, 0, self.bad)

    def state(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def scheduled(step: int, steps: int, schedule: str, warmup: int = 0) -> float:
    """Factor of the learning rate at a step (0 ... steps-1); a plateau's comes from ``Plateau``.

    The first ``warmup`` steps rise linearly, 1/warmup, 2/warmup, ... 1; the cosine falls over the steps after them.
    """
    if step < warmup:
        return (step + 1) / warmup
    step, steps = step - warmup, steps - warmup
    return 0.5 * (1.0 + math.cos(math.pi * step / steps)) if schedule == "cosine" else 1.0
