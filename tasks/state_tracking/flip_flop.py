"""Flip-flop: remember the bit that was written last, through any number of bits to be ignored.

The language of Liu et al. (2023, arXiv 2306.00946): pairs of an instruction and a bit. The first writes; each other one
writes, reads or is to be ignored, with probabilities (1 - p)/2, (1 - p)/2 and p; published is p = 0.8. The symbols are
0 and 1 for the bits, 2 write, 3 read, 4 ignore. The bit after a read is the one that was written last, and is asked at
the instruction. The last instruction of the first T steps reads, as published.

A state that makes no error has at least one bit, at every length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memsweep.config.core.fields import setting
from memsweep.data.api import NOTHING, TrackedStates
from memsweep.registry import register_task

WRITE, READ, IGNORE = 2, 3, 4


@register_task("flip_flop")
class FlipFlop(TrackedStates):
    """Output the bit that was written last; cross entropy, at the reads alone."""

    inputs, outputs = 5, 2

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How much is to be ignored, and the lengths of sequences."""

        horizon: int = setting(64, "steps of a sequence in training, T: even", at_least=4)
        ignored: float = setting(0.8, "share of the instructions that ignore their bits, p", at_least=0.0, below=1.0)
        test_factor: int = setting(4, "length of a test sequence, in horizons", at_least=1)

        def __post_init__(self) -> None:
            if self.horizon % 2:
                raise ValueError(f"task.horizon is {self.horizon}, and must be even: each instruction has a bit")

    def sequences(self, rng: np.random.Generator, size: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        share = (1.0 - self.config.ignored) / 2.0
        told = rng.choice([WRITE, READ, IGNORE], (size, steps // 2), p=[share, share, self.config.ignored])
        told[:, 0], told[:, self.horizon // 2 - 1] = WRITE, READ
        bits = rng.integers(0, 2, told.shape)
        written = np.maximum.accumulate(np.where(told == WRITE, np.arange(told.shape[1]), 0), axis=1)
        bits = np.where(told == READ, np.take_along_axis(bits, written, 1), bits)
        asked = np.full((size, steps), NOTHING)
        asked[:, ::2] = np.where(told == READ, bits, NOTHING)
        return np.stack([told, bits], -1).reshape(size, steps), asked

    def answers(self, symbols: list[int]) -> list[int]:
        """Keeps one bit, pair by pair."""
        labels, kept = [], 0
        for told, bit in zip(symbols[::2], symbols[1::2], strict=True):
            labels += [kept if told == READ else NOTHING, NOTHING]
            kept = bit if told == WRITE else kept
        return labels
