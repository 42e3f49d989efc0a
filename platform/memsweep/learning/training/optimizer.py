"""AdamW, Adam and RMSprop with a learning rate and a gradient clip for every replica.

The updates are those of torch.optim (decoupled weight decay: arXiv 1711.05101), written over a flat tensor
``[rows, size]`` because torch's take one learning rate for all rows and clip their common norm. They are elementwise,
so groups of weights may have learning rates and weight decays of their own (``training.groups``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Self

import torch
from torch import Tensor

from memsweep.config.schema.training import GroupConfig, TrainingConfig
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.models.base import Group

EPSILON = 1e-8
"""Default of torch.optim: added to the root of the mean square."""


class Optimizer(ABC):
    """Optimizer state of one ensemble."""

    @abstractmethod
    def update(self, weights: Tensor, gradient: Tensor, rate: Tensor, decay: float | Tensor, moving: Tensor) -> Tensor:
        """The next weights.

        Args:
            weights: ``[rows, size]``, of the first rows of the ensemble.
            gradient: ``[rows, size]``, finite, and 0 where nothing moves.
            rate: ``[rows, 1]`` or ``[rows, size]``, learning rates of this step.
            decay: weight decay of all entries, or ``[size]``.
            moving: ``[rows, size]``, bool: entries that may change; the others keep their weights.
        """

    @abstractmethod
    def state(self) -> dict[str, Tensor | int]:
        """The attributes that updates change, by name. An entry ``step`` counts the updates."""

    @abstractmethod
    def divisor(self) -> Tensor:
        """What the next update divides the gradient by, ``[rows, size]``; nan before the first update."""

    @property
    @abstractmethod
    def edge(self) -> float:
        """Learning rate times curvature, of the divided gradient, above which a quadratic diverges."""


@dataclass
class Adam(Optimizer):
    """torch.optim.Adam: weight decay is added to the gradient.

    Attributes:
        mean: ``[rows, size]``, running mean of the gradient.
        square: ``[rows, size]``, running mean of its square.
        beta1, beta2: decay factors of the two running means.
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
        """The optimizer of these weights before its first step."""
        return cls(torch.zeros_like(weights), torch.zeros_like(weights), beta1, beta2)

    def update(self, weights: Tensor, gradient: Tensor, rate: Tensor, decay: float | Tensor, moving: Tensor) -> Tensor:
        if not self.decoupled:
            gradient = _decayed(gradient, weights, decay, moving)
        self.step += 1
        mean, square = self.mean[: len(weights)], self.square[: len(weights)]
        # in place: for a wide ensemble, each pass over fresh memory costs as much as the arithmetic
        mean.lerp_(gradient, 1.0 - self.beta1)
        square.mul_(self.beta2).addcmul_(gradient, gradient, value=1.0 - self.beta2)
        # the powers of beta correct the bias of means that start at zero
        root = square.sqrt().div_(math.sqrt(1.0 - self.beta2**self.step)).add_(EPSILON)
        direction = torch.div(mean, root, out=root).div_(1.0 - self.beta1**self.step)
        if self.decoupled:
            _add_decay(direction, weights, decay)
        return torch.where(moving, weights - direction.mul_(rate), weights)

    def next_update(self) -> dict[str, float]:
        """The numbers of the next update by compiled code, which counts as done: decay factors, and what corrects the
        bias of means that start at zero.
        """
        self.step += 1
        of_mean, of_square = 1.0 - self.beta1**self.step, math.sqrt(1.0 - self.beta2**self.step)
        decays = {"beta1": self.beta1, "beta2": self.beta2}
        return decays | {"of_mean": of_mean, "of_square": of_square, "epsilon": EPSILON}

    def state(self) -> dict[str, Tensor | int]:
        return {"mean": self.mean, "square": self.square, "step": self.step}

    def divisor(self) -> Tensor:
        if not self.step:
            return torch.full_like(self.square, torch.nan)
        return self.square.sqrt().div_(math.sqrt(1.0 - self.beta2**self.step)).add_(EPSILON)

    @property
    def edge(self) -> float:
        return (2.0 + 2.0 * self.beta1) / (1.0 - self.beta1)


@dataclass
class AdamW(Adam):
    """torch.optim.AdamW: weight decay is added to the step, so the running means do not contain it."""

    decoupled: ClassVar[bool] = True


@dataclass
class RMSprop(Optimizer):
    """torch.optim.RMSprop, neither centred nor with momentum; weight decay is added to the gradient.

    Attributes:
        square: ``[rows, size]``, running mean of the gradient's square.
        alpha: decay factor of the running mean.
    """

    square: Tensor
    alpha: float = 0.99

    @classmethod
    def like(cls, weights: Tensor, alpha: float = 0.99) -> Self:
        """The optimizer of these weights before its first step."""
        return cls(torch.zeros_like(weights), alpha)

    def update(self, weights: Tensor, gradient: Tensor, rate: Tensor, decay: float | Tensor, moving: Tensor) -> Tensor:
        gradient = _decayed(gradient, weights, decay, moving)
        square = self.square[: len(weights)]
        square.mul_(self.alpha).addcmul_(gradient, gradient, value=1.0 - self.alpha)
        root = square.sqrt().add_(EPSILON)
        direction = torch.div(gradient, root, out=root)
        return torch.where(moving, weights - direction.mul_(rate), weights)

    def next_update(self) -> dict[str, float]:
        """As of ``Adam.next_update``."""
        return {"beta2": self.alpha, "of_square": 1.0, "epsilon": EPSILON}

    def state(self) -> dict[str, Tensor | int]:
        return {"square": self.square}

    def divisor(self) -> Tensor:
        started = self.square.amax(-1, keepdim=True) > 0
        return torch.where(started, self.square.sqrt().add_(EPSILON), torch.nan)

    @property
    def edge(self) -> float:
        return 2.0


def optimizer_for(weights: Tensor, training: TrainingConfig) -> Optimizer:
    """The optimizer of a training for weights ``[rows, size]``, before its first step."""
    if training.optimizer == "rmsprop":
        return RMSprop.like(weights, training.alpha)
    kind = AdamW if training.optimizer == "adamw" else Adam
    return kind.like(weights, training.beta1, training.beta2)


def _decayed(gradient: Tensor, weights: Tensor, decay: float | Tensor, moving: Tensor) -> Tensor:
    """The gradient plus ``decay * weights`` where weights move; the same tensor without weight decay."""
    if not isinstance(decay, Tensor) and not decay:
        return gradient
    return _add_decay(gradient.clone(), torch.where(moving, weights, 0.0), decay)


def _add_decay(direction: Tensor, weights: Tensor, decay: float | Tensor) -> Tensor:
    if isinstance(decay, Tensor):
        return direction.addcmul_(weights, decay)
    return direction.add_(weights, alpha=decay) if decay else direction


def clipped(gradient: Tensor, limit: float | None) -> Tensor:
    """The gradient ``[rows, size]``, each row scaled down to the norm ``limit`` where it is larger (0, None: none)."""
    if not limit:
        return gradient
    # The squares of a float32 gradient beyond 1e19 overflow in float32, and a division by infinity would give zero.
    norms = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True, dtype=torch.float64)
    return gradient * (limit / norms).clamp(max=1.0).to(gradient.dtype)


@dataclass(frozen=True)
class GroupSettings:
    """Learning rates and weight decays of groups of weights (``training.groups``), by the groups of the model's roles.

    Attributes:
        own: settings of the groups that have some; empty: all entries take the training's.
        column: ``[size]``, 0 where an entry takes the training's settings, else 1 + the index of its group in ``own``.
    """

    own: Sequence[GroupConfig]
    column: Tensor

    @staticmethod
    def of(ensemble: Ensemble, training: TrainingConfig) -> GroupSettings:
        """The settings that a training has for the weights of an ensemble."""
        own: list[GroupConfig] = []
        column = torch.zeros(ensemble.layout.size, dtype=torch.long, device=ensemble.initial.device)
        for field in fields(training.groups):
            settings = getattr(training.groups, field.name)
            if settings != GroupConfig():
                own.append(settings)
                column = torch.where(ensemble.select(Group(field.name)), len(own), column)
        return GroupSettings(tuple(own), column)

    def rates(self, rates: Tensor) -> Tensor:
        """Learning rates ``[rows, 1 + groups]``, of which the first column is ``rates``, those of all other weights."""
        if not self.own:
            return rates.unsqueeze(-1)
        return torch.stack([rates, *(_group_rates(settings, rates) for settings in self.own)], -1)

    def decay(self, decay: float, weights: Tensor) -> float | Tensor:
        """The weight decay of each entry of ``weights``: ``[size]``, or one number where it is the same for all."""
        return self.spread(weights.new_tensor(self.decays(decay))) if self.own else decay

    def decays(self, decay: float) -> list[float]:
        """The weight decay ``decay`` of all other weights, then that of each group."""
        return [decay, *(decay if each.weight_decay is None else each.weight_decay for each in self.own)]

    def spread(self, values: Tensor) -> Tensor:
        """The value of each entry, ``[..., size]``, from ``[..., 1 + groups]``; without groups, ``values`` as it is."""
        return values.index_select(-1, self.column) if self.own else values


def _group_rates(settings: GroupConfig, rates: Tensor) -> Tensor:
    """Learning rates of a group: a number of its own, or a multiple of the others' rates."""
    if settings.learning_rate is not None:
        return torch.full_like(rates, settings.learning_rate)
    return rates if settings.factor is None else settings.factor * rates
