"""Parameterizations as models use them: built from their Configs, alone or mixed in one tensor of stacked weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from memsweep import registry
from memsweep.models.parameterizations.base import DISCRETE, DISCRETIZATIONS, EULER, EXACT, Parameterization
from memsweep.models.parameterizations.maps import LRU, Best, Direct, Exp, Inverse, Relu, Sigmoid, Softplus

__all__ = [
    "DISCRETE",
    "DISCRETIZATIONS",
    "EULER",
    "EXACT",
    "LRU",
    "Best",
    "Direct",
    "Exp",
    "Inverse",
    "Mixture",
    "Parameterization",
    "Relu",
    "Sigmoid",
    "Softplus",
    "build",
]


def build(config: Any) -> Parameterization:
    """The parameterization that a Config (of a registered one) describes."""
    part: Parameterization = registry.get(registry.PARAMETERIZATION, config.name)(config)
    return part


class Mixture:
    """One eigenvalue map for stacked weights whose replicas use different parameterizations.

    Every map runs on the whole tensor at its full shape, and each replica takes its own: the numbers of a replica
    do not depend on what the others use.
    """

    def __init__(self, configs: Sequence[Any]) -> None:
        distinct = list(dict.fromkeys(configs))
        self.parts = [build(config) for config in distinct]
        self.chosen = torch.tensor([distinct.index(config) for config in configs])

    def eigenvalue(self, raw_NM: Tensor, dt: float, discretization: str) -> Tensor:
        """Eigenvalues for raw weights ``[N, ..., M]``, N running over the configs."""
        if len(self.parts) == 1:
            return self.parts[0].eigenvalue(raw_NM, dt, discretization)
        result = torch.zeros_like(raw_NM)
        chosen = self.chosen.to(raw_NM.device).view(-1, *[1] * (raw_NM.ndim - 1))
        for index, part in enumerate(self.parts):
            mine = chosen == index
            # a foreign raw weight might overflow this map, and 0 * inf would poison its gradient: give it the anchor
            value = part.eigenvalue(torch.where(mine, raw_NM, part.anchor), dt, discretization)
            result = torch.where(mine, value, result)
        return result
