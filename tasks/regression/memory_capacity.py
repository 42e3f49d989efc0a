"""Memory capacity: repeat white noise after each of K delays at once.

The measure of Jaeger (2001, "Short term memory in echo state networks", GMD report 152). With inputs x_t that are
independent of each other, the capacity of a model is the sum over the delays k of the share of the variance of x_{t-k}
that its answers explain. It is at most the number of its states for a model that is linear in its inputs, whatever K
is, and at most K.

Jaeger fits one linear readout for each delay, and its share is then the squared correlation. Here all weights are
trained, and the share is 1 minus the mean squared error: the trained capacity. It is a lower bound of what the states
of a single layer hold whose readout is linear in them. ``perturbation.linear_readout`` has Jaeger's, by least squares
on the trained states.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.data.api import Batch, Stream, Task
from memsweep.registry import register_task


@register_task("memory_capacity")
class MemoryCapacity(Task):
    """Repeat white noise after 1 ... K steps; mean squared error over the delays, and the capacity in numbers."""

    reports: ClassVar[tuple[str, ...]] = ("capacity",)

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How many delays are asked for, and over how many steps."""

        horizon: int = setting(100, "sequence length T; the first K steps count for nothing", at_least=2)
        delays: int = setting(32, "delays K: the outputs are the inputs of 1 ... K steps ago", at_least=1)

        def problems(self) -> Iterable[str]:
            if self.delays >= self.horizon:
                yield (
                    f"delays is {self.delays} and horizon {self.horizon}: no step has so many steps before it. Use "
                    f"fewer delays, or a horizon above {self.delays}"
                )

    @property
    def outputs(self) -> int:
        return self.config.delays

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        noise = stream.generator(index).uniform(-np.sqrt(3.0), np.sqrt(3.0), (size, self.horizon))  # variance 1
        targets = np.zeros((size, self.horizon, self.outputs))
        for delay in range(1, self.outputs + 1):
            targets[:, delay:, delay - 1] = noise[:, :-delay]
        return Batch(torch.from_numpy(noise).unsqueeze(-1), torch.from_numpy(targets))

    def squared_weights(self) -> Tensor:
        weights = torch.zeros(self.horizon, dtype=torch.float64)
        weights[self.outputs :] = 1.0 / ((self.horizon - self.outputs) * self.outputs)
        return weights

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return self._errors(outputs, batch).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"capacity": (1.0 - self._errors(outputs, batch)).clamp(min=0.0).sum(-1)}

    def chance(self) -> float:
        return 1.0

    def memoryless_loss(self) -> float:
        return 1.0

    def oracle(self, inputs: Tensor) -> Tensor:
        sequences = inputs.squeeze(-1).tolist()
        answers = [
            [
                [row[step - delay] if step >= delay else 0.0 for delay in range(1, self.outputs + 1)]
                for step in range(len(row))
            ]
            for row in sequences
        ]
        return torch.tensor(answers, dtype=inputs.dtype)

    def _errors(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Mean squared error of each delay, ``[N, K]``."""
        return (outputs - batch.targets)[..., self.outputs :, :].square().mean((-3, -2))
