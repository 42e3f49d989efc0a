"""Tasks whose target is a functional of white noise, with a squared error that weighs late times more.

The kernel rho of such a task is the memory that a model must hold. Exponential kernels forget at a fixed rate;
polynomial kernels never do, and approximating them stably is the curse of memory (arXiv 2305.19190, section 3). The
formulas and the defaults are those of that paper's published code.

Letters: N leading dimensions (replicas, copies), B batch, T time (horizon).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy  # its parts are imported when they are used
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.data.task import Batch, Task
from memsweep.recurrence.linear.gram import Gram
from memsweep.streams import Stream


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


class FunctionalTask(Task):
    """A task whose input is white noise and whose target is a number at every step.

    The loss is the temporally weighted squared error mean_{b,t} w_t^2 (y^ - y)^2 with w_t proportional to
    ((t+1)/(T+1))^p and sum_t w_t = T, so that late times, which need long memory, count more. The config has
    ``weight_power`` p and ``dt``, the standard deviation of an input.
    """

    functional: ClassVar[bool] = True

    @property
    def weight_power(self) -> float:
        """Exponent p of the temporal weight."""
        power: float = self.config.weight_power
        return power

    @property
    def variance(self) -> float:
        """Variance of one input."""
        deviation: float = self.config.dt
        return deviation**2

    def weights(self) -> Tensor:
        """Temporal weights w: ``[T]``, float64, with sum T."""
        time = torch.arange(1, self.horizon + 1, dtype=torch.float64)
        raw = (time / (self.horizon + 1)) ** self.weight_power
        return raw * (self.horizon / raw.sum())

    def white_noise(self, stream: Stream, index: int, size: int) -> Tensor:
        """Inputs of batch ``index``: ``[size, T]``, independent normal numbers of the task's variance."""
        noise: np.ndarray = stream.generator(index).standard_normal((size, self.horizon))
        return torch.from_numpy(noise) * math.sqrt(self.variance)

    def squared_weights(self) -> Tensor:
        return self.weights().square() / (self.horizon * self.outputs)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        weighted = self.weights().to(outputs).unsqueeze(-1) * (outputs - batch.targets)
        return weighted.square().mean((-1, -2, -3))


class KernelTask(FunctionalTask):
    """A functional of z_t = sum_{s<=t} rho_s x_{t-s}, the input filtered by a memory function.

    The config is a ``KernelConfig``, unless the task has another ``kernel``.
    """

    def kernel(self) -> Tensor:
        """Memory function rho of the target at lags 0 ... T-1: ``[T]``, float64."""
        memory: Tensor = self.config.memory()
        return memory

    def filtered(self, x_BT: Tensor) -> Tensor:
        """z of the inputs: ``[B, T]``, by a zero-padded Fourier transform."""
        length = 2 * self.horizon  # zero padding: a causal, not a circular, convolution
        spectrum = torch.fft.rfft(x_BT, length) * torch.fft.rfft(self.kernel(), length)
        return torch.fft.irfft(spectrum, length)[:, : self.horizon]

    def filtered_slowly(self, inputs: Tensor) -> Tensor:
        """z of inputs ``[B, T, 1]``, in that shape, as a plain sum over the lags, for oracles."""
        kernel, outputs = self.kernel().to(inputs), torch.zeros_like(inputs)
        for lag in range(self.horizon):
            outputs[:, lag:] += kernel[lag] * inputs[:, : self.horizon - lag]
        return outputs


class LinearFunctionalTask(KernelTask):
    """A task whose target is a linear functional of white noise, y_t = sum_{s<=t} rho_s x_{t-s}.

    Because target and input law are known, so is the expected loss of any linear model, exactly.
    """

    knows_population = True

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        x_BT = self.white_noise(stream, index, size)
        return Batch(x_BT.unsqueeze(-1), self.filtered(x_BT).unsqueeze(-1))

    def oracle(self, inputs: Tensor) -> Tensor:
        return self.filtered_slowly(inputs)

    def population(self) -> Gram:
        """The expected loss as a quadratic form of the kernel error."""
        return Gram.population(self.weights(), self.variance)

    def chance(self) -> float:
        """Exact expected loss of the zero predictor."""
        kernel = self.kernel().unsqueeze(0)
        return float(self.population().loss(kernel, torch.zeros_like(kernel)))
