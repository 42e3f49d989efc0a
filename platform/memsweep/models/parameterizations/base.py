"""The base class of parameterizations: maps from a raw, trainable weight w to the rate of a recurrence.

A rate r > 0 makes a mode forget like exp(-r t). What one time step of length dt multiplies the mode by, its eigenvalue,
depends on the discretization:

- ``exact`` (the field also says zero-order hold, or zoh): exp(-r dt), but direct and relu are trained as they stand
  and have Euler's;
- ``euler``: 1 - r dt, which leaves the unit circle where r dt >= 2, an effect of the step and not of the memory;
- ``discrete``: the map that the papers give for discrete time, whatever dt is (``Parameterization.discrete``).

A parameterization is *stable* when a shift of w changes the memory of a mode by a bounded factor, whatever w: the
modulus g of StableSSM (arXiv 2311.14495, Definition 3.4). Its integrand has one sign, which leaves the sharp form

    g(b) = sup over w and shifts up to b of |f(w) / f(w~) - 1|,

f the rate. For ``discrete`` sums over steps take the place of integrals over time, and f(w) is 1 - eigenvalue.
``euler`` and ``exact`` discretize the same modes, and have the same g.

The gradient over weight G(w) = |f'(w)| / f(w)^2 is the factor by which a map scales the gradient of a loss by its raw
weight: a mode's answer to an impulse changes with its rate like the integral of t exp(-f t), 1/f^2 (the same paper,
Theorem 3.6). Under ``discrete`` f is 1 - eigenvalue here, too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from memsweep import registry
from memsweep.errors import one_of

if TYPE_CHECKING:
    from torch import Tensor

EXACT, EULER, DISCRETE = "exact", "euler", "discrete"
DISCRETIZATIONS = (EXACT, EULER, DISCRETE)

REACH = 0.99
"""Initial rates stay below this share of the fastest rate of a map that has one: beyond, its gradient vanishes."""


class Parameterization(ABC):
    """A map from raw weights to rates, its inverse and its modulus. Stateless but for its Config.

    A new one defines ``rate``, ``raw`` and ``modulus``; the rest follows unless its papers say
    otherwise. Tensors have any shape, and the maps act on each element.
    """

    Config: ClassVar[type]
    anchor: ClassVar[float] = 0.0
    """A raw weight with a finite positive rate; stands in where a replica uses another parameterization."""
    exponential: ClassVar[bool] = True
    """Whether ``exact`` is exp(-rate dt); 1 - rate dt otherwise. It counts with ``of_raw`` alone."""

    def __init__(self, config: Any = None) -> None:
        self.config = config if config is not None else self.Config()

    @abstractmethod
    def rate(self, raw: Tensor) -> Tensor:
        """Rate f(w) of each raw weight, per unit of time."""

    @abstractmethod
    def raw(self, rate: Tensor) -> Tensor:
        """Inverse of ``rate``: the raw weight of a rate > 0 within ``rates``; NaN or infinite beyond."""

    @abstractmethod
    def modulus(self, shift: float, discretization: str = EXACT) -> float:
        """Sharp modulus g(shift) over all raw weights; ``inf`` says that the parameterization is not stable."""

    @property
    def rates(self) -> tuple[float, float]:
        """Infimum and supremum of the rates over all raw weights."""
        return 0.0, math.inf

    @classmethod
    def closed_forms(cls) -> tuple[str, str]:
        """G(w) and G(w) under ``discrete``, for people: of w, the rate f and the fields of the Config.

        ``memsweep describe`` prints what a class itself defines. No number depends on it, so identities leave it out
        (``memsweep.sweep.planning.sources.source_graph``).
        """
        raise NotImplementedError(f"{cls.__name__} does not say its gradient over weight in closed form")

    def least(self, discretization: str) -> float | None:
        """The number that kernels know the map by: 1 - max(w, least) is a step's eigenvalue; None: by nothing."""
        del discretization
        return None

    def projection(self) -> Parameterization | None:
        """The same map without its clamp, None where there is none to take away.

        Its raw weight is this one's rate; eigenvalues under ``exact`` and ``euler`` stay what they are.
        """
        return None

    def discrete(self, raw: Tensor) -> Tensor:
        """Eigenvalue of the papers' discrete-time map; 1 - rate unless they say otherwise."""
        return 1.0 - self.rate(raw)

    def discrete_raw(self, decay: Tensor) -> Tensor:
        """Inverse of ``discrete``: a raw weight whose eigenvalue is exp(-decay), for decay > 0.

        An eigenvalue below those of the map is brought up to the nearest (see ``REACH``).
        """
        import torch

        # 1 - exp(-decay), without the cancellation of slow modes
        return self.raw(self._reachable(-torch.expm1(-decay)))

    def differentiated(self, raw: Tensor, discretization: str) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        """Eigenvalues of steps of length 1, and the function from gradients by them to gradients by raw weights.

        Both have the roundings of torch's autograd, whose graph takes longer than a small model's step. A map has them
        where its class itself has ``of_raw(raw, rate, of_rate)``, the gradient by raw weights of that by rates: a class
        that inherits from it may have another rate.

        Returns:
            None where autograd alone knows them.
        """
        import torch

        of_raw = vars(type(self)).get("of_raw")
        if of_raw is None or discretization not in (EXACT, EULER):
            return None
        exponential = self.exponential and discretization == EXACT
        rate = self.rate(raw)
        eigenvalue = torch.exp(-rate) if exponential else 1.0 - rate

        def backward(of_eigenvalue: Tensor) -> Tensor:
            of_rate = of_eigenvalue * eigenvalue if exponential else of_eigenvalue
            found: Tensor = of_raw(self, raw, rate, -of_rate)
            return found

        return eigenvalue, backward

    def eigenvalue(self, raw: Tensor, dt: float, discretization: str) -> Tensor:
        """Eigenvalue of one time step of length dt.

        Raises:
            ValueError: there is no such discretization.
        """
        import torch

        if discretization == EXACT:
            return torch.exp(-self.rate(raw) * dt)
        if discretization == EULER:
            return 1.0 - self.rate(raw) * dt
        _check(discretization)
        return self.discrete(raw)

    def raw_for(self, rate: Tensor, dt: float, discretization: str) -> Tensor:
        """Initial raw weights of modes with the given rates > 0 per unit of time.

        Under ``exact`` and ``discrete`` the eigenvalue is exp(-rate dt); under ``euler`` the rate is the given one
        and the eigenvalue 1 - rate dt (direct and relu have the latter under ``exact`` too). Rates that the map does
        not reach are brought down to ``REACH`` of its fastest.

        Raises:
            ValueError: there is no such discretization.
        """
        _check(discretization)
        return self.discrete_raw(rate * dt) if discretization == DISCRETE else self.raw(self._reachable(rate))

    def _reachable(self, rate: Tensor) -> Tensor:
        fastest = self.rates[1]
        return rate if math.isinf(fastest) else rate.clamp(max=REACH * fastest)


def _check(discretization: str) -> None:
    if discretization not in DISCRETIZATIONS:
        raise ValueError(f"discretization must be one of {one_of(DISCRETIZATIONS)}, got {discretization!r}")


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
        import torch

        distinct = list(dict.fromkeys(configs))
        self.parts = [build(config) for config in distinct]
        self.chosen = torch.tensor([distinct.index(config) for config in configs])

    def least(self, discretization: str) -> float | None:
        """As of ``Parameterization``, where all replicas use one."""
        return self.parts[0].least(discretization) if len(self.parts) == 1 else None

    def eigenvalue(self, raw_NM: Tensor, dt: float, discretization: str) -> Tensor:
        """Eigenvalues for raw weights ``[N, ..., M]``, N running over the configs."""
        import torch

        if len(self.parts) == 1:
            return self.parts[0].eigenvalue(raw_NM, dt, discretization)
        result = torch.zeros_like(raw_NM)
        chosen = self.chosen.to(raw_NM.device).view(-1, *[1] * (raw_NM.ndim - 1))
        for index, part in enumerate(self.parts):
            mine = chosen == index
            # another map's raw weight might overflow this one, and 0 * inf makes the gradient NaN: the anchor stands in
            value = part.eigenvalue(torch.where(mine, raw_NM, part.anchor), dt, discretization)
            result = torch.where(mine, value, result)
        return result

    def differentiated(self, raw_NM: Tensor, discretization: str) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        """As of ``Parameterization``; None as soon as one of the maps has None."""
        import torch

        if len(self.parts) == 1:
            return self.parts[0].differentiated(raw_NM, discretization)
        chosen = self.chosen.view(-1, *[1] * (raw_NM.ndim - 1))
        taken = [chosen == index for index in range(len(self.parts))]
        found = [
            part.differentiated(torch.where(mine, raw_NM, part.anchor), discretization)
            for mine, part in zip(taken, self.parts, strict=True)
        ]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return None
        result = torch.zeros_like(raw_NM)
        for mine, (value, _) in zip(taken, known, strict=True):
            result = torch.where(mine, value, result)
        return result, partial(_summed, taken, [backward for _, backward in known])


def _summed(taken: list[Tensor], maps: list[Callable[[Tensor], Tensor]], of_eigenvalue: Tensor) -> Tensor:
    """Gradients by raw weights, each from its own map."""
    import torch

    found = torch.zeros_like(of_eigenvalue)
    for mine, backward in zip(taken, maps, strict=True):
        found += torch.where(mine, backward(of_eigenvalue), 0.0)  # a sum, as of autograd: -0 becomes 0
    return found
