"""Multi-query associative recall (MQAR): read keys with their values, then answer every key with its value.

The generator of Arora et al. (2023, arXiv 2312.04927; HazyResearch/zoology, ``multiquery_ar.py``), for P pairs and a
vocabulary of V symbols: keys are 1 ... V/2 - 1, values V/2 ... V - 1, and all those of a sequence are distinct::

    inputs    k1 v1 | k2 v2 | ... | kP vP | fillers, and each key once, at an even step
    targets                                 its value where a key is

The n-th even step after the pairs gets a query with a weight of n^(a-1), without replacement: with a near 0 most keys
are asked soon (a power law, as of repeated bigrams in text), with a = 1 all steps are equal. The published fillers are
drawn from all symbols, so that some are keys, and bind a sequence's key to another value before it is asked. Ours are
values, or the blank 0: no filler overwrites a pair.

A state that makes no error tells all maps of P fixed keys to distinct values apart: it has log2((V/2)! / (V/2 - P)!)
bits at least.

Letters: B batch, T time (horizon), V vocabulary, P pairs, S even steps after the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from memsweep.config.core.fields import setting
from memsweep.data.api import NOTHING, MarkedSequences
from memsweep.registry import register_task

BLANK = 0


@register_task("mqar")
class MQAR(MarkedSequences):
    """Answer each key with the value that was read after it; cross entropy of an answer, at the queries alone."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How many pairs are kept, and for how long."""

        horizon: int = setting(64, "steps of a sequence, T: even, and at least 4 for each pair", at_least=4)
        pairs: int = setting(8, "keys with their values, P", at_least=1)
        vocabulary: int = setting(
            64, "symbols, V: even; half are values, all others but the blank are keys", at_least=4, at_most=32_766
        )
        power: float = setting(0.01, "exponent a of the law of the queries' steps", above=0.0, at_most=1.0)
        filler: str = setting(
            "values", "what is read between queries: values (random ones) or blank", choices=("values", "blank")
        )

        def __post_init__(self) -> None:
            if problems := list(_problems(self)):
                raise ValueError("; ".join(problems))

    @property
    def inputs(self) -> int:
        return self.config.vocabulary

    @property
    def outputs(self) -> int:
        return self.config.vocabulary // 2

    def sequences(self, rng: np.random.Generator, size: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        pairs, values = self.config.pairs, self.outputs
        keys_BP = 1 + _distinct(rng, size, values - 1, pairs)
        values_BP = _distinct(rng, size, values, pairs)
        read_BT = np.full((size, steps), BLANK)
        asked_BT = np.full((size, steps), NOTHING)
        if self.config.filler == "values":
            read_BT[:] = values + rng.integers(0, values, read_BT.shape)
        read_BT[:, 0 : 2 * pairs : 2] = keys_BP
        read_BT[:, 1 : 2 * pairs : 2] = values + values_BP
        places = np.arange(1, steps // 2 - pairs + 1, dtype=np.float64)
        steps_BP = 2 * pairs + 2 * _weighted(rng, size, places ** (self.config.power - 1.0), pairs)
        np.put_along_axis(read_BT, steps_BP, keys_BP, 1)
        np.put_along_axis(asked_BT, steps_BP, values_BP, 1)
        return read_BT, asked_BT

    def answers(self, symbols: list[int]) -> list[int]:
        """A dictionary of the pairs, asked at every later key."""
        first = 2 * self.config.pairs
        known = dict(zip(symbols[0:first:2], symbols[1:first:2], strict=True))
        return [
            known[symbol] - self.outputs if step >= first and symbol in known else NOTHING
            for step, symbol in enumerate(symbols)
        ]


def _problems(config: Any) -> Iterator[str]:
    if config.vocabulary % 2:
        yield f"task.vocabulary is {config.vocabulary}, and must be even: half of the symbols are values"
    if config.pairs > config.vocabulary // 2 - 1:
        yield (
            f"task.pairs is {config.pairs}, but a vocabulary of {config.vocabulary} has {config.vocabulary // 2 - 1} "
            f"keys: use a task.vocabulary of at least {2 * config.pairs + 2}"
        )
    if config.horizon % 2 or config.horizon < 4 * config.pairs:
        yield (
            f"task.horizon is {config.horizon}, and must be even and at least {4 * config.pairs} with task.pairs "
            f"{config.pairs}: two steps for each pair, and two for each query"
        )


def _distinct(rng: np.random.Generator, size: int, count: int, chosen: int) -> np.ndarray:
    """For each of ``size`` sequences, ``chosen`` of the numbers 0 ... ``count - 1`` in a random order."""
    return rng.permuted(np.tile(np.arange(count), (size, 1)), axis=1)[:, :chosen]


def _weighted(rng: np.random.Generator, size: int, weights: np.ndarray, chosen: int) -> np.ndarray:
    """The same with a weight for each number, without replacement: the first of exponential times with these rates."""
    return np.argsort(rng.exponential(size=(size, len(weights))) / weights, axis=1)[:, :chosen]
