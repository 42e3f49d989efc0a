"""Tasks whose target is a functional of white noise, with a squared error that weighs late times more.

Letters: N leading dimensions (replicas, copies), B batch, T time (horizon).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from memsweep.data.task import Batch, Task
from memsweep.recurrence.linear.gram import Gram
from memsweep.streams import Stream


class FunctionalTask(Task):
    """A task whose input is white noise and whose target is a number at every step.

    The loss is the temporally weighted squared error mean_{b,t} w_t^2 (y^ - y)^2 with w_t proportional to
    ((t+1)/(T+1))^p and sum_t w_t = T, so that late times, which need long memory, count more. The config has
    ``weight_power`` p and ``dt``, the standard deviation of an input.
    """

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
