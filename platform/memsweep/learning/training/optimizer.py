"""AdamW, Adam and RMSprop with a learning rate and a gradient clip for every replica.

The updates are those of torch.optim (decoupled weight decay: arXiv 1711.05101), written over a flat tensor
``[rows, size]`` because torch's take one learning rate for all rows and clip their common norm. They are elementwise,
so groups of weights may have learning rates and weight decays of their own (``training.groups``). What holds at a
step is here, too: the schedule of the learning rate, settings that change on the way, the steps of the history.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Self

import torch
from torch import Tensor

from memsweep.config.schema.training import TURNING, GroupConfig, TrainingConfig, Turn, groups_by_pattern
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.models.base import Group
from memsweep.models.roles import asks_settings, fits

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
        if groups_by_pattern(training):
            own, column = _with_patterns(own, column, ensemble, training)
        if asks_settings(segment.role for segment in ensemble.layout.segments):
            own, column = _with_asked(own, column, ensemble)
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


def _with_patterns(
    own: list[GroupConfig], column: Tensor, ensemble: Ensemble, training: TrainingConfig
) -> tuple[list[GroupConfig], Tensor]:
    """Settings and column with those of groups by patterns of names, where no group of the model has some."""
    first, column = len(own) + 1, column.clone()
    for segment in ensemble.layout.segments:
        groups = enumerate(training.parameter_groups)
        place = next((place for place, group in groups if fits(segment.name, group.parameters)), None)
        if place is not None and not column[segment.start : segment.stop].any():
            column[segment.start : segment.stop] = first + place
    return [*own, *training.parameter_groups], column


def _with_asked(own: list[GroupConfig], column: Tensor, ensemble: Ensemble) -> tuple[list[GroupConfig], Tensor]:
    """Settings and column with those that single weights ask for, where their group has none."""
    column = column.clone()
    for segment in ensemble.layout.segments:
        if (asked := segment.role.optimizer_settings) is not None and not column[segment.start : segment.stop].any():
            own = own if asked in own else [*own, asked]
            column[segment.start : segment.stop] = 1 + own.index(asked)
    return own, column


def _group_rates(settings: GroupConfig, rates: Tensor) -> Tensor:
    """Learning rates of a group: a number of its own, or a multiple of the others' rates."""
    if settings.learning_rate is not None:
        return torch.full_like(rates, settings.learning_rate)
    return rates if settings.factor is None else settings.factor * rates
