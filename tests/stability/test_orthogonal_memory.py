"""Both families in the stability study: how far the raw weights of orthogonal models may move, against closed forms.

A linear model of width 2 whose matrix turns the plane by an angle has the memory function a cos(angle t + phase). Its
recurrent weights move the angle (and with nn_rnn the modulus), so that the worst case is a maximum over an interval.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import noise, task_config
from memsweep import registry
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig
from memsweep.learning.ensemble.replicas import Ensemble, Replica, build
from memsweep.learning.loop import train
from memsweep.learning.loss.base import TaskLoss
from memsweep.learning.loss.carried import task_loss_for
from memsweep.models.base import Signature
from memsweep.stability.perturbation.error import perturbation_error, radius_grid
from paths import ROOT

registry.discover(ROOT)
HORIZON, ANGLE = 8, 0.7
GRID = RadiiConfig(from_=0.01, to=0.3, count=4)
LINEAR = {"activation": "linear", "initialization": "random_orthogonal"}


def linear(name: str, width: int, horizon: int = HORIZON, **fields: object) -> tuple[Ensemble, TaskLoss]:
    """One replica on exponential memory, every lag weighted by how often it is heard."""
    task = registry.get(registry.TASK, "linear_functional")(task_config(horizon=horizon, weight_power=0.0))
    model = registry.get(registry.MODEL, name)
    config = model.Config(**LINEAR | {"width": width} | fields)
    (ensemble,) = build(model, [Replica(0, config, 0, 0.05)], Signature(1, 1, horizon), torch.float64, None)
    return ensemble, task_loss_for([task], True, torch.float64)


def errors(ensemble: Ensemble, task_loss: TaskLoss, weights: Tensor) -> np.ndarray:
    """At radius 0 and the radii of ``GRID``."""
    targets = ensemble.spread([task_loss.target(0)] * len(ensemble.replicas))
    settings = PerturbationConfig(radii=GRID, starts=2, ascent_steps=16, reading="error")
    data = task_loss.population()
    return perturbation_error(ensemble, task_loss, data, weights, targets, "recurrent", settings).errors[0].numpy()


def loss(modulus: float, angle: float) -> float:
    """Of the memory function (c R(angle)^t u) modulus^t with c = u = (1, 0), against exp(-t)."""
    lags = np.arange(HORIZON)
    gap = modulus**lags * np.cos(angle * lags) - np.exp(-lags)
    return float(((HORIZON - lags) / HORIZON * gap**2).sum())


def interval(reach: float) -> np.ndarray:
    return np.linspace(-reach, reach, 201)


def matrix(angle: float) -> Tensor:
    return torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=torch.float64)


def upper(entry: float) -> Tensor:
    return torch.tensor([[0.0, entry], [0.0, 0.0]], dtype=torch.float64)


Case = tuple[str, dict[str, object], dict[str, Tensor], Callable[[float], Iterable[tuple[float, float]]]]
CASES: list[Case] = [
    # a spectral ball of generators holds every entry up to the radius
    ("exp_rnn", {"map": "exponential"}, {"generator": upper(ANGLE)}, lambda r: ((1.0, ANGLE + d) for d in interval(r))),
    (
        "exp_rnn",
        {"map": "cayley"},
        {"generator": upper(-math.tan(ANGLE / 2))},
        lambda r: ((1.0, 2.0 * math.atan(math.tan(ANGLE / 2) + d)) for d in interval(r)),
    ),
    # no matrix nearer than r to a rotation has a polar factor that is turned by more than arcsin r
    (
        "orthogonal_rnn",
        {},
        {"recurrent_weight": matrix(ANGLE)},
        lambda r: ((1.0, ANGLE + d) for d in interval(math.asin(r))),
    ),
    # in one plane, the basis changes nothing and there is no triangle
    (
        "nn_rnn",
        {},
        {"moduli": torch.tensor([0.9]), "angles": torch.tensor([-ANGLE])},
        lambda r: itertools.product(0.9 + np.array([-r, r]), -ANGLE + interval(r)),
    ),
]


@pytest.mark.parametrize(("name", "fields", "start", "reached"), CASES)
def test_the_worst_turn_of_a_plane(
    name: str,
    fields: dict[str, object],
    start: dict[str, Tensor],
    reached: Callable[[float], Iterable[tuple[float, float]]],
) -> None:
    ensemble, task_loss = linear(name, 2, **fields)
    named = ensemble.layout.named(ensemble.initial.clone())
    for weight in named.values():
        weight[0] = 0.0
    for weight, value in start.items():
        named[weight][0] = value
    named["encoder_weight"][0, 0], named["readout_weight"][0, 0, 0] = 1.0, 1.0
    found = errors(ensemble, task_loss, ensemble.layout.flat(named))
    expected = [max(itertools.starmap(loss, reached(radius))) for radius in radius_grid(GRID).tolist()]
    np.testing.assert_allclose(found[1:-1], expected[:-1], rtol=1e-3)
    # from far away there is more than one summit: the search is a lower bound
    assert expected[-2] < found[-1] <= expected[-1] * (1.0 + 1e-9)


@pytest.mark.parametrize("name", ["exp_rnn", "nn_rnn"])
def test_what_a_generator_does_not_use_has_no_part_in_its_radius(name: str) -> None:
    ensemble, task_loss = linear(name, 4)
    disturbed = ensemble.initial.clone()
    generator = ensemble.layout.named(disturbed)["generator"]
    generator += noise(4, 4).tril()
    assert not torch.equal(disturbed, ensemble.initial)
    np.testing.assert_array_equal(errors(ensemble, task_loss, disturbed), errors(ensemble, task_loss, ensemble.initial))


def test_an_orthogonal_recurrence_needs_a_width_of_the_horizon() -> None:
    """Its memory function is a sum of undamped oscillations; a non-normal one of width 2 forgets by its modulus."""
    training = TrainingConfig(seeds=1, steps=80, batch_size=32, validation_size=64)

    def fitted(name: str, width: int) -> float:
        ensemble, task_loss = linear(name, width)
        (learner,) = train([ensemble], task_loss, training)
        both = torch.stack([learner.weights[0], torch.zeros_like(learner.weights[0])]).unsqueeze(0)
        named, targets = ensemble.layout.named(both), learner.targets.unsqueeze(1)
        found, zero = task_loss.loss(ensemble.model, named, task_loss.population(), targets)[0].tolist()
        return float(found / zero)

    assert fitted("orthogonal_rnn", HORIZON) < 0.005
    assert fitted("orthogonal_rnn", 2) > 0.05
    assert fitted("nn_rnn", 2) < 0.005
