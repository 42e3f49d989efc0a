"""Weights that training leaves as they are: a user's module has them where ``requires_grad`` is off.

torch.optim neither moves nor decays them, no penalty acts on them, and a clipped norm leaves them out. In everything
that is measured they are weights like any other: their role decides which ball moves them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.models.base import Model


def freezes_weights(model: Model) -> bool:
    """Whether training leaves some of a model's weights as they are."""
    return bool(_names(model))


def frozen_entries(ensemble: Ensemble) -> Tensor:
    """Which entries of the flat weights training leaves as they are: ``[size]``, bool."""
    names, segments = _names(ensemble.model), ensemble.layout.segments
    frozen = [torch.full((segment.stop - segment.start,), segment.name in names) for segment in segments]
    return torch.cat(frozen).to(ensemble.initial.device)


def _names(model: Model) -> frozenset[str]:
    """The names of the weights; a model without the attribute trains all of them."""
    names: frozenset[str] = getattr(model, "frozen_weights", frozenset())
    return names
