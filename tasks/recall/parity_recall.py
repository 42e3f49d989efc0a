"""Recall by parity: every key has two values, and the parity of a stream of bits says which of them is asked.

It asks for both halves of a hybrid in one answer: an associative memory, and a state that every bit changes. A
sequence has P keys, each with two values, and then slots of two steps: a bit, and a key or a blank::

    inputs    k1 a1 b1 | ... | kP aP bP | bit key-or-blank | bit key-or-blank | ...
    targets                                   aP or bP where a key is

The answer is a where an even number of ones was read so far, else b. Every key is asked once, at a slot of equal
chances. Symbols: 0 is the blank, 1 and 2 are the bits, then come the keys, then the values. All of a sequence's keys
are distinct, and the two values of a key are.

Who knows the pairs and not the parity is right in half of the queries. A state that makes no error tells the parities,
and all maps of P keys to two values, apart.

Letters: B batch, T time, V values, P pairs, S slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memsweep.config.core.fields import setting
from memsweep.data.api import NOTHING, MarkedSequences
from memsweep.registry import register_task

BLANK, ZERO, ONE = 0, 1, 2
FIRST_KEY = 3


@register_task("parity_recall")
class ParityRecall(MarkedSequences):
    """Answer each key with the one of its two values that a parity names; cross entropy at the queries alone."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How many keys are kept, and over how many bits."""

        horizon: int = setting(32, "steps of a sequence, T", at_least=5)
        pairs: int = setting(4, "keys of a sequence, each with two values, P", at_least=1)
        keys: int = setting(8, "kinds of keys", at_least=1, at_most=10_000)
        values: int = setting(8, "kinds of values, V", at_least=2, at_most=10_000)

        def __post_init__(self) -> None:
            if self.pairs > self.keys:
                raise ValueError(f"task.pairs is {self.pairs}, but there are {self.keys} keys: let task.keys be more")
            if (self.horizon - 3 * self.pairs) % 2 or self.horizon < 5 * self.pairs:
                raise ValueError(
                    f"task.horizon is {self.horizon}, and must be {5 * self.pairs} or an even number more: three steps "
                    "for each key with its values, and two for each query"
                )

    @property
    def inputs(self) -> int:
        return FIRST_KEY + self.config.keys + self.config.values

    @property
    def outputs(self) -> int:
        return self.config.values

    def sequences(self, rng: np.random.Generator, size: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        pairs, slots = self.config.pairs, (steps - 3 * self.config.pairs) // 2
        keys_BP = np.argsort(rng.random((size, self.config.keys)), 1)[:, :pairs]
        one_BP = rng.integers(0, self.config.values, (size, pairs))
        other_BP = (one_BP + rng.integers(1, self.config.values, (size, pairs))) % self.config.values
        first_value = FIRST_KEY + self.config.keys
        told_BP3 = np.stack([FIRST_KEY + keys_BP, first_value + one_BP, first_value + other_BP], -1)
        bits_BS = rng.integers(0, 2, (size, slots))
        slots_BP = np.argsort(rng.random((size, slots)), 1)[:, :pairs]
        parity_BP = np.take_along_axis(np.cumsum(bits_BS, 1) % 2, slots_BP, 1)
        read_BS2 = np.stack([ZERO + bits_BS, np.full_like(bits_BS, BLANK)], -1)
        asked_BS2 = np.full_like(read_BS2, NOTHING)
        np.put_along_axis(read_BS2[..., 1], slots_BP, FIRST_KEY + keys_BP, 1)
        np.put_along_axis(asked_BS2[..., 1], slots_BP, np.where(parity_BP, other_BP, one_BP), 1)
        nothing_BT = np.full((size, 3 * pairs), NOTHING)
        read_BT = np.concatenate([told_BP3.reshape(size, -1), read_BS2.reshape(size, -1)], 1)
        return read_BT, np.concatenate([nothing_BT, asked_BS2.reshape(size, -1)], 1)

    def answers(self, symbols: list[int]) -> list[int]:
        """A dictionary of pairs of values, and one bit."""
        first, first_value = 3 * self.config.pairs, FIRST_KEY + self.config.keys
        known = {symbols[at]: (symbols[at + 1], symbols[at + 2]) for at in range(0, first, 3)}
        parity, found = 0, [NOTHING] * first
        for symbol in symbols[first:]:
            parity ^= symbol == ONE
            found.append(known[symbol][parity] - first_value if symbol in known else NOTHING)
        return found
