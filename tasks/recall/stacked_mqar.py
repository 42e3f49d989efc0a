"""Stacked multi-query associative recall: a key and its value are one step, and so no step separates the two.

The generator of HazyResearch/zoology, ``stacked_mqar.py``, for P pairs and a vocabulary of V symbols, of which 1 ...
V/2 - 1 are keys and V/2 ... V - 1 values, as in ``mqar``. A step has a vector of V numbers::

    inputs    a pair at each step: 1 at its key and at its value; all P pairs in a random order, and so for R passes
              each key once, in a random order: 1 at the key
    targets   its value where a key is alone

A model needs no memory of the step before, as it does in ``mqar``, to know what belongs together. Published are random
vectors for keys and values, and answers by their angle; here they are the unit vectors, and a class is answered.

A state that makes no error has log2((V/2)! / (V/2 - P)!) bits at least, as in ``mqar``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.data.api import NOTHING, Batch, MarkedSequences, Stream
from memsweep.registry import register_task


@register_task("stacked_mqar")
class StackedMQAR(MarkedSequences):
    """Answer each key with the value that was read with it; cross entropy of an answer, at the queries alone."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How many pairs are kept, and how often they are read."""

        pairs: int = setting(8, "keys with their values, P", at_least=1)
        passes: int = setting(1, "times that all pairs are read, R; a sequence has (R + 1) P steps", at_least=1)
        vocabulary: int = setting(
            64, "symbols, V: even; half are values, all others but one are keys", at_least=4, at_most=360
        )

        def problems(self) -> Iterable[str]:
            if self.vocabulary % 2:
                yield f"vocabulary is {self.vocabulary}, and must be even: half of the symbols are values"
            if self.pairs > self.vocabulary // 2 - 1:
                yield (
                    f"pairs is {self.pairs}, but a vocabulary of {self.vocabulary} has {self.vocabulary // 2 - 1} "
                    f"keys: use a vocabulary of at least {2 * self.pairs + 2}"
                )

    @property
    def horizon(self) -> int:
        return self.config.pairs * (self.config.passes + 1)

    @property
    def inputs(self) -> int:
        return self.config.vocabulary

    @property
    def outputs(self) -> int:
        return self.config.vocabulary // 2

    def sequences(self, rng: np.random.Generator, size: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """A key as its number, 1 ... V/2 - 1, and with the value v (0 ... V/2 - 1) beside it (1 + v) V/2 more."""
        pairs, half = self.config.pairs, self.outputs
        keys_BP = 1 + rng.permuted(np.tile(np.arange(half - 1), (size, 1)), axis=1)[:, :pairs]
        values_BP = rng.permuted(np.tile(np.arange(half), (size, 1)), axis=1)[:, :pairs]
        passes = (size, self.config.passes + 1, pairs)
        order_BT = rng.permuted(np.broadcast_to(np.arange(pairs), passes), axis=2).reshape(size, steps)
        keys_BT, values_BT = (np.take_along_axis(each_BP, order_BT, 1) for each_BP in (keys_BP, values_BP))
        query_T = np.arange(steps) >= steps - pairs
        return np.where(query_T, keys_BT, keys_BT + half * (1 + values_BT)), np.where(query_T, values_BT, NOTHING)

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """Vectors ``[B, T, V]`` and classes ``[B, T]``."""
        batch = super().draw(stream, index, size)
        codes_BT1, half = batch.inputs.long().unsqueeze(-1), self.outputs
        keys_BT1, values_BT1 = codes_BT1 % half, codes_BT1 // half - 1
        read_BTV = torch.zeros(*batch.inputs.shape, self.inputs, dtype=torch.float64)
        read_BTV.scatter_(-1, keys_BT1, 1.0)
        read_BTV.scatter_add_(-1, half + values_BT1.clamp(min=0), (values_BT1 >= 0).double())
        return Batch(read_BTV, batch.targets)

    def oracle(self, inputs: Tensor) -> Tensor:
        codes = [[self._code(step) for step in sequence] for sequence in inputs.tolist()]
        return super().oracle(torch.tensor(codes))

    def _code(self, step: list[float]) -> int:
        key, *value = (place for place, number in enumerate(step) if number)
        return key + sum((1 + place - self.outputs) * self.outputs for place in value)

    def answers(self, symbols: list[int]) -> list[int]:
        """A dictionary of the pairs, asked where a key is alone."""
        half, known = self.outputs, dict[int, int]()
        found = []
        for symbol in symbols:
            value, key = divmod(symbol, half)
            if value:
                known[key] = value - 1
            found.append(NOTHING if value else known[key])
        return found
