"""Copying memory: the published layout, its baseline, and the levels of delays that vary."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from memsweep import registry, testing
from memsweep.data.api import Task
from memsweep.streams import TRAIN, Stream
from paths import ROOT

registry.discover(ROOT)
COPYING = registry.get(registry.TASK, "copying_memory")


def task(**fields: object) -> Task:
    return COPYING(COPYING.Config(**fields))


class TestVariableOneHot(testing.TaskSuite):
    """The whole suite, for the variant that differs most from the default."""

    task = "copying_memory"
    config = COPYING.Config(delay=8, length=4, symbols=4, encoding="one_hot", variable=True)


def test_the_layout_is_the_published_one() -> None:
    batch = task(delay=5, length=3, symbols=8).draw(Stream(1, TRAIN), 2, 50)
    assert batch.inputs.shape == (50, 11, 1)
    for read, wanted in zip(batch.inputs[..., 0].long().tolist(), batch.targets.tolist(), strict=True):
        said = read[:3]
        assert read == [*said, 0, 0, 0, 0, 9, 0, 0, 0]  # labels, T - 1 blanks, the cue, L blanks
        assert wanted == [0] * 8 + said
        assert all(1 <= symbol <= 8 for symbol in said)
    assert torch.unique(batch.targets).tolist() == list(range(9))


@pytest.mark.parametrize(("delay", "baseline"), [(200, 0.094520), (1000, 0.020387)])
def test_the_baseline_is_the_published_one(delay: int, baseline: float) -> None:
    made = task(delay=delay)
    assert made.memoryless_loss() == pytest.approx(baseline, abs=5e-7)
    assert made.memoryless_loss() == pytest.approx(10 * math.log(8) / (delay + 20), rel=1e-14)
    assert made.chance() == made.memoryless_loss()
    assert made.horizon == delay + 20


def test_the_accuracy_counts_symbols_and_no_blanks() -> None:
    made = task(delay=7, length=4)
    batch = made.draw(Stream(0, TRAIN), 0, 5)
    answers = torch.stack([made.oracle(batch.inputs)] * 3)  # leading dimension: all, half, nothing recalled
    answers[1, :, -2:] = 0.0
    answers[2] = 0.0
    answers[1:, ..., 0] += 1.0  # a blank where nothing is known
    found = made.metrics(answers, batch)["accuracy"]
    assert found.tolist() == pytest.approx([1.0, 0.5, 0.0])


def test_a_variable_delay_is_uniform_and_blanks_keep_the_length() -> None:
    made = task(delay=6, length=2, symbols=3, variable=True)
    batch = made.draw(Stream(0, TRAIN), 0, 6000)
    counts = np.zeros(7, dtype=int)
    for read, wanted in zip(batch.inputs[..., 0].long().tolist(), batch.targets.tolist(), strict=True):
        delay = read.index(4) - 1  # the cue comes this many steps after the last symbol, at step 1
        counts[delay] += 1
        said = read[:2]
        assert read == [*said, *[0] * (delay - 1), 4, *[0] * (2 + 6 - delay)]
        assert wanted == [0] * (2 + delay) + said + [0] * (6 - delay)
    assert counts[0] == 0
    assert np.abs(counts[1:] - 1000).max() < 5 * math.sqrt(6000 * 5 / 36)


def test_chance_of_a_variable_delay_is_the_entropy_of_enumerated_answers() -> None:
    delay, length, symbols = 4, 3, 2
    made = task(delay=delay, length=length, symbols=symbols, variable=True)
    law = np.zeros((made.horizon, symbols + 1))  # of the answer at each step, over all delays and symbols
    for kept in range(1, delay + 1):
        for said in itertools.product(range(1, symbols + 1), repeat=length):
            answer = [0] * (length + kept) + list(said) + [0] * (delay - kept)
            law[np.arange(made.horizon), answer] += 1 / (delay * symbols**length)
    entropy = -sum(share * math.log(share) for share in law.flatten() if share > 0)
    assert made.chance() == pytest.approx(entropy / made.horizon, rel=1e-12)
    assert made.chance() > made.memoryless_loss()
