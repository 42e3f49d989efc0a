"""AdamW, Adam and RMSprop with a learning rate, a gradient clip and a life of its own for every replica.

The updates are those of torch.optim (decoupled weight decay: arXiv 1711.05101), written over a flat tensor
``[replicas, size]`` because torch's take one learning rate for all rows and clip their common norm. Each acts on every
entry for itself, so that groups of weights, too, have states of their own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrainingConfig

EPSILON = 1e-8
"""What torch.optim adds to the root of the mean square, by default."""


class Optimizer(ABC):
    """Optimizer state of one ensemble."""

    @abstractmethod
    def update(self, weights: Tensor, gradient: Tensor, rate: Tensor, decay: float | Tensor, moving: Tensor) -> Tensor:
        """The next weights.

        Args:
            weights: ``[rows, size]``.
            gradient: ``[rows, size]``, finite, and 0 where nothing moves.
            rate: ``[rows, 1]`` or ``[rows, size]``, learning rates of this step.
            decay: weight decay of all entries, or ``[size]``.
            moving: ``[rows, size]``, bool: entries that may change; the others keep their weights.
        """

    @abstractmethod
    def state(self) -> dict[str, Tensor | int]:
        """What changes on the way: attribute -> value. An entry ``step`` counts the updates."""


@dataclass
class Adam(Optimizer):
    """torch.optim.Adam: weight decay is added to the gradient.

    Attributes:
        mean: ``[rows, size]``, running mean of the gradient.
        square: ``[rows, size]``, running mean of its square.
        beta1, beta2: shares of mean and square that are kept.
        step: updates so far.
    """

    decoupled: ClassVar[bool] = False

    mean: Tensor
    square: Tensor
    beta1: float = 0.9
    beta2: float = 0.999
    step: int = 0

    @classmethod
    def like(cls, weights: Tensor, beta1: float = 0.9, beta2: float = 0.999) -> Self:
        return cls(torch.zeros_like(weights), torch.zeros_like(weights), beta1, beta2)

    def update(self, weights: Tensor, gradient: Tensor, rate: Tensor, decay: float | Tensor, moving: Tensor) -> Tensor:
        if not self.decoupled:
            gradient = _decayed(gradient, weights, decay, moving)
        self.step += 1
        # in place: of a wide ensemble each pass over fresh memory would cost as much as the arithmetic
        self.mean.lerp_(gradient, 1.0 - self.beta1)
        self.square.mul_(self.beta2).addcmul_(gradient, gradient, value=1.0 - self.beta2)
        root = self.square.sqrt().div_(math.sqrt(1.0 - self.beta2**self.step)).add_(EPSILON)
        direction = torch.div(self.mean, root, out=root).div_(1.0 - self.beta1**self.step)
        if self.decoupled:
            _add_decay(direction, weights, decay)
        return torch.where(moving, weights - direction.mul_(rate), weights)

    def state(self) -> dict[str, Tensor | int]:
        return {"mean": self.mean, "square": self.square, "step": self.step}


@dataclass
class AdamW(Adam):
    """torch.optim.AdamW: weight decay is apart from the gradient, and no mean of it is taken."""

    decoupled: ClassVar[bool] = True


@dataclass
class RMSprop(Optimizer):
    """torch.optim.RMSprop, neither centred nor with momentum; weight decay is added to the gradient.

    Attributes:
        square: ``[rows, size]``, running mean of the gradient's square.
        alpha: share of it that is kept.
    """

    square: Tensor
    alpha: float = 0.99

    @classmethod
    def like(cls, weights: Tensor, alpha: float = 0.99) -> Self:
        return cls(torch.zeros_like(weights), alpha)

    def update(self, weights: Tensor, gradient: Tensor, rate: Tensor, decay: float | Tensor, moving: Tensor) -> Tensor:
        gradient = _decayed(gradient, weights, decay, moving)
        self.square.mul_(self.alpha).addcmul_(gradient, gradient, value=1.0 - self.alpha)
        root = self.square.sqrt().add_(EPSILON)
        direction = torch.div(gradient, root, out=root)
        return torch.where(moving, weights - direction.mul_(rate), weights)

    def state(self) -> dict[str, Tensor | int]:
        return {"square": self.square}


def optimizer_for(weights: Tensor, training: TrainingConfig) -> Optimizer:
    """The optimizer that a training names, before its first step, of weights ``[rows, size]``."""
    if training.optimizer == "rmsprop":
        return RMSprop.like(weights, training.alpha)
    kind = AdamW if training.optimizer == "adamw" else Adam
    return kind.like(weights, training.beta1, training.beta2)


def _decayed(gradient: Tensor, weights: Tensor, decay: float | Tensor, moving: Tensor) -> Tensor:
    """A new gradient with the decay's part in it where weights move; the same one where nothing decays."""
    if not isinstance(decay, Tensor) and not decay:
        return gradient
    return _add_decay(gradient.clone(), torch.where(moving, weights, 0.0), decay)


def _add_decay(direction: Tensor, weights: Tensor, decay: float | Tensor) -> Tensor:
    if isinstance(decay, Tensor):
        return direction.addcmul_(weights, decay)
    return direction.add_(weights, alpha=decay) if decay else direction


def clipped(gradient: Tensor, limit: float) -> Tensor:
    """Each row scaled down to the norm ``limit`` where it is larger: ``[rows, size]``; a limit of 0 is none."""
    if limit == 0.0:
        return gradient
    norms = gradient.norm(dim=-1, keepdim=True)
    return gradient * (limit / norms).clamp(max=1.0)
