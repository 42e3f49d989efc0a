"""Copying memory: the published layout, its baseline, and the levels of delays that vary."""

from __future__ import annotations

import math

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


class TestOneHot(testing.TaskSuite):
    """The whole suite, for the variant that differs most from the default."""

    task = "copying_memory"
    config = COPYING.Config(delay=4, length=10, symbols=4, encoding="one_hot")


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
