"""AdamW with a learning rate, a gradient clip and a life of its own for every replica.

The update is that of torch.optim.AdamW (decoupled weight decay, arXiv 1711.05101), written over a flat tensor
``[replicas, size]`` because torch's takes one learning rate for all rows and clips their common norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@dataclass
class AdamW:
    """Optimizer state of one ensemble.

    Attributes:
        mean: ``[rows, size]``, running mean of the gradient.
        square: ``[rows, size]``, running mean of its square.
        step: updates so far.
    """

    mean: Tensor
    square: Tensor
    step: int = 0

    @staticmethod
    def like(weights: Tensor) -> AdamW:
        return AdamW(torch.zeros_like(weights), torch.zeros_like(weights))

    def update(self, weights: Tensor, gradient: Tensor, rate: Tensor, decay: float, moving: Tensor) -> Tensor:
        """The next weights.

        Args:
            weights: ``[rows, size]``.
            gradient: ``[rows, size]``, finite, and 0 where nothing moves.
            rate: ``[rows]``, learning rates of this step.
            decay: decoupled weight decay.
            moving: ``[rows, size]``, bool: entries that may change; the others keep their weights.
        """
        self.step += 1
        # in place: of a wide ensemble each pass over fresh memory would cost as much as the arithmetic
        self.mean.lerp_(gradient, 1.0 - BETA1)
        self.square.mul_(BETA2).addcmul_(gradient, gradient, value=1.0 - BETA2)
        root = self.square.sqrt().div_(math.sqrt(1.0 - BETA2**self.step)).add_(EPSILON)
        direction = torch.div(self.mean, root, out=root).div_(1.0 - BETA1**self.step)
        if decay:
            direction.add_(weights, alpha=decay)
        return torch.where(moving, weights - direction.mul_(rate.unsqueeze(-1)), weights)

    def state(self) -> dict[str, Tensor | int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


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


def clipped(gradient: Tensor, limit: float) -> Tensor:
    """Each row scaled down to the norm ``limit`` where it is larger: ``[rows, size]``."""
    norms = gradient.norm(dim=-1, keepdim=True)
    return gradient * (limit / norms).clamp(max=1.0)


def scheduled(step: int, steps: int, schedule: str) -> float:
    """Factor of the learning rate at a step (0 ... steps-1); a plateau's comes from ``Plateau``."""
    return 0.5 * (1.0 + math.cos(math.pi * step / steps)) if schedule == "cosine" else 1.0
