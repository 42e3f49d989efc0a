"""Selective copying: read symbols at random steps among noise, then output them in their order.

The task of the Mamba paper (Gu and Dao, 2023, arXiv 2312.00752, section 4.1.1), in the layout of its data generator,
for L symbols of K kinds and N steps of noise (0 is the noise, K+1 the cue)::

    inputs    L symbols at random steps among N steps of noise | L cues
    targets                                                    | the L symbols

Published are N = 4096, L = 16 and a vocabulary of 16, which is K = 14. The distances of the symbols are random, so a
recurrence that treats all inputs alike cannot tell what to keep. A state that makes no error has at least L log2 K
bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memsweep.config.core.fields import setting
from memsweep.data.api import NOTHING, MarkedSequences
from memsweep.registry import register_task

NOISE = 0


@register_task("selective_copying")
class SelectiveCopying(MarkedSequences):
    """Output the symbols that were read among noise; cross entropy of a symbol, at the cues alone."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How many symbols are kept, and among how much noise."""

        noise: int = setting(48, "steps of noise, N; a sequence has N + 2L steps", at_least=0, at_most=1_000_000)
        length: int = setting(8, "symbols to keep, L", at_least=1, at_most=10_000)
        symbols: int = setting(8, "kinds of symbols, K", at_least=2, at_most=32_000)

    @property
    def horizon(self) -> int:
        return self.config.noise + 2 * self.config.length

    @property
    def inputs(self) -> int:
        return self.config.symbols + 2

    @property
    def outputs(self) -> int:
        return self.config.symbols

    def sequences(self, rng: np.random.Generator, size: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        length, before = self.config.length, self.config.noise + self.config.length
        labels_BL = rng.integers(0, self.outputs, (size, length))
        steps_BL = np.sort(rng.permuted(np.tile(np.arange(before), (size, 1)), axis=1)[:, :length], axis=1)
        read_BT = np.full((size, steps), NOISE)
        np.put_along_axis(read_BT, steps_BL, 1 + labels_BL, 1)
        read_BT[:, before:] = self.config.symbols + 1
        asked_BT = np.full((size, steps), NOTHING)
        asked_BT[:, before:] = labels_BL
        return read_BT, asked_BT

    def answers(self, symbols: list[int]) -> list[int]:
        """A list of what was no noise, repeated from the first cue on."""
        cue = symbols.index(self.config.symbols + 1)
        kept = [symbol - 1 for symbol in symbols[:cue] if symbol != NOISE]
        return [NOTHING] * cue + kept
