"""The parameterizations of the curse of memory (arXiv 2305.19190), StableSSM (2311.14495), LRU (2303.06349), Mamba-3.

w is the raw weight, s a shift of it, and sigma the logistic function. The modulus is the same under the discretization
``discrete`` but where ``Best`` and ``HeavyTail`` say otherwise.

==========  ================  =====================  ==============================
name        rate f            eigenvalue (discrete)  modulus at s
==========  ================  =====================  ==============================
direct      w                 w                      inf
relu        max(w, 0)         1 - f                  inf
inverse     1/w               1 - f                  inf
exp, lru    e^w               exp(-f)                e^s - 1
softplus    log(1 + e^w)      exp(-f)                e^s - 1
sigmoid     sigma(w)          sigma(w)               e^s - 1
heavy_tail  1 + w, 1/(1 - w)  exp(-f)                s + s^2/4
best        1/(a w^2 + b)     1 - f                  2 s / (sqrt(s^2 + 4 b/a) - s)
==========  ================  =====================  ==============================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsweep.config.core.fields import setting
from memsweep.models.parameterizations.base import DISCRETE, EULER, EXACT, Parameterization
from memsweep.registry import register_parameterization

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST_EXPONENT = 700.0  # e^709 is the largest that float64 holds
_HALVINGS = 60
"""Of an interval, until it has the width of a rounding."""


def _exponential_modulus(shift: float) -> float:
    """e^shift - 1: every weight's rate changes by at most the factor e^shift, and slow modes' by that factor."""
    return math.expm1(shift) if shift < _LARGEST_EXPONENT else math.inf


class _Unconstrained(Parameterization):
    """Maps under which some modes are a small push away from growing, or from no decay: no modulus is finite."""

    anchor = 1.0

    def modulus(self, shift: float, discretization: str = EXACT) -> float:
        return math.inf if shift > 0 else 0.0


class _AsItStands(_Unconstrained):
    """Maps under which the recurrent matrix is trained as it stands: ``exact`` is the same as ``euler``."""

    exponential = False

    def eigenvalue(self, raw: Tensor, dt: float, discretization: str) -> Tensor:
        return super().eigenvalue(raw, dt, EULER if discretization == EXACT else discretization)

    def least(self, discretization: str) -> float | None:
        return None if discretization == DISCRETE else self.rates[0]


@register_parameterization("direct")
class Direct(_AsItStands):
    """The raw weight is the rate itself: nothing keeps it positive, so a small push can cross into instability.

    The eigenvalue is 1 - w dt under ``exact`` and ``euler``: the recurrent matrix is trained as it stands. Under
    ``discrete`` the raw weight is the eigenvalue.
    """

    @classmethod
    def closed_forms(cls) -> tuple[str, str]:
        return "1/w^2", "1/(1 - w)^2"

    @property
    def rates(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def rate(self, raw: Tensor) -> Tensor:
        return raw

    def of_raw(self, raw: Tensor, rate: Tensor, of_rate: Tensor) -> Tensor:
        return of_rate

    def raw(self, rate: Tensor) -> Tensor:
        return rate

    def discrete(self, raw: Tensor) -> Tensor:
        return raw

    def discrete_raw(self, decay: Tensor) -> Tensor:
        import torch

        return torch.exp(-decay)


@register_parameterization("relu")
class Relu(_AsItStands):
    """Rate max(w, 0), as the Curse-of-memory code trains it: a mode with w <= 0 never forgets and never learns.

    Such a dead mode is a pure integrator (eigenvalue 1) that no gradient reaches; a small push makes one of any slow
    mode. The eigenvalue is 1 - max(w, 0) dt under ``exact`` and ``euler``, as under ``direct``, whose clamped form
    this is: that code evaluates the rates it trained so under ``direct`` (see ``projection``).
    """

    @classmethod
    def closed_forms(cls) -> tuple[str, str]:
        return "1/w^2 for w > 0, and no gradient below", "1/w^2 for w > 0, and no gradient below"

    def rate(self, raw: Tensor) -> Tensor:
        import torch

        return torch.relu(raw)

    def of_raw(self, raw: Tensor, rate: Tensor, of_rate: Tensor) -> Tensor:
        return of_rate.masked_fill(rate <= 0, 0.0)

    def raw(self, rate: Tensor) -> Tensor:
        return rate

    def projection(self) -> Direct:
        return Direct()


@register_parameterization("inverse")
class Inverse(_Unconstrained):
    """Rate 1/w for w > 0; nothing keeps w positive.

    Slow modes are safe, for their weights are far from 0. Fast ones are not: a push through 0 makes them grow. Under
    ``discrete``, 1 - 1/w leaves the unit circle at w = 1/2 already.
    """

    @classmethod
    def closed_forms(cls) -> tuple[str, str]:
        return "1", "1"

    @property
    def rates(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def rate(self, raw: Tensor) -> Tensor:
        return raw.reciprocal()

    def of_raw(self, raw: Tensor, rate: Tensor, of_rate: Tensor) -> Tensor:
        return -of_rate * (rate * rate)

    def raw(self, rate: Tensor) -> Tensor:
        return rate.reciprocal()


class _Exponential(Parameterization):
    """Maps whose rate is like e^w where it is small: a shift dilates time by at most e^shift.

    The same holds for ``discrete``: 1 - exp(-f) grows slower than f and is like f for slow modes, so that the supremum
    over all weights, which slow modes approach, does not change.
    """

    def modulus(self, shift: float, discretization: str = EXACT) -> float:
        return _exponential_modulus(shift)

    def discrete(self, raw: Tensor) -> Tensor:
        import torch

        return torch.exp(-self.rate(raw))

    def discrete_raw(self, decay: Tensor) -> Tensor:
        return self.raw(decay)


@register_parameterization("exp")
class Exp(_Exponential):
    """Rate e^w (the continuous form of LRU's exp(-exp w)): a shift of w dilates time by a bounded factor."""

    @classmethod
    def closed_forms(cls) -> tuple[str, str]:
        return "exp(-w)", "f/(4*sinh(f/2)^2)"

    def rate(self, raw: Tensor) -> Tensor:
        import torch

        return torch.exp(raw)

    def of_raw(self, raw: Tensor, rate: Tensor, of_rate: Tensor) -> Tensor:
        return of_rate * rate

    def raw(self, rate: Tensor) -> Tensor:
        import torch

        return torch.log(rate)


@register_parameterization("lru")
class LRU(Exp):
    """Rate e^w per time step: eigenvalue exp(-exp w), whatever dt and the discretization (LRU, arXiv 2303.06349)."""

    @classmethod
    def closed_forms(cls) -> tuple[str, str]:
        return ("f/(4*sinh(f/2)^2)",) * 2

    of_raw = Exp.of_raw

    def differentiated(self, raw: Tensor, discretization: str) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        return super().differentiated(raw, EXACT)

    def eigenvalue(self, raw: Tensor, dt: float, discretization: str) -> Tensor:
        return super().eigenvalue(raw, dt, DISCRETE)

    def raw_for(self, rate: Tensor, dt: float, discretization: str) -> Tensor:
        return super().raw_for(rate, dt, DISCRETE)


@register_parameterization("softplus")
class Softplus(_Exponential):
    """Rate log(1 + e^w): like exp for slow modes, like direct for fast ones; stable."""

    @classmethod
    def closed_forms(cls) -> tuple[str, str]:
        return "sigmoid(w)/log(1 + exp(w))^2", "exp(-w)"

    def rate(self, raw: Tensor) -> Tensor:
        import torch

        # log(e^w + e^0), finite where e^w would overflow
        return torch.logaddexp(raw, torch.zeros_like(raw))

    def of_raw(self, raw: Tensor, rate: Tensor, of_rate: Tensor) -> Tensor:
        import torch

        return of_rate / (1.0 + torch.exp(-raw))

    def raw(self, rate: Tensor) -> Tensor:
        import torch

        # log(e^rate - 1), without overflow for fast modes and without cancellation for slow ones
        return rate + torch.log(-torch.expm1(-rate))


@register_parameterization("sigmoid")
class Sigmoid(Parameterization):
    """Rate sigma(w), below 1: like exp for slow modes; stable.

    Under ``discrete`` the eigenvalue is sigma(w), so that a larger weight forgets more slowly there. By the symmetry
    1 - sigma(w) = sigma(-w) the modulus is the same.
    """

    @classmethod
    def closed_forms(cls) -> tuple[str, str]:
        return "exp(-w)", "exp(w)"

    @property
    def rates(self) -> tuple[float, float]:
        return 0.0, 1.0

    def rate(self, raw: Tensor) -> Tensor:
        import torch

        return torch.sigmoid(raw)

    def raw(self, rate: Tensor) -> Tensor:
        import torch

        return torch.log(rate) - torch.log1p(-rate)

    def modulus(self, shift: float, discretization: str = EXACT) -> float:
        return _exponential_modulus(shift)

    def discrete(self, raw: Tensor) -> Tensor:
        import torch

        return torch.sigmoid(raw)

    def discrete_raw(self, decay: Tensor) -> Tensor:
        import torch

        # the logit log p - log(1 - p) of p = e^-decay
        return -decay - torch.log(-torch.expm1(-decay))


@register_parameterization("heavy_tail")
class HeavyTail(Parameterization):
    """Rate 1 + w for w >= 0 and 1/(1 - w) below: slow modes move with |w|, not with e^w; stable (Mamba-3).

    state-spaces/mamba, pull request 962: the map of the decay there since June 2026, in the place of softplus.
    """

    @classmethod
    def closed_forms(cls) -> tuple[str, str]:
        return "1/(1 + max(w, 0))^2", "(f/(2*sinh(f/2)*(1 + max(w, 0))))^2"

    def rate(self, raw: Tensor) -> Tensor:
        import torch

        # the clamp keeps 1/(1 - w) and its gradient finite where the other branch is taken
        return torch.where(raw < 0, (1.0 - raw.clamp(max=0.0)).reciprocal(), 1.0 + raw)

    def raw(self, rate: Tensor) -> Tensor:
        import torch

        return torch.where(rate < 1.0, 1.0 - rate.reciprocal(), rate - 1.0)

    def modulus(self, shift: float, discretization: str = EXACT) -> float:
        """Largest for a shift from s/2 to -s/2: (1 + s/2)^2 - 1.

        Under ``discrete`` f is F = 1 - exp(-f), and the largest ratio F(w) / F(w - s) lies between w = 0 and w = s.
        There log F(w) rises by 1 / (e^(1 + w) - 1), which falls, and log F(w - s) by v^2 / (e^v - 1) with
        v = 1 / (1 + s - w), which rises: they cross once.
        """
        if discretization != DISCRETE:
            return shift + shift * shift / 4.0
        # bisection: of the two slopes above one falls and one rises, so that they cross once
        low, high = 0.0, shift
        for _ in range(_HALVINGS):
            weight = 0.5 * (low + high)
            slow = 1.0 / (1.0 + shift - weight)
            if math.exp(-1.0 - weight) / -math.expm1(-1.0 - weight) > slow * slow / math.expm1(slow):
                low = weight
            else:
                high = weight
        return math.expm1(-1.0 - low) / math.expm1(-1.0 / (1.0 + shift - low)) - 1.0

    def discrete(self, raw: Tensor) -> Tensor:
        import torch

        return torch.exp(-self.rate(raw))

    def discrete_raw(self, decay: Tensor) -> Tensor:
        return self.raw(decay)


@register_parameterization("best")
class Best(Parameterization):
    """Rate 1/(a w^2 + b): StableSSM's "best", whose gradient scale grows in proportion to the weight; stable.

    Rates lie below 1/b, which weight 0 gives. The plots published with StableSSM have a = 1 and b = 0.5, its training
    code has b = 0.1. Under ``discrete``, 1 - 1/(a w^2 + b) stays inside the unit circle only for b > 0.5: with b = 0.5
    weight 0 gives -1, an oscillation that never ends.
    """

    anchor = 1.0

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Rate 1/(a w^2 + b): gradients in proportion to the weight, stable."""

        a: float = setting(1.0, "how fast a mode slows down with its weight: the rate is 1/(a w^2 + b)", above=0.0)
        b: float = setting(
            0.5, "1/b is the fastest rate; the discretization discrete is stable for b > 0.5 only", above=0.0
        )

    @classmethod
    def closed_forms(cls) -> tuple[str, str]:
        return "2*a*abs(w)", "2*a*abs(w)"

    @property
    def rates(self) -> tuple[float, float]:
        return 0.0, 1.0 / self.config.b

    def rate(self, raw: Tensor) -> Tensor:
        return (self.config.a * raw.square() + self.config.b).reciprocal()

    def of_raw(self, raw: Tensor, rate: Tensor, of_rate: Tensor) -> Tensor:
        return -of_rate * (rate * rate) * self.config.a * (2.0 * raw)

    def raw(self, rate: Tensor) -> Tensor:
        """The positive root."""
        import torch

        return torch.sqrt((rate.reciprocal() - self.config.b) / self.config.a)

    def modulus(self, shift: float, discretization: str = EXACT) -> float:
        """Under ``discrete`` the same while all eigenvalues are inside the unit circle, ``inf`` otherwise.

        There 1/f is the sum of the mode's answers to an impulse. Where b < 1 fast modes alternate in sign, and the sum
        of absolute values, which their modulus leaves out, may change by more.
        """
        if discretization == DISCRETE and self.config.b <= 0.5:
            return math.inf if shift > 0 else 0.0
        ratio = self.config.b / self.config.a
        return shift * (math.hypot(shift, 2.0 * math.sqrt(ratio)) + shift) / (2.0 * ratio)
