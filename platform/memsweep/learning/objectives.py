"""What a task is, and the objective of tasks that are linear functionals of white noise.

Letters: N leading dimensions (replicas, copies), B batch, T time (horizon), I inputs, O outputs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from memsweep.learning.streams import Stream
from memsweep.recurrence.gram import Gram

__all__ = ["Batch", "LinearFunctionalTask", "Stream", "Task"]


@dataclass(frozen=True)
class Batch:
    """Sequences and what a model should answer.

    Attributes:
        inputs: ``[B, T, I]``.
        targets: ``[B, T, O]``, or whatever the task's own loss understands.
    """

    inputs: Tensor
    targets: Tensor


class Task(ABC):
    """A source of batches and a loss. Owns a frozen ``Config``; knows nothing of models.

    A task is deterministic: ``draw`` gives the same batch for the same stream and index, always.
    """

    Config: ClassVar[type]
    pack_fields: ClassVar[frozenset[str]] = frozenset()
    """Config fields in which the tasks of one pack may differ: the inputs must not depend on them."""
    knows_population: ClassVar[bool] = False
    """The expected loss of a linear model has a closed form on this task (see LinearFunctionalTask)."""
    inputs: ClassVar[int] = 1
    outputs: ClassVar[int] = 1

    def __init__(self, config: Any) -> None:
        self.config = config

    @property
    @abstractmethod
    def horizon(self) -> int:
        """Sequence length T."""

    @abstractmethod
    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """Batch number ``index`` of a stream, float64: ``size`` sequences and their targets."""

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Loss of outputs ``[N, B, T, O]`` (any leading dimensions), averaged over the batch: ``[N]``."""

    @abstractmethod
    def chance(self) -> float:
        """Loss of the best model that ignores its input: the level that errors are compared with."""

    @abstractmethod
    def oracle(self, inputs: Tensor) -> Tensor:
        """The right answers ``[B, T, O]`` to inputs ``[B, T, I]``, by brute force, independently of ``draw``.

        Proves in the conformance suite that the task can be solved from its inputs.
        """


class LinearFunctionalTask(Task):
    """A task whose target is a linear functional of white noise, y_t = sum_{s<=t} rho_s x_{t-s}.

    The loss is the temporally weighted squared error mean_{b,t} w_t^2 (y^ - y)^2 with w_t proportional to
    ((t+1)/(T+1))^p and sum_t w_t = T, so that late times, which need long memory, count more. Because target and
    input law are known, so is the expected loss of any linear model, exactly.
    """

    knows_population = True

    @abstractmethod
    def kernel(self) -> Tensor:
        """Memory function rho of the target at lags 0 ... T-1: ``[T]``, float64."""

    @property
    @abstractmethod
    def weight_power(self) -> float:
        """Exponent p of the temporal weight."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of one input."""

    def weights(self) -> Tensor:
        """Temporal weights w: ``[T]``, float64, with sum T."""
        time = torch.arange(1, self.horizon + 1, dtype=torch.float64)
        raw = (time / (self.horizon + 1)) ** self.weight_power
        return raw * (self.horizon / raw.sum())

    def white_noise(self, stream: Stream, index: int, size: int) -> Tensor:
        """Inputs of batch ``index``: ``[size, T]``, independent normal numbers of the task's variance."""
        noise: np.ndarray = stream.generator(index).standard_normal((size, self.horizon))
        return torch.from_numpy(noise) * math.sqrt(self.variance)

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        x_BT = self.white_noise(stream, index, size)
        length = 2 * self.horizon  # zero padding: a causal, not a circular, convolution
        spectrum = torch.fft.rfft(x_BT, length) * torch.fft.rfft(self.kernel(), length)
        y_BT = torch.fft.irfft(spectrum, length)[:, : self.horizon]
        return Batch(x_BT.unsqueeze(-1), y_BT.unsqueeze(-1))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        weighted = self.weights().to(outputs).unsqueeze(-1) * (outputs - batch.targets)
        return weighted.square().mean((-1, -2, -3))

    def oracle(self, inputs: Tensor) -> Tensor:
        kernel, outputs = self.kernel().to(inputs), torch.zeros_like(inputs)
        for lag in range(self.horizon):
            outputs[:, lag:] += kernel[lag] * inputs[:, : self.horizon - lag]
        return outputs

    def population(self) -> Gram:
        """The expected loss as a quadratic form of the kernel error."""
        return Gram.population(self.weights(), self.variance)

    def chance(self) -> float:
        """Exact expected loss of the zero predictor."""
        kernel = self.kernel().unsqueeze(0)
        return float(self.population().loss(kernel, torch.zeros_like(kernel)))
