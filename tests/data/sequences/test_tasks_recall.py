"""Recall: queries, fillers and distances of MQAR, and the layouts of the other tasks."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from memsweep import registry, testing
from memsweep.data.api import NOTHING, MarkedSequences
from memsweep.streams import TEST, TRAIN, Stream
from paths import ROOT

registry.discover(ROOT)


def task(name: str, **fields: object) -> MarkedSequences:
    made = registry.get(registry.TASK, name)
    return made(made.Config(**fields))


def drawn(made: MarkedSequences, size: int) -> list[tuple[list[int], list[int]]]:
    batch = made.draw(Stream(3, TRAIN), 1, size)
    return list(zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True))


class TestBlankFillers(testing.TaskSuite):
    """The whole suite, for MQAR in the form that the published docstring shows."""

    task = "mqar"
    config = registry.get(registry.TASK, "mqar").Config(horizon=16, pairs=2, vocabulary=12, filler="blank", power=1.0)


@pytest.mark.parametrize("filler", ["values", "blank"])
def test_every_key_of_mqar_is_asked_once_and_no_filler_overwrites_a_pair(filler: str) -> None:
    made = task("mqar", horizon=32, pairs=5, vocabulary=16, filler=filler)
    for read, asked in drawn(made, 50):
        keys, values = read[0:10:2], read[1:10:2]
        assert len({*keys, *values}) == 10
        assert all(1 <= key <= 7 for key in keys)
        assert all(8 <= value <= 15 for value in values)
        marked = {step: label for step, label in enumerate(asked) if label != NOTHING}
        assert all(step >= 10 and step % 2 == 0 for step in marked)
        assert sorted(read[step] for step in marked) == sorted(keys)
        assert {read[step]: label + 8 for step, label in marked.items()} == dict(zip(keys, values, strict=True))
        fillers = [symbol for step, symbol in enumerate(read) if step >= 10 and step not in marked]
        assert all(symbol >= 8 if filler == "values" else symbol == 0 for symbol in fillers)


class TestAllFormsOfMQAR(testing.TaskSuite):
    """The whole suite, for segments with updates and noise."""

    task = "mqar"
    config = registry.get(registry.TASK, "mqar").Config(
        horizon=60, pairs=3, vocabulary=10, updates=2, noise_pairs=4, noise_symbols=3, segments=2
    )


def test_segments_updates_and_noise_of_mqar_are_where_they_belong() -> None:
    """Read as a person would, from the layout: the last value of a key counts, and noise has its own alphabet."""
    made = task(
        "mqar", horizon=64, pairs=4, vocabulary=12, updates=2, noise_pairs=3, noise_symbols=5, segments=2, power=0.5
    )
    assert made.inputs == 17
    places, rebound = set(), 0
    for read, asked in drawn(made, 300):
        first_values = []
        for start in (0, 32):
            told = [(read[step], read[step + 1]) for step in range(start, start + 18, 2)]
            noise = [slot for slot, pair in enumerate(told) if pair[0] >= 12]
            assert len(noise) == 3
            assert all(12 <= symbol < 17 for slot in noise for symbol in told[slot])
            places.add(tuple(noise))
            pairs = [pair for pair in told if pair[0] < 12]
            before, after = dict(pairs[:4]), dict(pairs[4:])
            assert len(before) == len(set(before.values())) == 4
            assert after.keys() <= before.keys()
            assert len(after) == 2
            assert all(after[key] != before[key] for key in after)
            marked = {step: asked[step] + 6 for step in range(start, start + 32) if asked[step] != NOTHING}
            assert min(marked) >= start + 18
            assert {read[step]: value for step, value in marked.items()} == before | after
            first_values.append(before)
        one, other = first_values
        rebound += any(one[key] != other[key] for key in one.keys() & other.keys())
    assert len(places) > 80  # of the 84 that there are
    assert rebound > 200


@pytest.mark.parametrize("power", [0.01, 0.5, 1.0])
def test_the_steps_of_the_queries_follow_the_published_law(power: float) -> None:
    """Of one pair: n^(a-1), normalized, over the even steps."""
    made, size = task("mqar", horizon=22, pairs=1, vocabulary=8, power=power), 20_000
    asked = np.array([labels for _, labels in drawn(made, size)])
    counts = (asked != NOTHING).sum(0)[2::2]
    law = np.arange(1, 11) ** (power - 1.0)
    expected = size * law / law.sum()
    assert np.abs((counts - expected) / np.sqrt(expected)).max() < 4.5
    assert counts.sum() == size


def test_a_state_of_mqar_tells_all_maps_of_its_keys_apart() -> None:
    """The bound: contexts of the same keys whose answers differ somewhere need different states."""
    made = task("mqar", horizon=12, pairs=3, vocabulary=10)
    contexts = {
        tuple(made.answers([1, 5 + a, 2, 5 + b, 3, 5 + c, 1, 0, 2, 0, 3, 0])) for a, b, c in permutations(range(5), 3)
    }
    assert len(contexts) == math.factorial(5) // math.factorial(2)


def test_sizes_of_mqar_that_do_not_fit_are_all_named() -> None:
    with pytest.raises(ValueError, match="pairs is 40") as refused:
        task("mqar", horizon=63, pairs=40, vocabulary=65, updates=41, noise_pairs=9, segments=2)
    for words in (
        "vocabulary is 65, and must be even",
        "has 31 keys",
        "task.vocabulary of at least 82",
        "must be at most task.pairs, 40",
        "a multiple of 4 and at least 520",
    ):
        assert words in str(refused.value)


def test_selective_copying_asks_for_the_symbols_in_their_order() -> None:
    made = task("selective_copying", noise=9, length=4, symbols=3)
    assert (made.horizon, made.inputs, made.outputs) == (17, 5, 3)
    places = set()
    for read, asked in drawn(made, 200):
        kept = [(step, symbol - 1) for step, symbol in enumerate(read[:13]) if symbol]
        assert read[13:] == [4] * 4
        assert asked == [NOTHING] * 13 + [symbol for _, symbol in kept]
        places |= {tuple(step for step, _ in kept)}
    assert len(places) > 150  # of the 715 that there are


def test_induction_heads_ask_for_what_followed_the_first_mark() -> None:
    made = task("induction_heads", horizon=8, symbols=3)
    firsts = set()
    for read, asked in drawn(made, 200):
        assert read.count(3) == 2
        assert read[-1] == 3
        first = read.index(3)
        assert asked == [NOTHING] * 7 + [read[first + 1]]
        firsts.add(first)
    assert firsts == set(range(6))


class TestThreeSignals(testing.TaskSuite):
    """The whole suite, for the temporal order of three signals."""

    task = "temporal_order"
    config = registry.get(registry.TASK, "temporal_order").Config(signals=3, horizon=30)


@pytest.mark.parametrize(("signals", "ranges"), [(2, [(10, 20), (50, 60)]), (3, [(10, 20), (33, 43), (66, 76)])])
def test_temporal_order_has_its_signals_in_the_published_ranges(signals: int, ranges: list[tuple[int, int]]) -> None:
    made = task("temporal_order", signals=signals)
    places: list[set[int]] = [set() for _ in ranges]
    classes = {}
    for read, asked in drawn(made, 1000):
        assert (read[0], read[-1], len(read)) == (6, 7, 100)
        signal_steps = [step for step, symbol in enumerate(read) if symbol in (4, 5)]
        for seen, step in zip(places, signal_steps, strict=True):
            seen.add(step)
        assert asked[:-1] == [NOTHING] * 99
        classes[tuple(read[step] for step in signal_steps)] = asked[-1]
    assert places == [set(range(*each)) for each in ranges]  # that one of ten is missed has a chance of e^-105
    assert sorted(classes.values()) == list(range(2**signals))


@pytest.mark.parametrize("horizon", [10, 11, 29])
def test_a_test_of_temporal_order_asks_again_at_every_multiple_of_the_length(horizon: int) -> None:
    made = task("temporal_order", horizon=horizon, signals=3)
    batch = made.draw(Stream(3, TEST), 0, 40)
    assert batch.inputs.shape == (40, 4 * horizon)
    for read, asked in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert [step + 1 for step, label in enumerate(asked) if label != NOTHING] == [
            times * horizon for times in (1, 2, 3, 4)
        ]
        assert len({label for label in asked if label != NOTHING}) == 1
        assert sum(symbol in (4, 5) for symbol in read) == 3


class TestStackedPasses(testing.TaskSuite):
    """The whole suite, for pairs that are read twice."""

    task = "stacked_mqar"
    config = registry.get(registry.TASK, "stacked_mqar").Config(pairs=3, passes=2, vocabulary=10)


def test_a_step_of_stacked_mqar_is_a_pair_or_a_key() -> None:
    made = task("stacked_mqar", pairs=4, passes=2, vocabulary=12)
    assert (made.horizon, made.inputs, made.outputs) == (12, 12, 6)
    batch = made.draw(Stream(3, TRAIN), 1, 200)
    orders = set()
    for read, asked in zip(batch.inputs, batch.targets.tolist(), strict=True):
        marks = [step.nonzero().flatten().tolist() for step in read]
        assert read.sum() == 20  # eight pairs and four keys, of ones
        first, second = marks[:4], marks[4:8]
        assert sorted(first) == sorted(second)
        pairs = dict(first)
        assert len(pairs) == len(set(pairs.values())) == 4
        assert all(1 <= key < 6 <= value for key, value in pairs.items())
        assert sorted(key for (key,) in marks[8:]) == sorted(pairs)
        assert asked == [NOTHING] * 8 + [pairs[key] - 6 for (key,) in marks[8:]]
        orders.add(tuple(second.index(pair) for pair in first))
    assert len(orders) == 24


def test_sizes_of_stacked_mqar_that_do_not_fit_are_all_named() -> None:
    odd, many = registry.get(registry.TASK, "stacked_mqar").Config(pairs=9, vocabulary=17).problems()
    assert "vocabulary is 17, and must be even" in odd
    assert "use a vocabulary of at least 20" in many
