"""Induction heads: answer a mark with the symbol that followed it the first time.

The task of Fu et al. (2022, arXiv 2212.14052) and of the Mamba paper (arXiv 2312.00752, section 4.1.2), for K symbols
and the mark K::

    inputs    random symbols | the mark | the answer | random symbols | the mark
    targets                                                           | the answer

The first mark is at a random step. Published are K = 16 and T = 256, and tests at other lengths, each of which is a
study of its own here. A state that makes no error has log2 K bits at least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memsweep.config.core.fields import setting
from memsweep.data.api import NOTHING, MarkedSequences
from memsweep.registry import register_task


@register_task("induction_heads")
class InductionHeads(MarkedSequences):
    """Repeat, at the second mark, the symbol after the first; cross entropy at the last step."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How long the symbol is kept, among how many others."""

        horizon: int = setting(64, "steps of a sequence, T", at_least=3)
        symbols: int = setting(16, "kinds of symbols, K", at_least=2, at_most=32_000)

    @property
    def inputs(self) -> int:
        return self.config.symbols + 1

    @property
    def outputs(self) -> int:
        return self.config.symbols

    def sequences(self, rng: np.random.Generator, size: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        mark = self.config.symbols
        read_BT = rng.integers(0, mark, (size, steps))
        first_B1 = rng.integers(0, steps - 2, (size, 1))
        asked_BT = np.full((size, steps), NOTHING)
        asked_BT[:, -1:] = np.take_along_axis(read_BT, first_B1 + 1, 1)
        np.put_along_axis(read_BT, first_B1, mark, 1)
        read_BT[:, -1] = mark
        return read_BT, asked_BT

    def answers(self, symbols: list[int]) -> list[int]:
        """Looks the first mark up."""
        return [NOTHING] * (len(symbols) - 1) + [symbols[symbols.index(self.config.symbols) + 1]]
