"""Training until a step, and settings that turn on the way: pure prefixes of whole trainings."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import pandas as pd
import pytest
import torch

from engine import model_config, stacked, trial
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.training import TURNING, TrainingConfig, Turn
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError
from memsweep.learning.loop import train
from memsweep.learning.training.learner import Learner
from memsweep.learning.training.optimizer import merged_settings
from memsweep.models.base import Part
from memsweep.outcome import Outcome
from memsweep.streams import TRAIN, Stream
from memsweep.trial import TrialResult, run_trial

TRAINING = {
    "steps": 60,
    "batch_size": 16,
    "validation_size": 32,
    "validate_every": 5,
    "amplitude_penalty": 1e-2,
    "clip": 0.5,
}


@cache
def learned(**options: Any) -> Learner:
    training = TrainingConfig(**TRAINING | {"merge_redundant": False} | options)
    (ensemble,), task_loss = stacked(
        [model_config(width=3)], learning_rate=training.learning_rate, rows=lambda width: 8
    )
    return train([ensemble], task_loss, training)[0]


def turn(until: int, **settings: float) -> Turn:
    usual = TrainingConfig(**TRAINING)
    return Turn(until=until, **{name: getattr(usual, name) for name in TURNING} | settings)


def assert_same(one: TrialResult, other: TrialResult) -> None:
    """The same bits; nan is nan."""
    assert one.outcome == other.outcome
    pd.testing.assert_series_equal(pd.Series(one.summary), pd.Series(other.summary), check_exact=True)
    for name, table in one.tables.items():
        pd.testing.assert_frame_equal(table, other.tables[name], check_exact=True)


def with_training(config: TrialConfig, **options: Any) -> TrialConfig:
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **options))


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "plateau", "plateau_patience": 0, "train_size": 40},
        {"objective": "population", "dtype": "float32"},
        {"steps": 150, "validate_every": 1},  # of the validations, every second is in the history
    ],
)
def test_a_training_until_a_step_is_the_beginning_of_the_whole_one(options):
    whole, part = learned(**options), learned(**options | {"until": 35})
    known = [row for row in whole.history if row[0] <= 35]
    assert len(known) > 3
    for (step, *losses), (at, *others) in zip(known, part.history, strict=True):
        assert step == at
        torch.testing.assert_close(losses, others, rtol=0, atol=0, equal_nan=True)
    assert int(part.steps[0]) == 35
    assert int(whole.steps[0]) == options.get("steps", 60)
    assert int(part.best_step[0]) <= 35 < int(whole.best_step[0])
    samples = zip(part.criterion.samples, whole.criterion.samples, strict=False)
    assert all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in samples)


@pytest.mark.more
def test_a_trial_until_a_step_is_measured_and_says_that_it_was_stopped():
    config = trial()
    part = run_trial(with_training(config, until=30))
    assert part.outcome is Outcome.STOPPED_EARLY
    assert "training.until" in part.outcome.explanation
    assert part.summary["steps"] == 30
    assert part.tables["replicas"]["steps"].tolist() == [30, 30]
    assert part.tables["curves"]["error"].notna().all()
    whole = run_trial(config)
    assert (whole.outcome, whole.summary["steps"]) == (Outcome.DONE, 60)
    assert whole.summary["validation_loss"] < part.summary["validation_loss"]


SETTINGS = {"learning_rate": 0.05, "weight_decay": 0.3, "clip": 0.02, "amplitude_penalty": 0.5, "margin_penalty": 2.0}


@pytest.mark.parametrize("name", TURNING)
def test_each_setting_turns_at_its_step_and_not_before(name):
    """Up to the turn the training is that of the earlier settings, and afterwards it is neither's."""
    assert set(SETTINGS) == set(TURNING)
    other = {name: SETTINGS[name]}
    both = learned(turns=(turn(20),), **other)
    before, after = learned(until=20), learned(**other)
    losses = {step: float(loss[0]) for step, loss, _ in both.history}
    assert losses[20] == float(before.loss[0])
    assert not torch.equal(both.weights, after.weights)
    assert not torch.equal(both.weights, learned().weights)
    assert not torch.equal(both.weights, learned(turns=(turn(25),), **other).weights)


def test_turned_settings_follow_the_plain_recurrence():
    """Twelve steps in three stretches against torch's own optimizer, which goes on with other settings."""
    steps = (
        turn(4, learning_rate=0.02, weight_decay=0.1),
        turn(8, learning_rate=0.005, clip=0.05, amplitude_penalty=0.3),
    )
    options = TRAINING | {"steps": 12, "validate_every": 4, "schedule": "constant", "learning_rate": 0.03}
    (ensemble,), task_loss = stacked([model_config(width=3)], learning_rate=0.03)
    training = TrainingConfig(**options, turns=steps)
    (fast,) = train([ensemble], task_loss, training)
    model = type(ensemble.model)(
        model_config(width=3), ensemble.model.signature, Stream(0, "initial weights").generator()
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(12):
        now: Any = steps[0] if step < 4 else steps[1] if step < 8 else training
        optimizer.param_groups[0].update(lr=now.learning_rate, weight_decay=now.weight_decay)
        batch = task_loss.task.draw(Stream(0, TRAIN), step, training.batch_size)
        size = model.encoder_weight.square().sum() + model.readout_weight.square().sum()
        loss = task_loss.task.loss(model(batch.inputs), batch) + now.amplitude_penalty * size
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), now.clip)
        optimizer.step()
    named = ensemble.layout.named(fast.weights[0])
    for name, wanted in (("recurrent_weight", model.recurrent_weight), ("readout_weight", model.readout_weight)):
        torch.testing.assert_close(named[name][..., :3], wanted.detach(), rtol=1e-5, atol=1e-7)


def test_the_best_state_is_judged_by_the_penalty_of_today():
    """A state kept under no penalty has the least value; under a heavy one a smaller readout must win."""
    late = {"turns": (turn(30, amplitude_penalty=0.0),), "amplitude_penalty": 5.0, "learning_rate": 0.05}
    found = learned(**late)
    assert int(found.best_step[0]) > 30
    amplitudes = found.ensemble.layout.select(Part.ENCODER, Part.READOUT)
    squares = (found.best_weights[0] * amplitudes).square().sum()
    assert float(found.best[0]) == pytest.approx(float(found.best_loss[0] + 5.0 * squares), rel=1e-12)


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"until": 60}, ["until (60) must be smaller than steps (60)"]),
        ({"until": 33}, ["until (33) must be a multiple of validate_every (5)"]),
        ({"turns": (turn(20), turn(10))}, ["turns must end at larger and larger steps, got 20, 10"]),
        ({"turns": (turn(10), turn(10))}, ["larger and larger"]),
        ({"turns": (turn(60),)}, ["turns must end before the training does (step 60), got 60"]),
        ({"turns": (turn(30),), "until": 30}, ["before the training does (step 30), got 30"]),
        ({"turns": (turn(7), turn(10))}, ["turns must end at a multiple of validate_every (5), got 7"]),
        ({"until": 61, "turns": (turn(64),)}, ["smaller than steps", "until (61) must be a", "(step 60)", "got 64"]),
    ],
)
def test_ends_and_turns_that_cannot_be_are_refused_all_at_once(training, words):
    config = with_training(trial(training=TRAINING), **training)
    with pytest.raises(ConfigError) as refused:
        trial_from_dict(to_dict(config))
    text = str(refused.value)
    assert all(word in text for word in words), text


def test_stretches_are_as_few_as_they_are():
    training = TrainingConfig(**TRAINING, turns=(turn(10), turn(20), turn(30, clip=0.1)), until=45)
    assert merged_settings(training, 45) == (turn(20), turn(30, clip=0.1), turn(45))
    assert merged_settings(training, 25) == (turn(20), turn(25, clip=0.1))
    assert merged_settings(training, 15) == (turn(15),)
