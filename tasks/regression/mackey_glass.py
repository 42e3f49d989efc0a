"""Mackey-Glass: predict a chaotic series.

The delay differential equation of Mackey and Glass (1977, Science 197, p. 287), with the parameters that are usual for
predictions::

    dx/dt = 0.2 x(t - d) / (1 + x(t - d)^10) - 0.1 x(t)

It is chaotic for a delay d of 17 and more, and at rest below 5. Models read x(t) at t = 0, 1, ..., T-1 and answer
x(t + a). Voelker et al. (2019, "Legendre Memory Units", section 3.4) predict a = 15 steps, Jaeger and Haas (2004) 84.

It is solved by the fourth-order method of Runge and Kutta with steps of 1; x(t - d) between two steps is a cubic
through both values and slopes. Against steps of 1/32, the error is below 1e-5 after 50 steps and below 1e-3 after 500.

The states 2d steps before a step decide all after it. Steps that have fewer before them count for nothing: the best
loss of the others is 0, and it needs the last 2d numbers read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from memsweep.config.core.fields import setting
from memsweep.data.api import SeriesTask
from memsweep.registry import register_task


@register_task("mackey_glass")
class MackeyGlass(SeriesTask):
    """Answer the number some steps ahead; squared error relative to the variance of the numbers (NMSE)."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The system, and what is predicted from how many numbers."""

        horizon: int = setting(
            100, "sequence length T; the first 2d steps count for nothing", at_least=13, at_most=10_000
        )
        delay: int = setting(17, "delay d of the system, in steps: chaotic from 17 on", at_least=6)
        ahead: int = setting(15, "steps from the present to the number that is asked, a", at_least=1, at_most=10_000)
        warm_up: int = setting(
            200,
            "steps from the random start to a sequence, and as many again at most, at random",
            at_least=1,
            at_most=10_000,
        )

        def problems(self) -> Iterable[str]:
            if 2 * self.delay >= self.horizon:
                yield (
                    f"delay is {self.delay} and horizon {self.horizon}: no step has twice so many steps before it. Use "
                    f"a shorter delay, or a horizon above {2 * self.delay}"
                )

    @property
    def first(self) -> int:
        return 2 * int(self.config.delay)

    def series(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        config = self.config
        start_B = rng.uniform(0.5, 1.5, size)  # x is this number at all times before the first step
        begin_B = config.warm_up + rng.integers(0, config.warm_up + 1, size)
        x_TB = solution(start_B, config.delay, 2 * config.warm_up + self.horizon + config.ahead)
        read_BT = begin_B[:, None] + np.arange(self.horizon)
        rows = np.arange(size)[:, None]
        return x_TB[read_BT, rows], x_TB[read_BT + config.ahead, rows]

    def answers(self, inputs_BT: np.ndarray) -> np.ndarray:
        """Goes on from the last 2d + 1 numbers before every step, for all steps at once."""
        delay = self.config.delay
        windows = np.lib.stride_tricks.sliding_window_view(inputs_BT, 2 * delay + 1, axis=1)
        known = list(np.moveaxis(windows, -1, 0))
        for _ in range(self.config.ahead):
            known.append(following(known, delay))
        answers_BT = np.zeros_like(inputs_BT)
        answers_BT[:, 2 * delay :] = known[-1]
        return answers_BT


def solution(start_B: np.ndarray, delay: int, steps: int) -> np.ndarray:
    """x at the times 0 ... steps - 1, ``[steps, B]``, after x = ``start_B`` at all times until 0."""
    x_TB = np.empty((delay + steps, len(start_B)))  # from time -d on
    x_TB[: delay + 1] = start_B
    middles = [_growth(start_B)] * delay  # what x adds to the slope, in the middle of each step from -d on
    following_B = _growth(start_B)
    for step in range(steps - 1):
        x_B = x_TB[step + delay]
        first_B, middle_B, following_B = following_B, middles[step], _growth(x_TB[step + 1])
        slope_B = first_B - 0.1 * x_B
        second_B = middle_B - 0.1 * (x_B + 0.5 * slope_B)
        third_B = middle_B - 0.1 * (x_B + 0.5 * second_B)
        fourth_B = following_B - 0.1 * (x_B + third_B)
        next_B = x_B + (slope_B + 2.0 * (second_B + third_B) + fourth_B) / 6.0
        x_TB[step + delay + 1] = next_B
        middles.append(_growth(0.5 * (x_B + next_B) + 0.125 * (slope_B - (following_B - 0.1 * next_B))))
    return x_TB[delay:]


def _growth(x: np.ndarray) -> np.ndarray:
    """0.2 x / (1 + x^10)."""
    square = x * x
    fourth = square * square
    return 0.2 * x / (1.0 + fourth * fourth * square)


def following(known: list[np.ndarray], delay: int) -> np.ndarray:
    """The number after ``known``, of which the last 2d + 1 are used; their slopes follow from those d before them."""

    def slope(present: np.ndarray, delayed: np.ndarray) -> np.ndarray:
        return 0.2 * delayed / (1.0 + delayed**10) - 0.1 * present

    present, left, right = known[-1], known[-1 - delay], known[-delay]
    bend = slope(left, known[-1 - 2 * delay]) - slope(right, known[-2 * delay])
    middle = (left + right) / 2.0 + bend / 8.0
    first = slope(present, left)
    second = slope(present + first / 2.0, middle)
    third = slope(present + second / 2.0, middle)
    return present + (first + 2.0 * second + 2.0 * third + slope(present + third, right)) / 6.0
