"""Tasks whose answers are the numbers of a dynamical system, with a normalized mean squared error.

Letters: B batch, T time (horizon).
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep.data.task import Batch, Task
from memsweep.streams import Stream

BATCHES, AT_ONCE = 8, 1024  # sequences on which the mean and the variance of the answers are measured


class SeriesTask(Task):
    """Answer with a number of a system at every step; mean squared error of the steps from ``first`` on.

    Answers are counted from their mean, in units of their standard deviation: the loss is the normalized mean squared
    error (NMSE) of the field, and its square root the NRMSE.
    """

    @property
    @abstractmethod
    def first(self) -> int:
        """First step whose answer counts, 0 ... T-1: those before it lack some of the past."""

    @abstractmethod
    def series(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and answers, ``[B, T]`` each, the answers in the units of the system."""

    @abstractmethod
    def answers(self, inputs_BT: np.ndarray) -> np.ndarray:
        """The answers ``[B, T]`` from the inputs, without the code of ``series``; those of counted steps matter."""

    @property
    def moments(self) -> tuple[float, float]:
        """The mean of the counted answers, and the root of their variance around the mean of their step."""
        return _moments(type(self), self.config)

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        inputs_BT, answers_BT = self.series(stream.generator(index), size)
        return Batch(torch.from_numpy(inputs_BT).unsqueeze(-1), self._normalized(answers_BT))

    def squared_weights(self) -> Tensor:
        weights = torch.zeros(self.horizon, dtype=torch.float64)
        weights[self.first :] = 1.0 / (self.horizon - self.first)
        return weights

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return (outputs - batch.targets)[..., self.first :, 0].square().mean((-2, -1))

    def chance(self) -> float:
        """1, by the units of the answers, measured on a fixed stream of 8192 sequences; that leaves some 2 %."""
        return 1.0

    def oracle(self, inputs: Tensor) -> Tensor:
        return self._normalized(self.answers(inputs.squeeze(-1).numpy()))

    def _normalized(self, answers_BT: np.ndarray) -> Tensor:
        mean, deviation = self.moments
        return torch.from_numpy((answers_BT - mean) / deviation).unsqueeze(-1)


@functools.lru_cache(maxsize=16)
def _moments(task: type[SeriesTask], config: Any) -> tuple[float, float]:
    made, stream, found = task(config), Stream(0, "moments of the answers"), []
    for index in range(BATCHES):
        _, answers_BT = made.series(stream.generator(index), AT_ONCE)
        counted = answers_BT[:, made.first :]
        found.append((counted.mean(), counted.var(0, ddof=1).mean()))
    mean, variance = np.mean(found, axis=0)
    return float(mean), math.sqrt(variance)
