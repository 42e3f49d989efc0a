"""State tracking: groups and their words, flip-flops, and tests that are longer than training."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch

from memsweep import registry, testing
from memsweep.data.api import NOTHING, TrackedStates
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream
from paths import ROOT

registry.discover(ROOT)
SIZES = {"S3": 6, "A4": 12, "S4": 24, "A5": 60, "S5": 120}


def task(name: str, **fields: object) -> TrackedStates:
    made = registry.get(registry.TASK, name)
    return made(made.Config(**fields))


@pytest.mark.more
class TestA5(testing.TaskSuite):
    """The whole suite, for the smallest group that cannot be solved."""

    task = "word_problem"
    config = registry.get(registry.TASK, "word_problem").Config(group="A5", horizon=6)


@pytest.mark.parametrize(("group", "size"), SIZES.items())
def test_the_words_are_those_of_a_group(group: str, size: int) -> None:
    made = task("word_problem", group=group)
    assert (made.inputs, made.outputs) == (size, size)
    products = [made.answers([one, two])[1] for one, two in itertools.product(range(size), repeat=2)]
    rows = [products[size * one : size * one + size] for one in range(size)]
    assert rows[0] == list(range(size))  # the identity
    assert all(sorted(row) == list(range(size)) for row in rows)  # each element has an inverse on either side
    assert all(sorted(column) == list(range(size)) for column in zip(*rows, strict=True))
    some = range(0, size, max(1, size // 6))
    assert all(rows[rows[a][b]][c] == rows[a][rows[b][c]] for a, b, c in itertools.product(some, repeat=3))
    assert any(rows[a][b] != rows[b][a] for a, b in itertools.product(range(size), repeat=2))


@pytest.mark.more
def test_only_the_groups_of_five_things_have_no_solution() -> None:
    """Commutators of commutators lead to the identity in a group that can be solved, and to A5 in the others."""
    for group, last in {"S3": 1, "A4": 1, "S4": 1, "A5": 60, "S5": 60}.items():
        made = task("word_problem", group=group)
        size = made.inputs
        product = {(a, b): made.answers([a, b])[1] for a, b in itertools.product(range(size), repeat=2)}
        inverse = {a: b for (a, b), c in product.items() if c == 0}
        kept = set(range(size))
        for _ in range(3):
            swaps = {product[product[inverse[a], inverse[b]], product[a, b]] for a in kept for b in kept}
            while (more := {product[a, b] for a in swaps for b in swaps}) != swaps:
                swaps = more
            kept = swaps
        assert len(kept) == last


def test_parity_and_counters_sum_what_they_read() -> None:
    for made, modulus in ((task("parity"), 2), (task("modular_counter", modulus=7), 7)):
        batch = made.draw(Stream(0, TRAIN), 0, 20)
        assert torch.equal(batch.inputs.long().cumsum(1) % modulus, batch.targets.long())


@pytest.mark.parametrize(("name", "fields"), [("parity", {}), ("modular_counter", {"modulus": 3})])
def test_the_memoryless_loss_is_that_of_the_best_answer_to_one_symbol(name: str, fields: dict[str, int]) -> None:
    made = task(name, horizon=2, test_factor=2, **fields)
    pairs = Counter(
        pair
        for word in itertools.product(range(made.inputs), repeat=4)
        for pair in zip(word, made.answers(list(word)), strict=True)
    )
    read = Counter(symbol for symbol, label in pairs.elements())
    loss = sum(-count * math.log(count / read[symbol]) for (symbol, _), count in pairs.items()) / pairs.total()
    assert made.memoryless_loss() == pytest.approx(loss, rel=1e-12)


def test_test_sequences_are_longer_and_their_beginnings_are_tests_of_each_length() -> None:
    made = task("word_problem", horizon=8, test_factor=4)
    steps = {name: made.draw(Stream(0, name), 0, 3).inputs.shape[1] for name in (TRAIN, VALIDATION, TEST)}
    assert steps == {TRAIN: 8, VALIDATION: 8, TEST: 32}
    batch = made.draw(Stream(0, TEST), 0, 40)
    answer = made.oracle(batch.inputs)
    assert all(float(value) == 1.0 for value in made.metrics(answer, batch).values())
    answer[:, 8:] = -answer[:, 8:]  # wrong from the second T steps on
    assert [float(value) for value in made.metrics(answer, batch).values()] == [1.0, 0.5, 0.25]


@pytest.mark.parametrize("ignored", [0.0, 0.8])
def test_a_flip_flop_reads_what_was_written_last(ignored: float) -> None:
    made = task("flip_flop", horizon=20, ignored=ignored)
    batch, told = made.draw(Stream(5, TEST), 0, 500), Counter[int]()
    for read, asked in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert (read[0], read[18]) == (2, 3)
        assert asked[1::2] == [NOTHING] * 40
        for step in range(0, 80, 2):
            told[read[step]] += 1
            if read[step] == 3:
                written = max(before for before in range(0, step, 2) if read[before] == 2)
                assert asked[step] == read[step + 1] == read[written + 1]
            else:
                assert asked[step] == NOTHING
    free = 38 * 500  # neither the first instruction nor the one that must read
    assert told[4] / free == pytest.approx(ignored, abs=0.02)
    assert (told[2] - 500) / free == pytest.approx((1 - ignored) / 2, abs=0.02)


def test_an_odd_flip_flop_is_refused() -> None:
    with pytest.raises(ValueError, match="horizon is 7, and must be even"):
        task("flip_flop", horizon=7)
