"""Memory functions by name, and the Config of tasks that are built on one.

The kernel rho is the memory that a model must hold. Exponential kernels forget at a fixed rate; polynomial kernels
never do, and approximating them stably is the curse of memory (arXiv 2305.19190, section 3). The formulas and the
defaults are those of that paper's published code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import scipy.special
import torch
from torch import Tensor

from memsweep.config.core.fields import setting


@dataclass(frozen=True)
class Kernel:
    """A memory function of continuous time, with the defaults of its parameters."""

    formula: Callable[..., np.ndarray]
    defaults: dict[str, float]


KERNELS = {
    "exponential": Kernel(lambda t, rate: np.exp(-rate * t), {"rate": 1.0}),
    "polynomial": Kernel(lambda t, rate, exponent: (1.0 + rate * t) ** -exponent, {"rate": 0.1, "exponent": 1.1}),
    "shift": Kernel(lambda t: ((t > 9.0) & (t < 11.0)).astype(float), {}),
    "two_parts": Kernel(lambda t: np.exp(-t) + np.exp(-((t - 9.0) ** 2)), {}),
    "airy": Kernel(lambda t: scipy.special.airy(t - 6.0)[0], {}),
    "sine": Kernel(np.sin, {}),
}
PARAMETERS = ("rate", "exponent")


@dataclass(frozen=True, kw_only=True)
class KernelConfig:
    """Base of the Config of a task whose target has a memory function: the function, the horizon and the loss."""

    kernel: str = setting(
        "exponential",
        "memory function rho(t): exponential e^(-rate t), polynomial (1 + rate t)^-exponent, "
        "shift (1 on 9 < t < 11), two_parts e^-t + e^-(t-9)^2, airy Ai(t - 6), sine sin t (does not decay)",
        choices=tuple(KERNELS),
    )
    rate: float | None = setting(
        None, "decay rate per unit of time (exponential 1.0, polynomial 0.1)", above=0.0, depends_on="kernel"
    )
    exponent: float | None = setting(None, "power of the decay (polynomial 1.1)", above=0.0, depends_on="kernel")
    horizon: int = setting(100, "sequence length T, in steps", at_least=2, at_most=1_000_000)
    dt: float = setting(1.0, "time between steps; the input's standard deviation, too", at_least=1e-6, at_most=1e3)
    weight_power: float = setting(
        2.0, "power p of the temporal weight (t/T)^p inside the squared error", at_least=0.0, at_most=20.0
    )

    def __post_init__(self) -> None:
        kernel = KERNELS.get(self.kernel)
        for name, value in (kernel.defaults if kernel else {}).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def problems(self) -> Iterable[str]:
        """Contradictions between the fields, one sentence each."""
        kernel = KERNELS.get(self.kernel)
        for name in PARAMETERS:
            value = getattr(self, name)
            if kernel and value is not None and name not in kernel.defaults:
                owners = ", ".join(other for other, known in KERNELS.items() if name in known.defaults)
                yield f"{name} is {value}, but the kernel {self.kernel} has no {name} (only {owners})"
        first = math.floor(9.0 / self.dt) + 1  # the first step later than 9
        if self.kernel == "shift" and not (first < self.horizon and first * self.dt < 11.0):
            yield (
                f"the kernel shift is zero at every step of horizon {self.horizon} with dt {self.dt:g}: "
                "let a step fall between the times 9 and 11"
            )

    def memory(self) -> Tensor:
        """The memory function rho(s dt) at lags s = 0 ... T-1: ``[T]``, float64."""
        kernel = KERNELS[self.kernel]
        time = np.arange(self.horizon) * self.dt
        return torch.from_numpy(kernel.formula(time, **{name: getattr(self, name) for name in kernel.defaults}))
