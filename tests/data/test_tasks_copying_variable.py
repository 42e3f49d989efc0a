"""Copying over delays that vary: the layout, what is counted, and the levels without memory."""

from __future__ import annotations

import math

import pytest
import torch

from memsweep import registry, testing
from memsweep.data.api import Task
from memsweep.streams import TRAIN, Stream
from paths import ROOT

registry.discover(ROOT)
COPYING = registry.get(registry.TASK, "copying_variable")


def task(**fields: object) -> Task:
    return COPYING(COPYING.Config(**fields))


class TestOneHot(testing.TaskSuite):
    """The whole suite, for the variant that differs most from the default."""

    task = "copying_variable"
    config = COPYING.Config(delay=4, length=10, symbols=4, encoding="one_hot")


def test_every_delay_below_the_longest_comes_and_nothing_counts_behind_the_answers() -> None:
    batch = task(delay=5, length=3).draw(Stream(1, TRAIN), 2, 200)
    assert batch.inputs.shape == (200, 10, 1)
    found = set()
    for read, wanted in zip(batch.inputs[..., 0].long().tolist(), batch.targets.tolist(), strict=True):
        delay = read.index(9) - 2
        found.add(delay)
        said, rest = read[:3], 4 - delay
        assert read == [*said, *[0] * (delay - 1), 9, *[0] * (3 + rest)]
        assert wanted == [*[0] * (3 + delay), *said, *[-1] * rest]
    assert found == {1, 2, 3, 4}


@pytest.mark.parametrize(("delay", "length", "symbols"), [(2, 3, 4), (5, 3, 8), (30, 10, 8)])
def test_levels_are_the_losses_of_models_that_know_no_symbol(delay: int, length: int, symbols: int) -> None:
    made = task(delay=delay, length=length, symbols=symbols)
    batch = made.draw(Stream(3, TRAIN), 0, 20_000)
    when = batch.targets > 0
    guess = torch.zeros(*when.shape, symbols + 1, dtype=torch.float64)
    guess[..., 0] = torch.where(when, -50.0, 50.0)
    assert made.loss(guess, batch).item() == pytest.approx(made.memoryless_loss(), rel=0.02)
    counted = (batch.targets >= 0).double()
    share = counted / counted.sum(-1, keepdim=True)
    asked = (when * share).sum(0) / share.sum(0)  # how probable a symbol is at each step, whatever was read
    by_step = torch.cat([(1 - asked).unsqueeze(-1), (asked / symbols).unsqueeze(-1).expand(-1, symbols)], -1).log()
    assert made.loss(by_step.clamp(min=-50).expand_as(guess), batch).item() == pytest.approx(made.chance(), rel=0.02)
    assert made.chance() >= made.memoryless_loss() * (1 - 1e-12)


def test_levels_of_the_longest_delays_need_no_table_of_all_steps() -> None:
    made = task(delay=100_000)
    assert 0 < made.memoryless_loss() < made.chance() < math.log(9)


def test_of_one_delay_it_is_copying_memory() -> None:
    fixed = registry.get(registry.TASK, "copying_memory")
    made = task(delay=2)
    assert made.memoryless_loss() == pytest.approx(fixed(fixed.Config(delay=1)).memoryless_loss(), rel=1e-12)
    assert made.chance() == pytest.approx(10 * math.log(8) / 21, rel=1e-12)


@pytest.mark.parametrize("delay", [2, 6, 30])
def test_accuracy_at_chance_is_that_of_the_best_answer_by_step(delay: int) -> None:
    made = task(delay=delay)
    targets = made.draw(Stream(3, TRAIN), 0, 20_000).targets
    counted = (targets >= 0).double()
    share = counted / counted.sum(-1, keepdim=True)
    symbol = ((targets > 0) * share).sum(0) / 8 > ((targets == 0) * share).sum(0)
    found = ((targets > 0) * symbol).sum().item() / (targets > 0).sum().item() / 8
    assert made.metric_levels()["accuracy"][1] == pytest.approx(found, abs=0.005)
