"""Diagonal layers train from their flat weights without autograd, with the very bits that autograd gives."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from engine import model_config, stacked, task_config, whole
from memsweep import registry
from memsweep.config.schema.training import TrainingConfig
from memsweep.learning.loop import train
from memsweep.learning.loss.base import TaskLoss
from memsweep.learning.loss.exact import ExactLoss
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.learning.training.learner import Learner
from memsweep.models.base import LayerModel
from memsweep.recurrence.compiled.library import KERNELS
from memsweep.streams import TRAIN, Stream

HORIZON = 21
TRAINING = TrainingConfig(steps=7, batch_size=19, validation_size=8, validate_every=3, learning_rate=0.1)
MAPS = ("relu", "direct", "exp", "softplus", "lru", "inverse", "best")
PACKS: dict[str, list[dict[str, Any]]] = {
    **{name: [{"parameterization": name, "width": width} for width in (8, 3, 5)] for name in MAPS if name != "inverse"},
    "all maps": [{"parameterization": name} for name in MAPS],
    "euler": [{"parameterization": name, "discretization": "euler"} for name in MAPS],
    "one by autograd": [{"parameterization": name} for name in ("direct", "exp", "sigmoid")],
    "discrete": [{"parameterization": name, "discretization": "discrete"} for name in ("direct", "direct")],
}


def loss_of(activation: str, dtype: torch.dtype) -> TaskLoss[Any]:
    task = registry.get(registry.TASK, "linear_functional")(task_config(horizon=HORIZON))
    return ExactLoss([task], dtype) if activation == "linear" else SampledLoss(task, dtype)


def started(pack: str, activation: str, loss: TaskLoss[Any], dtype: torch.dtype, **training: Any) -> Learner:
    """The models of a pack and two dummies; one of the models has a raw weight of zero, and one is negative."""
    models = [model_config(activation=activation, **fields) for fields in PACKS[pack]]
    (ensemble,), _ = stacked(models, task_config(horizon=HORIZON), rows=lambda width: len(models) + 2)
    initial = ensemble.initial.to(dtype)
    initial[0, 0], initial[1, 1] = 0.0, -0.25
    return Learner.start(
        dataclasses.replace(ensemble, initial=initial), loss, dataclasses.replace(TRAINING, **training)
    )


def by_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no layer is trained from its flat weights."""
    for model in (LayerModel, *_subclasses(LayerModel)):
        if "flat_diagonal" in vars(model):
            monkeypatch.setattr(model, "flat_diagonal", lambda self, weights: None)


def _subclasses(model: type) -> list[type]:
    return [each for found in model.__subclasses__() for each in (found, *_subclasses(found))]


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("pack", "activation"), [*product(PACKS, ("linear", "hardtanh", "tanh", "relu"))])
def test_losses_and_gradients_are_those_of_autograd(
    pack: str, activation: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = loss_of(activation, dtype)
    learner = started(pack, activation, loss, dtype)
    learner.running[1] = False
    data = loss.data(Stream(0, TRAIN), 0, TRAINING.batch_size)
    assert loss.flat_gradient(learner.ensemble.model, learner.weights, data, learner.targets, learner.live) is not None
    found = learner.gradients(loss, whole(data))
    by_autograd(monkeypatch)
    assert loss.flat_gradient(learner.ensemble.model, learner.weights, data, learner.targets, learner.live) is None
    expected = learner.gradients(loss, whole(data))
    for mine, theirs in zip(found, expected, strict=True):
        assert bool(theirs[learner.live].isfinite().all())
        assert bool(theirs[learner.live].count_nonzero())
        assert torch.equal(bits(mine[learner.live]), bits(theirs[learner.live]))


@pytest.mark.parametrize(
    "training",
    [
        {"optimizer": "adamw", "weight_decay": 0.1, "amplitude_penalty": 0.01, "margin_penalty": 0.1},
        {"optimizer": "adam", "clip": 0.0},
        {"optimizer": "rmsprop"},
        {"learning_rate": 1e3, "clip": 0.0, "amplitude_penalty": 0.0},
    ],
    ids=["adamw", "adam", "rmsprop", "diverging"],
)
@pytest.mark.parametrize(("activation", "pack"), [("linear", "relu"), ("linear", "all maps"), ("tanh", "relu")])
def test_trainings_end_with_the_bits_of_autograd(
    activation: str, pack: str, training: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, loss = dataclasses.replace(TRAINING, **training), loss_of(activation, torch.float64)
    ensemble = started(pack, activation, loss, torch.float64, **training).ensemble
    (found,) = train([ensemble], loss, settings)
    by_autograd(monkeypatch)
    (expected,) = train([ensemble], loss, settings)
    for name in ("weights", "best_weights", "best", "loss", "steps", "diverged"):
        mine, theirs = (getattr(each, name)[ensemble.real] for each in (found, expected))
        assert torch.equal(bits(mine), bits(theirs)), name
    assert not torch.equal(found.weights, ensemble.initial)


@pytest.mark.parametrize("activation", ["linear", "tanh"])
@pytest.mark.parametrize("fields", [{"normalize": True}, {"dt": 0.5}])
def test_layers_that_scale_their_weights_are_differentiated(activation: str, fields: dict[str, Any]) -> None:
    loss = loss_of(activation, torch.float64)
    (ensemble,), _ = stacked([model_config("relu", activation=activation, **fields)], task_config(horizon=HORIZON))
    learner = Learner.start(ensemble, loss, TRAINING)
    data = loss.data(Stream(0, TRAIN), 0, TRAINING.batch_size)
    assert loss.flat_gradient(ensemble.model, learner.weights, data, learner.targets, learner.live) is None


@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_without_kernels_torch_differentiates(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = loss_of(activation, torch.float64)
    learner = started("relu", activation, loss, torch.float64)
    data = loss.data(Stream(0, TRAIN), 0, TRAINING.batch_size)
    found = learner.gradients(loss, whole(data))
    monkeypatch.setenv(KERNELS, "plain")
    assert loss.flat_gradient(learner.ensemble.model, learner.weights, data, learner.targets, learner.live) is None
    for mine, theirs in zip(found, learner.gradients(loss, whole(data)), strict=True):
        torch.testing.assert_close(mine[learner.live], theirs[learner.live], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("pack", "activation"), [*product(("relu", "exp"), ("linear", "tanh"))])
def test_bits_do_not_depend_on_threads(pack: str, activation: str) -> None:
    loss = loss_of(activation, torch.float64)
    learner = started(pack, activation, loss, torch.float64)
    data, threads = loss.data(Stream(0, TRAIN), 0, TRAINING.batch_size), torch.get_num_threads()
    found = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(learner.gradients(loss, whole(data)))
    finally:
        torch.set_num_threads(threads)
    for one, three in zip(*found, strict=True):
        assert torch.equal(bits(one[learner.live]), bits(three[learner.live]))
