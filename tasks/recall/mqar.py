"""Multi-query associative recall (MQAR): read keys with their values, then answer every key with its value.

The generator of Arora et al. (2023, arXiv 2312.04927; HazyResearch/zoology, ``multiquery_ar.py``), for P pairs and a
vocabulary of V symbols: keys are 1 ... V/2 - 1, values V/2 ... V - 1, and all those of a sequence are distinct::

    inputs    k1 v1 | k2 v2 | ... | kP vP | fillers, and each key once, at an even step
    targets                                 its value where a key is

The n-th even step after the pairs gets a query with a weight of n^(a-1), without replacement: with a near 0 most keys
are asked soon (a power law, as of repeated bigrams in text), with a = 1 all steps are equal. The published fillers are
drawn from all symbols, so that some are keys, and bind a sequence's key to another value before it is asked. Ours are
values, or the blank 0: no filler overwrites a pair.

Three harder forms are fields. Of P pairs, ``updates`` many are read again with another value, which is the one that
counts (``forgetting_mqar.py`` of the same repository). ``noise_pairs`` many pairs of symbols of an alphabet of their
own lie among those of keys and values (noisy recall: Poli et al., 2024, arXiv 2403.17844, MAD). And a sequence
may have several ``segments`` after one another, each with pairs of its own: a key may come again, with another value.

A state that makes no error tells all maps of P fixed keys to distinct values apart: it has log2((V/2)! / (V/2 - P)!)
bits at least, in every form.

Letters: B batch (of segments), T time, V vocabulary, P pairs, U updates, S slots of two steps before the queries.
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
        segments: int = setting(1, "parts of a sequence, of equal length, each with pairs of its own", at_least=1)
        pairs: int = setting(8, "keys with their values, P", at_least=1)
        vocabulary: int = setting(
            64, "symbols, V: even; half are values, all others but the blank are keys", at_least=4, at_most=30_000
        )
        updates: int = setting(0, "keys of a segment that are read again with another value, which counts", at_least=0)
        noise_pairs: int = setting(0, "pairs of noise symbols among the pairs of a segment", at_least=0)
        noise_symbols: int = setting(16, "kinds of noise, where there is some", at_least=1, at_most=2_000)
        power: float = setting(0.01, "exponent a of the law of the queries' steps", above=0.0, at_most=1.0)
        filler: str = setting(
            "values", "what is read between queries: values (random ones) or blank", choices=("values", "blank")
        )

        def __post_init__(self) -> None:
            if problems := list(_problems(self)):
                raise ValueError("; ".join(problems))

    @property
    def inputs(self) -> int:
        return self.config.vocabulary + (self.config.noise_symbols if self.config.noise_pairs else 0)

    @property
    def outputs(self) -> int:
        return self.config.vocabulary // 2

    def sequences(self, rng: np.random.Generator, size: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        segments = self.config.segments
        read_BT, asked_BT = self._segments(rng, size * segments, steps // segments)
        return read_BT.reshape(size, steps), asked_BT.reshape(size, steps)

    def _segments(self, rng: np.random.Generator, size: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        pairs, values = self.config.pairs, self.outputs
        keys_BP = 1 + _distinct(rng, size, values - 1, pairs)
        values_BP = _distinct(rng, size, values, pairs)
        read_BT = np.full((size, steps), BLANK)
        asked_BT = np.full((size, steps), NOTHING)
        if self.config.filler == "values":
            read_BT[:] = values + rng.integers(0, values, read_BT.shape)
        told_BS2 = self._told(rng, keys_BP, values_BP)
        first = 2 * told_BS2.shape[1]
        read_BT[:, :first] = told_BS2.reshape(size, first)
        places = np.arange(1, (steps - first) // 2 + 1, dtype=np.float64)
        steps_BP = first + 2 * _weighted(rng, size, places ** (self.config.power - 1.0), pairs)
        np.put_along_axis(read_BT, steps_BP, keys_BP, 1)
        np.put_along_axis(asked_BT, steps_BP, values_BP, 1)
        return read_BT, asked_BT

    def _told(self, rng: np.random.Generator, keys_BP: np.ndarray, values_BP: np.ndarray) -> np.ndarray:
        """The symbols before the queries, two to a slot; updates change ``values_BP``."""
        values, updates = self.outputs, self.config.updates
        told_BS2 = np.stack([keys_BP, values + values_BP], -1)
        if updates:
            again_BU = _distinct(rng, len(keys_BP), self.config.pairs, updates)
            old_BU = np.take_along_axis(values_BP, again_BU, 1)
            np.put_along_axis(values_BP, again_BU, (old_BU + rng.integers(1, values, again_BU.shape)) % values, 1)
            updated = (np.take_along_axis(each_BP, again_BU, 1) for each_BP in (keys_BP, values + values_BP))
            told_BS2 = np.concatenate([told_BS2, np.stack(list(updated), -1)], 1)
        if self.config.noise_pairs:
            shape = len(keys_BP), told_BS2.shape[1] + self.config.noise_pairs, 2
            slots_BS = np.sort(_distinct(rng, *shape[:2], told_BS2.shape[1]), axis=1)
            quiet_BS2, told_BS2 = told_BS2, self.config.vocabulary + rng.integers(0, self.config.noise_symbols, shape)
            np.put_along_axis(told_BS2, slots_BS[..., None], quiet_BS2, 1)
        return told_BS2

    def answers(self, symbols: list[int]) -> list[int]:
        """A dictionary of the pairs of a segment, asked at every later key."""
        config, found = self.config, list[int]()
        first, length = 2 * (config.pairs + config.updates + config.noise_pairs), self.horizon // config.segments
        known: dict[int, int] = {}
        for step, (symbol, following) in enumerate(zip(symbols, [*symbols[1:], BLANK], strict=True)):
            place = step % length
            known = {} if place == 0 else known
            if place < first and place % 2 == 0:
                known[symbol] = following - self.outputs
            asked = place >= first and symbol in known
            found.append(known[symbol] if asked else NOTHING)
        return found


def _problems(config: Any) -> Iterator[str]:
    if config.vocabulary % 2:
        yield f"task.vocabulary is {config.vocabulary}, and must be even: half of the symbols are values"
    if config.pairs > config.vocabulary // 2 - 1:
        yield (
            f"task.pairs is {config.pairs}, but a vocabulary of {config.vocabulary} has {config.vocabulary // 2 - 1} "
            f"keys: use a task.vocabulary of at least {2 * config.pairs + 2}"
        )
    if config.updates > config.pairs:
        yield f"task.updates is {config.updates}, and must be at most task.pairs, {config.pairs}: a key is updated once"
    least = 2 * (2 * config.pairs + config.updates + config.noise_pairs)
    if config.horizon % (2 * config.segments) or config.horizon < least * config.segments:
        yield (
            f"task.horizon is {config.horizon}, and must be a multiple of {2 * config.segments} and at least "
            f"{least * config.segments} with task.pairs {config.pairs}, updates {config.updates}, noise_pairs "
            f"{config.noise_pairs} and segments {config.segments}: a segment has two steps for each of them, and two "
            "for each query"
        )


def _distinct(rng: np.random.Generator, size: int, count: int, chosen: int) -> np.ndarray:
    """For each of ``size`` sequences, ``chosen`` of the numbers 0 ... ``count - 1`` in a random order."""
    return rng.permuted(np.tile(np.arange(count), (size, 1)), axis=1)[:, :chosen]


def _weighted(rng: np.random.Generator, size: int, weights: np.ndarray, chosen: int) -> np.ndarray:
    """The same with a weight for each number, without replacement: the first of exponential times with these rates."""
    return np.argsort(rng.exponential(size=(size, len(weights))) / weights, axis=1)[:, :chosen]
