"""Settings that groups of weights have of their own: ``training.groups``, by the groups that the model's roles name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from memsweep.config.schema.groups import GroupConfig
from memsweep.config.schema.trial import TrainingConfig
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.models.base import Group


@dataclass(frozen=True)
class GroupSettings:
    """Which settings each entry of the flat weights takes: the training's, or those of its group.

    Attributes:
        own: of the groups that have some; empty: all entries take the training's.
        column: ``[size]``, 0 where an entry takes the training's, else 1 + the place of its group in ``own``.
    """

    own: Sequence[GroupConfig]
    column: Tensor

    @staticmethod
    def of(ensemble: Ensemble, training: TrainingConfig) -> GroupSettings:
        found: list[GroupConfig] = []
        column = torch.zeros(ensemble.layout.size, dtype=torch.long, device=ensemble.initial.device)
        for field in fields(training.groups):
            settings = getattr(training.groups, field.name)
            if settings != GroupConfig():
                found.append(settings)
                column = torch.where(ensemble.select(Group(field.name)), len(found), column)
        return GroupSettings(tuple(found), column)

    def rates(self, rates: Tensor) -> Tensor:
        """Learning rates at the start of the others, ``[rows]``, with those of the groups: ``[rows, 1 + groups]``."""
        return torch.stack([rates, *(_own_rates(one, rates) for one in self.own)], -1)

    def decay(self, decay: float, weights: Tensor) -> float | Tensor:
        """The weight decay of each entry of ``weights``: ``[size]``, or one number where it is the same for all."""
        if not self.own:
            return decay
        own = [decay if one.weight_decay is None else one.weight_decay for one in self.own]
        return self.spread(weights.new_tensor([decay, *own]))

    def spread(self, values: Tensor) -> Tensor:
        """What holds for each entry: of ``[..., 1 + groups]``, ``[..., size]``; of ``[..., 1]`` the same again."""
        return values.index_select(-1, self.column) if self.own else values


def _own_rates(settings: GroupConfig, rates: Tensor) -> Tensor:
    """Learning rates of a group beside those of the others: a number of its own, or so many times theirs."""
    if settings.learning_rate is not None:
        return torch.full_like(rates, settings.learning_rate)
    return rates if settings.factor is None else settings.factor * rates
