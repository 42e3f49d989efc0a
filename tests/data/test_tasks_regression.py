"""The adding problem and memory capacity: the laws of their inputs, their baselines, and what a capacity counts."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from memsweep import registry
from memsweep.config.schema.trial import TrainingConfig, TrialConfig
from memsweep.data.api import Batch, Task
from memsweep.streams import TRAIN, Stream
from memsweep.trial import run_trial
from paths import ROOT

registry.discover(ROOT)


def task(name: str, **fields: object) -> Task:
    made = registry.get(registry.TASK, name)
    return made(made.Config(**fields))


@pytest.mark.parametrize("horizon", [2, 7, 50])
def test_one_number_of_each_half_is_marked_and_the_baselines_are_those_of_its_law(horizon: int) -> None:
    adding, size = task("adding", horizon=horizon), 40_000
    batch = adding.draw(Stream(1, TRAIN), 0, size)
    marks = batch.inputs[..., 1]
    assert torch.equal(marks[:, : horizon // 2].sum(1), torch.ones(size, dtype=torch.float64))
    assert torch.equal(marks[:, horizon // 2 :].sum(1), torch.ones(size, dtype=torch.float64))
    least = size / horizon / 2
    assert all(count > least for count in marks.sum(0))  # every step of each half is marked about as often
    blind = torch.ones(1, size, horizon, 1, dtype=torch.float64)
    last = batch.inputs[:, -1]
    seeing = blind.clone()
    seeing[0, :, -1, 0] = torch.where(last[:, 1] == 1.0, 0.5 + last[:, 0], 1.0)
    for answers, loss in ((blind, adding.chance()), (seeing, adding.memoryless_loss())):
        assert adding.loss(answers, batch).item() == pytest.approx(loss, rel=0.03)  # 5 standard deviations


def test_an_answer_is_right_within_the_published_distance() -> None:
    adding = task("adding", horizon=4)
    batch = adding.draw(Stream(1, TRAIN), 0, 4)
    answers = batch.targets + torch.tensor([0.0, 0.039, -0.041, 1.0]).view(4, 1, 1)
    assert adding.metrics(answers.unsqueeze(0), batch)["accuracy"].tolist() == [0.5]


def test_capacity_is_the_number_of_delays_that_are_repeated() -> None:
    """A delay line of n states repeats n of them; half of a number's variance counts half."""
    made = task("memory_capacity", horizon=400, delays=10)
    batch = made.draw(Stream(2, TRAIN), 0, 200)
    assert batch.inputs.var().item() == pytest.approx(1.0, rel=0.02)
    line = batch.targets.clone()
    line[..., 4:] = 0.0
    answers = torch.stack([batch.targets, line, line * 0.5])
    found = made.metrics(answers, batch)["capacity"]
    assert found.tolist() == pytest.approx([10.0, 4.0, 3.0], abs=0.05)
    assert made.loss(answers, batch).tolist() == pytest.approx([0.0, 0.6, 0.7], abs=0.01)
    no_history = Batch(batch.inputs, batch.targets.clone())
    no_history.targets[:, :10] = 7.0  # steps with too little past count for nothing
    assert torch.equal(made.metrics(answers, no_history)["capacity"], found)


@pytest.mark.more
def test_a_linear_recurrence_holds_at_most_a_number_for_each_state() -> None:
    """Jaeger's bound, after a short training."""
    model = registry.get(registry.MODEL, "dense_rnn").Config(width=4, activation="linear")
    training = TrainingConfig(seeds=2, steps=800, batch_size=32, learning_rate=0.02, validate_every=400)
    capacity = task("memory_capacity", horizon=60, delays=12).config
    trial = TrialConfig(task=capacity, model=model, training=training)
    trial = dataclasses.replace(trial, perturbation=dataclasses.replace(trial.perturbation, balls=()))
    found = run_trial(trial).tables["replicas"]["test_metric"]
    assert (found < 4.05).all()
    assert (found > 1.5).all()
