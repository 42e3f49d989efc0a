"""Parameterizations: maps from a raw, trainable weight w to the rate of a recurrence.

A rate r > 0 makes a mode forget like exp(-r t). The eigenvalue of one time step is exp(-r dt) under the exact
discretization and 1 - r dt under Euler's. A parameterization is *stable* when every raw weight gives a stable mode
and a shift of w changes the mode's memory by a bounded factor: the modulus g of StableSSM (arXiv 2311.14495,
Definition 3.4), here in its sharp form g(b) = sup over w and shifts up to b of |f(w)/f(w~) - 1|.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from memsweep import registry
from memsweep.registry import register_parameterization

EXACT, EULER = "exact", "euler"


class Parameterization(ABC):
    """A map from raw weights to rates, its inverse and its stability figures. Stateless but for its Config."""

    Config: ClassVar[type]
    anchor: ClassVar[float] = 0.0
    """A raw weight with a finite positive rate; stands in where a replica uses another parameterization."""

    def __init__(self, config: Any = None) -> None:
        self.config = config if config is not None else self.Config()

    @abstractmethod
    def rate(self, raw: Tensor) -> Tensor:
        """Rate f(w) of each raw weight, per unit of time."""

    @abstractmethod
    def raw(self, rate: Tensor) -> Tensor:
        """Inverse of ``rate``: the raw weight that gives a wanted rate > 0."""

    @abstractmethod
    def modulus(self, shift: float) -> float:
        """Sharp modulus g(shift) over all raw weights; ``inf`` says that the parameterization is not stable."""

    @abstractmethod
    def gradient_scale(self, raw: Tensor) -> Tensor:
        """|f'(w)| / f(w)^2, the growth of the gradient through one mode (StableSSM, Theorem 3.6)."""

    def eigenvalue(self, raw: Tensor, dt: float, discretization: str) -> Tensor:
        """Eigenvalue of one time step of length dt."""
        rate = self.rate(raw)
        return 1.0 - rate * dt if discretization == EULER else torch.exp(-rate * dt)


@register_parameterization("direct")
class Direct(Parameterization):
    """The raw weight is the rate itself: nothing keeps it positive, so a small push can cross into instability.

    The eigenvalue is 1 - w dt under both discretizations: the recurrent matrix is trained as it stands.
    """

    anchor = 1.0

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The raw weight is the rate: unconstrained, not stable."""

    def rate(self, raw: Tensor) -> Tensor:
        return raw

    def raw(self, rate: Tensor) -> Tensor:
        return rate

    def modulus(self, shift: float) -> float:
        return math.inf if shift > 0 else 0.0

    def gradient_scale(self, raw: Tensor) -> Tensor:
        return raw.square().reciprocal()

    def eigenvalue(self, raw: Tensor, dt: float, discretization: str) -> Tensor:
        return 1.0 - raw * dt


@register_parameterization("exp")
class Exp(Parameterization):
    """Rate e^w (the continuous form of LRU's exp(-exp w)): a shift of w dilates time by a bounded factor."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Rate e^w: always positive, stable."""

    def rate(self, raw: Tensor) -> Tensor:
        return torch.exp(raw)

    def raw(self, rate: Tensor) -> Tensor:
        return torch.log(rate)

    def modulus(self, shift: float) -> float:
        return math.expm1(shift)

    def gradient_scale(self, raw: Tensor) -> Tensor:
        return torch.exp(-raw)


@register_parameterization("softplus")
class Softplus(Parameterization):
    """Rate log(1 + e^w): like exp for slow modes, like direct for fast ones; stable."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Rate log(1 + e^w): always positive, stable."""

    def rate(self, raw: Tensor) -> Tensor:
        return torch.logaddexp(raw, torch.zeros_like(raw))

    def raw(self, rate: Tensor) -> Tensor:
        return rate + torch.log(-torch.expm1(-rate))

    def modulus(self, shift: float) -> float:
        return math.expm1(shift)

    def gradient_scale(self, raw: Tensor) -> Tensor:
        return torch.sigmoid(raw) / self.rate(raw).square()


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
