"""Next-symbol prediction on a random Markov source: language modelling with a known answer.

The loss of a recurrent language model is the sum over the steps of -log P(x_{t+1} | x_1 ... x_t). The source is a
stationary Markov chain of order k over A symbols, so the right probabilities, the entropy rate and the loss of a model
that ignores its input are known exactly.

Letters: B batch, T time (horizon), A symbols, H = A^k histories of k symbols, the latest one counting fastest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy  # its parts are imported when they are used
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from memsweep.config.core.fields import setting
from memsweep.data.api import Batch, Stream, Task, summed_cross_entropy
from memsweep.registry import register_task

HISTORIES = 1024  # at most: the stationary law is the solution of so many linear equations
LEAST = 1e-3  # uniform share of every law: any symbol can follow any history, so there is one stationary law


@dataclass(frozen=True)
class Source:
    """A stationary Markov chain of order k.

    Attributes:
        table: P(next symbol | history), ``[H, A]``.
        prefixes: for j = 0 ... k, the stationary law of j symbols in a row, ``[A^j]``.
    """

    table: np.ndarray
    prefixes: tuple[np.ndarray, ...]

    def conditional(self, seen: int) -> np.ndarray:
        """P(next symbol | the last min(seen, k) symbols): ``[A^min(seen, k), A]``."""
        order = len(self.prefixes) - 1
        if seen >= order:
            return self.table
        following = self.prefixes[seen + 1].reshape(-1, self.table.shape[1])
        return following / following.sum(-1, keepdims=True)

    def entropy(self, seen: int) -> float:
        """Mean entropy of the next symbol given the ``seen`` symbols before it, in nats."""
        law = self.prefixes[min(seen, len(self.prefixes) - 1)]
        return float(law @ scipy.special.entr(self.conditional(seen)).sum(-1))


@functools.lru_cache(maxsize=16)
def _source(symbols: int, order: int, concentration: float, seed: int) -> Source:
    histories = symbols**order
    rng = Stream(seed, "table of the source").generator()
    table = (1.0 - LEAST) * rng.dirichlet(np.full(symbols, concentration), histories) + LEAST / symbols
    # history h, then symbol a: the history (h A + a) mod H
    move = np.zeros((histories, histories))
    np.add.at(move, (np.arange(histories)[:, None], _following(histories, symbols)), table)
    # the stationary law: law (move - 1) = 0, with one equation replaced by "the sum is 1"
    equations = move.T - np.eye(histories)
    equations[-1] = 1.0
    law = np.linalg.solve(equations, np.eye(histories)[-1])
    law = np.maximum(law, 0.0) / np.maximum(law, 0.0).sum()
    prefixes = [law.reshape(symbols**length, -1).sum(-1) for length in range(order + 1)]
    return Source(table, tuple(prefixes))


def _following(histories: int, symbols: int) -> np.ndarray:
    return (np.arange(histories)[:, None] * symbols + np.arange(symbols)) % histories


@register_task("markov_source")
class MarkovSource(Task):
    """Predict every next symbol of a random Markov source; cross entropy, summed over the steps."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """A random Markov source: how many symbols, how long its memory, how predictable."""

        horizon: int = setting(32, "predictions per sequence, T", at_least=2, at_most=100_000)
        symbols: int = setting(4, "symbols of the alphabet; inputs are one-hot", at_least=2, at_most=256)
        order: int = setting(2, "symbols before it on which a symbol depends, k", at_least=1, at_most=10)
        concentration: float = setting(
            0.3,
            "parameter of the Dirichlet law of each row of probabilities; small: one symbol is nearly sure, "
            "1: all laws are equally likely, large: near uniform, nothing to predict",
            at_least=1e-2,
            at_most=1e2,
        )
        source_seed: int = setting(0, "decides the table of probabilities", at_least=0, at_most=2**31 - 1)

        def problems(self) -> Iterable[str]:
            if self.symbols**self.order > HISTORIES:
                yield (
                    f"{self.symbols} symbols with order {self.order} make {self.symbols**self.order} histories; "
                    f"at most {HISTORIES} are allowed: lower symbols or order"
                )

    reports = ("bits_per_symbol",)

    @property
    def inputs(self) -> int:
        return self.config.symbols

    @property
    def outputs(self) -> int:
        return self.config.symbols

    @property
    def source(self) -> Source:
        """The chain that the config names."""
        config = self.config
        return _source(config.symbols, config.order, config.concentration, config.source_seed)

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """One-hot symbols 1 ... T as inputs ``[B, T, A]``, symbols 2 ... T+1 as targets ``[B, T]``."""
        source, symbols = self.source, self.config.symbols
        chance = stream.generator(index).random((size, self.horizon + 1))
        drawn = np.empty((size, self.horizon + 1), dtype=np.int64)
        history = np.zeros(size, dtype=np.int64)
        for t in range(self.horizon + 1):
            law = source.conditional(t)
            steps = law.cumsum(-1)[history % len(law)]
            drawn[:, t] = (chance[:, [t]] >= steps[:, :-1]).sum(-1)
            history = (history * symbols + drawn[:, t]) % len(source.table)
        read, wanted = torch.from_numpy(drawn[:, :-1]), torch.from_numpy(drawn[:, 1:].copy())
        return Batch(one_hot(read, symbols).to(torch.float64), wanted)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return summed_cross_entropy(outputs, batch.targets).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``bits_per_symbol``: cross entropy of a symbol in bits; smaller is better."""
        return {"bits_per_symbol": self.loss(outputs, batch) / (self.horizon * math.log(2.0))}

    def chance(self) -> float:
        """T times the entropy of one symbol: exact, because the source is stationary."""
        return self.horizon * self.source.entropy(0)

    def memoryless_loss(self) -> float:
        """T times the entropy of a symbol given the one before it."""
        return self.horizon * self.source.entropy(1)

    def best_loss(self) -> float:
        """Entropy of the targets given the inputs: T times the entropy rate, more at the first k - 1 steps."""
        return sum(self.source.entropy(seen) for seen in range(1, self.horizon + 1))

    def oracle(self, inputs: Tensor) -> Tensor:
        """ln P(x_{t+1} | x_1 ... x_t) for every symbol, by Bayes' rule on the joint law of k + 1 symbols."""
        source, symbols, order = self.source, self.config.symbols, self.config.order
        joint = source.prefixes[order].reshape((symbols,) * order + (1,)) * source.table.reshape(
            (symbols,) * (order + 1)
        )
        answer = torch.empty_like(inputs)
        for row, sequence in enumerate(inputs.argmax(-1).tolist()):
            for t in range(self.horizon):
                seen = tuple(sequence[max(0, t + 1 - order) : t + 1])
                # the joint law of len(seen) + 1 symbols in a row, at the symbols seen
                joined = joint.sum(tuple(range(order - len(seen))))[seen]
                answer[row, t] = torch.from_numpy(np.log(joined / joined.sum()))
        return answer
