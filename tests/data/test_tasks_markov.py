"""The Markov source: stationary, with the entropies that it claims."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from memsweep import registry
from memsweep.data.api import Task
from memsweep.streams import TRAIN, Stream
from paths import ROOT

registry.discover(ROOT)
MARKOV = registry.get(registry.TASK, "markov_source")


def task(**fields: object) -> Task:
    return MARKOV(MARKOV.Config(**fields))


def probability(source: object, sequence: tuple[int, ...]) -> float:
    """P of a sequence that is at least k symbols long, from the law of the first k and the table."""
    symbols, order = source.table.shape[1], len(source.prefixes) - 1

    def number(history: tuple[int, ...]) -> int:
        return sum(symbol * symbols**place for place, symbol in enumerate(reversed(history)))

    first = source.prefixes[order][number(sequence[:order])]
    steps = [source.table[number(sequence[t - order : t]), sequence[t]] for t in range(order, len(sequence))]
    return float(first * math.prod(steps))


@pytest.mark.parametrize(("symbols", "order"), [(2, 1), (3, 2), (2, 3)])
def test_entropies_are_those_of_the_enumerated_sequences(symbols: int, order: int) -> None:
    """Chance and best loss against a sum over all sequences of T + 1 symbols."""
    horizon = 5
    made = task(symbols=symbols, order=order, horizon=horizon, source_seed=order)
    laws = {s: probability(made.source, s) for s in itertools.product(range(symbols), repeat=horizon + 1)}
    assert sum(laws.values()) == pytest.approx(1.0, abs=1e-12)
    first = np.zeros(symbols)
    last = np.zeros(symbols)
    for sequence, law in laws.items():
        first[sequence[0]] += law
        last[sequence[-1]] += law
    np.testing.assert_allclose(first, last, atol=1e-12)  # stationary
    single = -float(np.sum(first * np.log(first)))
    joint = -sum(law * math.log(law) for law in laws.values())
    assert made.chance() == pytest.approx(horizon * single, rel=1e-11)
    assert made.best_loss() == pytest.approx(joint - single, rel=1e-11)  # the chain rule of entropy


def test_sequences_follow_the_law() -> None:
    made = task(symbols=3, order=2, horizon=7, concentration=1.0)
    inputs = made.draw(Stream(0, TRAIN), 0, 20_000).inputs.argmax(-1).numpy()
    for t in (0, 1, 4):  # a block of three symbols anywhere, the start included
        counts = np.bincount(inputs[:, t] * 9 + inputs[:, t + 1] * 3 + inputs[:, t + 2], minlength=27) / len(inputs)
        expected = np.array([probability(made.source, s) for s in itertools.product(range(3), repeat=3)])
        deviation = np.sqrt(expected * (1 - expected) / len(inputs))
        assert np.abs(counts - expected).max() < 5 * deviation.max()


def test_too_many_histories_are_a_problem_of_the_config() -> None:
    (sentence,) = MARKOV.Config(symbols=16, order=3).problems()
    assert "4096 histories" in sentence
    assert "at most 1024" in sentence
    assert not list(MARKOV.Config(symbols=32, order=2).problems())
