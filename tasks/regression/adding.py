"""The adding problem: the sum of two marked numbers of a long sequence.

Hochreiter and Schmidhuber (1997, section 5.4), in the form that is usual since Arjovsky et al. (2016, arXiv 1511.06464,
section 4.2)::

    inputs    T numbers, uniform in [0, 1] | a mark of 1 at one step of the first half and at one of the second, else 0
    target                                 | the sum of the two marked numbers, asked after the last step

The best answer without input is 1, with an expected squared error of 1/6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.data.api import Batch, Stream, Task
from memsweep.registry import register_task

RIGHT = 0.04
"""Largest distance of an answer that counts as right (Martens and Sutskever, 2011, section 5.2)."""


@register_task("adding")
class Adding(Task):
    """Answer the sum of the two marked numbers after the last step; squared error, and the share of right sums."""

    reports: ClassVar[tuple[str, ...]] = ("accuracy",)

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How long the sequence is."""

        horizon: int = setting(100, "sequence length T", at_least=2, at_most=1_000_000)

    @property
    def inputs(self) -> int:
        return 2

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        rng, half = stream.generator(index), self.horizon // 2
        inputs = np.zeros((size, self.horizon, 2))
        inputs[..., 0] = rng.random((size, self.horizon))
        marked = np.stack([rng.integers(0, half, size), rng.integers(half, self.horizon, size)])
        rows = np.arange(size)
        inputs[rows, marked, 1] = 1.0
        targets = np.zeros((size, self.horizon, 1))
        targets[:, -1, 0] = inputs[rows, marked, 0].sum(0)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))

    def squared_weights(self) -> Tensor:
        weights = torch.zeros(self.horizon, dtype=torch.float64)
        weights[-1] = 1.0
        return weights

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return (outputs[..., -1, 0] - batch.targets[:, -1, 0]).square().mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        right = (outputs[..., -1, 0] - batch.targets[:, -1, 0]).abs() < RIGHT
        return {"accuracy": right.to(outputs.dtype).mean(-1)}

    def metric_levels(self) -> dict[str, tuple[float, float]]:
        """At chance is the share of sums of two numbers that lie near their mean, 1."""
        return {"accuracy": (1.0, 2 * RIGHT - RIGHT**2)}

    def chance(self) -> float:
        return 1.0 / 6.0

    def memoryless_loss(self) -> float:
        """Where the last step is the second marked one, its number is known."""
        return 1.0 / 6.0 - 1.0 / 12.0 / (self.horizon - self.horizon // 2)

    def oracle(self, inputs: Tensor) -> Tensor:
        answers = torch.zeros(*inputs.shape[:2], 1, dtype=inputs.dtype)
        for row, sequence in enumerate(inputs.tolist()):
            answers[row, -1, 0] = sum(number for number, mark in sequence if mark == 1.0)
        return answers
