"""Nonlinear functionals with a known memory: y_t = sigma(sum_{s<=t} rho(s dt) x_{t-s}) of white noise x.

A nonlinearity outside a linear functional keeps its memory, and no linear model can represent it any more. For
input of standard deviation dt, its argument z_t is normal with mean 0 and variance s_t^2 = dt^2 sum_{r<=t} rho_r^2; the
best answer without input is the mean of sigma(z_t), and its loss the weighted variance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy  # its parts are imported when they are used
import torch
from torch import Tensor
from torch.nn.functional import hardtanh

from memsweep.config.core.fields import setting
from memsweep.data.api import Batch, KernelConfig, KernelTask, Stream
from memsweep.registry import register_task


@dataclass(frozen=True)
class Nonlinearity:
    """An elementwise function and its variance under a normal law.

    Attributes:
        apply: sigma, any shape.
        variance: variance of sigma(s n), n standard normal, for standard deviations s ``[T]``.
    """

    apply: Callable[[Tensor], Tensor]
    variance: Callable[[np.ndarray], np.ndarray]


_GRID, _STEP = np.linspace(-20.0, 20.0, 1281, retstep=True)


def _tanh_variance(deviation: np.ndarray) -> np.ndarray:
    """E tanh^2(s n), by the trapezoidal rule, which is exact to rounding for analytic integrands that decay.

    Gauss-Hermite's nodes would miss the narrow step of tanh at a large s. There the integral is 1 - E sech^2(s n), in
    the variable g = s n.
    """
    variances = np.empty_like(deviation)
    for rows in np.array_split(np.arange(len(deviation)), len(deviation) // 4096 + 1):
        s = deviation[rows, None]
        scale = np.maximum(s, 1.0)
        density = np.exp(-0.5 * (_GRID / scale) ** 2) / (np.sqrt(2.0 * np.pi) * scale)
        narrow = (np.tanh(s * _GRID) ** 2 * density).sum(-1) * _STEP
        wide = 1.0 - (np.cosh(_GRID) ** -2 * density).sum(-1) * _STEP
        variances[rows] = np.where(s[:, 0] < 1.0, narrow, wide)
    return variances


def _hardtanh_variance(deviation: np.ndarray) -> np.ndarray:
    """s^2 (P(|n| < 1/s) - 2/s phi(1/s)) + P(|n| > 1/s)."""
    s = np.maximum(deviation, 1e-8)  # where the memory is zero at first, the variance is 0, not 0/0
    outside = scipy.special.erfc(1.0 / (s * np.sqrt(2.0)))
    density = np.sqrt(2.0 / np.pi) * np.exp(-1.0 / (2.0 * s**2)) / s
    return deviation**2 * (1.0 - outside - density) + outside


NONLINEARITIES = {
    "tanh": Nonlinearity(torch.tanh, _tanh_variance),
    "hardtanh": Nonlinearity(hardtanh, _hardtanh_variance),
    "relu": Nonlinearity(torch.relu, lambda s: s**2 * (0.5 - 0.5 / np.pi)),
    "square": Nonlinearity(torch.square, lambda s: 2.0 * s**4),
}


@register_task("nonlinear_functional")
class NonlinearFunctional(KernelTask):
    """Reproduce a nonlinear function of a linear functional of white noise whose memory function is given."""

    @dataclass(frozen=True, kw_only=True)
    class Config(KernelConfig):
        """A function of a linear functional of white noise: the target's memory function is the kernel."""

        nonlinearity: str = setting(
            "tanh",
            "function sigma outside the functional: tanh, hardtanh (clipped to -1 ... 1), relu, square",
            choices=tuple(NONLINEARITIES),
        )

    @property
    def nonlinearity(self) -> Nonlinearity:
        return NONLINEARITIES[self.config.nonlinearity]

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        x_BT = self.white_noise(stream, index, size)
        return Batch(x_BT.unsqueeze(-1), self.nonlinearity.apply(self.filtered(x_BT)).unsqueeze(-1))

    def oracle(self, inputs: Tensor) -> Tensor:
        return self.nonlinearity.apply(self.filtered_slowly(inputs))

    def chance(self) -> float:
        """Expected loss of the mean of sigma(z_t) at every step t: exact, mean_t w_t^2 Var sigma(z_t)."""
        deviation = np.sqrt(self.variance * np.cumsum(self.kernel().numpy() ** 2))
        variance = self.nonlinearity.variance(deviation)
        return float((self.weights().numpy() ** 2 * variance).mean())
