"""Temporal order: name the order of a few symbols that were read far apart, among distractors.

Experiment 6 of Hochreiter and Schmidhuber (1997, "Long short-term memory", section 5.6)::

    inputs    E | distractors, and X or Y at S of the steps | B
    targets                                                 | which of the 2^S orders of X and Y it was

With S = 2 (four classes) the signals come at random steps from 10 to 20 and from 50 to 60 hundredths of T, with S = 3
(eight classes) from 10 to 20, 33 to 43 and 66 to 76. Published are T = 100 to 110, drawn at random; here T is fixed. A
test sequence goes on with distractors, and asks again, by B, at the end of every T steps.

The symbols are 0 to 3 for the distractors, 4 for X, 5 for Y, 6 for E and 7 for B. A state that makes no error has S
bits at least, at every length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memsweep.config.core.fields import setting
from memsweep.data.api import NOTHING, TrackedStates
from memsweep.registry import register_task

DISTRACTORS, X, Y, START, TRIGGER = 4, 4, 5, 6, 7
FROM = {2: (10, 50), 3: (10, 33, 66)}
"""First hundredth of T of each signal; it comes within ten."""


@register_task("temporal_order")
class TemporalOrder(TrackedStates):
    """Name the order of two or three signals at the end; cross entropy of the class, at that step alone."""

    inputs = 8

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How many signals are kept, over how many steps."""

        horizon: int = setting(100, "steps of a sequence in training, T", at_least=10, at_most=1_000_000)
        signals: int = setting(
            2, "symbols whose order is asked, S: 2 (four classes) or 3 (eight)", at_least=2, at_most=3
        )
        test_factor: int = setting(4, "length of a test sequence, in horizons", at_least=1)

    @property
    def outputs(self) -> int:
        return 2**self.config.signals

    def sequences(self, rng: np.random.Generator, size: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        horizon, signals = self.horizon, self.config.signals
        read_BT = rng.integers(0, DISTRACTORS, (size, steps))
        read_BT[:, 0] = START
        read_BT[:, horizon - 1 :: horizon] = TRIGGER
        ordered_BS = rng.integers(0, 2, (size, signals))
        first_S = np.array(FROM[signals]) * horizon // 100
        end_S = (np.array(FROM[signals]) + 10) * horizon // 100
        steps_BS = rng.integers(first_S, np.maximum(end_S, first_S + 1), (size, signals))
        np.put_along_axis(read_BT, steps_BS, X + ordered_BS, 1)
        asked_BT = np.full((size, steps), NOTHING)
        asked_BT[:, horizon - 1 :: horizon] = ordered_BS @ (1 << np.arange(signals))[:, None]
        return read_BT, asked_BT

    def answers(self, symbols: list[int]) -> list[int]:
        """Counts an order as a binary number, the first signal as its last digit."""
        number, digit, found = 0, 1, []
        for symbol in symbols:
            if symbol in (X, Y):
                number, digit = number + digit * (symbol == Y), 2 * digit
            found.append(number if symbol == TRIGGER else NOTHING)
        return found
