"""NARMA: identify a nonlinear system of order n from its input (NARMA-10).

The system of Atiya and Parlos (2000, "New results on recurrent network training", IEEE Transactions on Neural Networks
11, section IV), a nonlinear autoregressive moving average whose input u is uniform in [0, 0.5]::

    y_{t+1} = 0.3 y_t + (0.5/n) y_t (y_t + ... + y_{t-n+1}) + 1.5 u_{t-n+1} u_t + 0.1

with n = 10; y is 0 at the start. Models read u_t and answer y_{t+1}. Other orders divide the sum by n, so that y keeps
its mean of about 0.39, and a model must hold n - 1 inputs until they are multiplied.

The published recursion diverges after some runs of large inputs. Here y is at most 1. Of sequences of 500 steps, 0.7 %
reach that at order 10, 12 % at order 5 and hardly one at order 20.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from memsweep.config.core.fields import setting
from memsweep.data.api import SeriesTask
from memsweep.registry import register_task

LARGEST = 1.0


@register_task("narma")
class NARMA(SeriesTask):
    """Answer the next output of the system; squared error relative to the variance of the outputs (NMSE)."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The memory of the system, and how long it is watched."""

        horizon: int = setting(
            100, "sequence length T; the first n - 1 steps count for nothing", at_least=5, at_most=10_000
        )
        order: int = setting(
            10, "order n of the system: inputs and outputs that it remembers", at_least=5, at_most=1000
        )

        def problems(self) -> Iterable[str]:
            if self.order > self.horizon:
                yield (
                    f"order is {self.order} and horizon {self.horizon}: no step has so many inputs. Use a lower order, "
                    f"or a horizon of at least {self.order}"
                )

    @property
    def first(self) -> int:
        return int(self.config.order) - 1

    def series(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        order, steps = self.config.order, self.horizon
        u_BT = rng.uniform(0.0, 0.5, (size, steps))
        y_TB = np.zeros((steps + 1, size))
        for step in range(steps):
            y_B, past_B = y_TB[step], y_TB[max(0, step - order + 1) : step + 1].sum(0)
            old_B = u_BT[:, step - order + 1] if step >= order - 1 else 0.0
            following = 0.3 * y_B + 0.5 / order * y_B * past_B + 1.5 * old_B * u_BT[:, step] + 0.1
            y_TB[step + 1] = np.minimum(following, LARGEST)
        return u_BT, np.ascontiguousarray(y_TB[1:].T)

    def memoryless_loss(self) -> float:
        """The present input explains the variance of 1.5 E[u] u_t and no more, but for the few outputs cut at 1."""
        _, deviation = self.moments
        return 1.0 - (1.5 * 0.25) ** 2 * (0.5**2 / 12.0) / deviation**2

    def answers(self, inputs_BT: np.ndarray) -> np.ndarray:
        return np.array([self._outputs(inputs) for inputs in inputs_BT.tolist()])

    def _outputs(self, inputs: list[float]) -> list[float]:
        """One sequence, number by number, from queues of the last n inputs and outputs."""
        order, found = self.config.order, list[float]()
        recent_inputs, recent_outputs = [0.0] * order, [0.0] * order
        for read in inputs:
            recent_inputs = [*recent_inputs[1:], read]
            last = recent_outputs[-1]
            product = recent_inputs[0] * recent_inputs[-1]
            output = min(0.3 * last + 0.5 * last * sum(recent_outputs) / order + 1.5 * product + 0.1, LARGEST)
            recent_outputs = [*recent_outputs[1:], output]
            found.append(output)
        return found
