"""Linear functionals whose memory is a peak at a lag with a tail behind it: a family with four parameters.

The memory function, for the support L, the peakiness q, the dispersion D and the tail p, is a part of a normal curve up
to its peak, and falls from there with the slope -1/D::

    rho(t) = exp(-(q (1 - t/L))^2 / 2)      t < L
    rho(t) = (1 + (t - L) / (p D))^-p       t >= L, and exp(-(t - L) / D) without a tail p

So the peak is 1 and lies at L, the width of its rise is L/q, and rho(0) is exp(-q^2 / 2). Behind the peak there is a
power law of exponent p, whose limit for large p is the exponential. With L = 0 this is the kernel ``polynomial`` of
``linear_functional`` with the exponent p and the rate 1/(p D), or ``exponential`` with the rate 1/D. A large q and a
small D make a delay of L.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.data.api import LinearFunctionalTask
from memsweep.registry import register_task


@register_task("lag_kernel")
class LagKernel(LinearFunctionalTask):
    """Reproduce a linear functional of white noise whose memory has a peak at a lag, and a tail behind it."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The peak of the memory and what follows it, in units of time."""

        support: float = setting(8.0, "lag of the peak, L", at_least=0.0)
        peakiness: float = setting(4.0, "lag of the peak over the width of its rise, q", at_least=0.0)
        tail: float | None = setting(None, "exponent p of the power law behind the peak; null: exponential", above=0.0)
        dispersion: float = setting(4.0, "time scale of the fall behind the peak, D", above=0.0)
        horizon: int = setting(100, "sequence length T, in steps", at_least=2, at_most=1_000_000)
        dt: float = setting(1.0, "time between steps; the input's standard deviation, too", at_least=1e-6, at_most=1e3)
        weight_power: float = setting(
            2.0, "power p of the temporal weight (t/T)^p inside the squared error", at_least=0.0, at_most=20.0
        )

        def problems(self) -> Iterable[str]:
            last = (self.horizon - 1) * self.dt
            if self.support > last:
                yield (
                    f"support is {self.support:g}, but the largest lag of horizon {self.horizon} with dt {self.dt:g} "
                    f"is {last:g}: use a support of at most that, or a longer horizon"
                )

    pack_fields = frozenset({"support", "peakiness", "tail", "dispersion"})

    def kernel(self) -> Tensor:
        config = self.config
        time = np.arange(self.horizon) * config.dt
        before = np.clip(1.0 - time / config.support, 0.0, None) if config.support else np.zeros_like(time)
        behind = np.clip(time - config.support, 0.0, None) / config.dispersion
        fall = np.exp(-behind) if config.tail is None else (1.0 + behind / config.tail) ** -config.tail
        return torch.from_numpy(np.exp(-0.5 * (config.peakiness * before) ** 2) * fall)

    def memoryless_loss(self) -> float:
        """Expected loss of rho(0) x_t, the part of the present input."""
        missed = self.kernel().unsqueeze(0)
        missed[:, 0] = 0.0
        return float(self.population().loss(missed, torch.zeros_like(missed)))
