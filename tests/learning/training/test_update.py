"""The compiled step of the optimizer is torch's, for every replica by itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from engine import model_config, noise, stacked
from memsweep.config.schema.training import GroupConfig, GroupsConfig, TrainingConfig
from memsweep.learning.training.learner import Learner
from memsweep.learning.training.optimizer import rate_factor, settings_at
from memsweep.learning.training.update import CompiledUpdate, update, update_by_torch

WIDTHS = (8, 3, 5)
STEPS = 20
PLAIN: dict[str, Any] = {"steps": STEPS, "batch_size": 4, "validation_size": 4, "clip": 0.4}
CASES: dict[str, dict[str, Any]] = {
    "adamw": {"weight_decay": 0.1, "amplitude_penalty": 0.3},
    "adam": {"optimizer": "adam", "weight_decay": 0.1, "beta1": 0.3},
    "rmsprop": {"optimizer": "rmsprop", "weight_decay": 0.1, "alpha": 0.9, "schedule": "constant", "warmup": 3},
    "no clip": {"clip": 0.0, "amplitude_penalty": 0.0},
    "groups": {"groups": GroupsConfig(recurrent=GroupConfig(learning_rate=0.5, weight_decay=0.2))},
}


def started(training: TrainingConfig, dtype: torch.dtype) -> Learner:
    """Three models of several widths and a dummy in rows of one width, before their first step."""
    models = [model_config("exp", width=width) for width in WIDTHS]
    (ensemble,), task_loss = stacked(models, rows=lambda width: len(models) + 1)
    learner = Learner.start(dataclasses.replace(ensemble, initial=ensemble.initial.to(dtype)), task_loss, training)
    learner.plateau.factor[1] = 0.25
    return learner


def gradient_of(learner: Learner, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A loss and a gradient; that of the second replica is infinite at step 7, in one number."""
    gradient = noise(4, learner.ensemble.layout.size, seed=step).to(learner.weights.dtype)
    if step == 7:
        gradient[1, 2] = torch.inf
    return gradient.square().sum(-1), gradient


def state_of(learner: Learner) -> dict[str, torch.Tensor]:
    state = {name: each for name, each in learner.optimizer.state().items() if isinstance(each, torch.Tensor)}
    plain = {name: getattr(learner, name) for name in ("weights", "running", "diverged", "steps", "loss")}
    kept = {f"sample {index}": each for index, each in enumerate(learner.criterion.samples)}
    return {**state, **plain, **kept, "largest": learner.criterion.largest}


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_by_torch(case: str, dtype: torch.dtype, close: float) -> None:
    training = TrainingConfig(**PLAIN | {"validate_every": 6} | CASES[case])
    mine, theirs = started(training, dtype), started(training, dtype)
    assert CompiledUpdate.load(dtype) is not None
    for step in range(STEPS):
        update(mine, *gradient_of(mine, step), step, training)
        loss, gradient = gradient_of(theirs, step)
        factor = rate_factor(step, STEPS, training.schedule, training.warmup)
        update_by_torch(theirs, loss, gradient, settings_at(training, step), factor, step % 6 == 0)
        theirs.loss = loss
    assert mine.running.tolist() == [True, False, True, True]
    assert mine.diverged.tolist() == [False, True, False, False]
    found, expected = state_of(mine), state_of(theirs)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=close, atol=close, equal_nan=True, msg=name)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_bits_do_not_depend_on_the_other_replicas(dtype: torch.dtype) -> None:
    training = TrainingConfig(**PLAIN | CASES["adamw"])
    company, backwards = started(training, dtype), started(training, dtype)
    order = torch.tensor([2, 1, 0, 3])
    for name in ("weights", "rates"):
        setattr(backwards, name, getattr(backwards, name)[order])
    backwards.plateau.factor = backwards.plateau.factor[order]
    backwards.ensemble = dataclasses.replace(backwards.ensemble, exists=backwards.ensemble.exists[order])
    for step in range(STEPS):
        loss, gradient = gradient_of(company, step)
        update(company, loss, gradient.clone(), step, training)
        update(backwards, loss[order], gradient[order], step, training)
    assert torch.equal(backwards.weights, company.weights[order])
    assert torch.equal(backwards.criterion.largest, company.criterion.largest[order])
