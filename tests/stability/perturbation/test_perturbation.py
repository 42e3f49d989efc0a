"""The perturbation error against closed forms, exhaustive search and random sampling."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine import model_config, noise, stacked, task_config
from memsweep import registry
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig, TrialConfig
from memsweep.learning.ensemble.flat_layout import Layout
from memsweep.learning.loss.base import TaskLoss
from memsweep.learning.loss.exact import ExactLoss
from memsweep.models.base import LinearModel, Model, Part, Role, Weights
from memsweep.stability.perturbation.ball import Ball
from memsweep.stability.perturbation.error import APART, curve_places, perturbation_error, radius_grid
from memsweep.trial import RunOptions, run_trial


class KernelDistance(ExactLoss):
    """Distance of kernels in L1, integrated over time: the norm in which the closed forms are known."""

    def __init__(self, base: ExactLoss, dt: float) -> None:
        self.task, self.steps, self.kernels, self.dt = base.task, base.steps, base.kernels, dt

    def loss(
        self, model: Model, weights: Weights, data: Any, targets: torch.Tensor, live: torch.Tensor | None = None
    ) -> torch.Tensor:
        assert isinstance(model, LinearModel)
        horizon = self.task.horizon  # what lies beyond is padding
        response = model.response(weights, horizon).kernel[..., 0, 0, :]
        return (response - targets[..., :horizon]).abs().sum(-1) * self.dt


DT, HORIZON = 0.01, 2500
GRID = RadiiConfig(from_=0.05, to=0.5, count=3)


def one_mode(parameterization: str, dt: float = DT, horizon: int = HORIZON, rate: float = 1.0):
    """A single mode whose rate is that of the exponential target, with unit encoder and readout."""
    task = task_config(horizon=horizon, kernel="exponential", rate=rate, dt=dt)
    (ensemble,), task_loss = stacked([model_config(parameterization, width=1, dt=dt)], task=task)
    raw = ensemble.model.parameterizations.parts[0].raw(torch.tensor([rate], dtype=torch.float64))
    return ensemble, task_loss, single(ensemble, recurrent_weight=raw, encoder=1.0, readout=1.0)


def single(ensemble, recurrent_weight, encoder: float, readout: float):
    """Weights of a model of one mode, in the ensemble's layout; padding stays as it is."""
    named = ensemble.layout.named(ensemble.initial)
    named["recurrent_weight"][:, :1] = recurrent_weight
    named["encoder_weight"][:, 0] = encoder
    named["readout_weight"][:, :, 0] = readout
    return ensemble.layout.flat(named)


def measure(ensemble, task_loss: TaskLoss, weights, ball: str, data=None, **config):
    """The perturbation errors E_m along the grid."""
    settings = PerturbationConfig(**{"starts": 4, "ascent_steps": 16, "reading": "error"} | config)
    targets = ensemble.spread([task_loss.target(0)] * len(ensemble.replicas))
    return perturbation_error(ensemble, task_loss, data, weights, targets, ball, settings).errors


# The mode's kernel sums to dt / (1 - (1 - w dt)) = 1/w exactly; the target's, to this:
TARGET_AREA = DT / -math.expm1(-DT)


@pytest.mark.long
@pytest.mark.more
def test_recurrent_ball_of_one_mode():
    """With the rate alone moving, the error is 1/(a-b) - 1/a, or to the other side when that is larger."""
    ensemble, task_loss, weights = one_mode("direct")
    found = measure(ensemble, KernelDistance(task_loss, DT), weights, "recurrent", radii=GRID)
    grid = radius_grid(GRID)
    expected = torch.maximum(1 / (1 - grid) - TARGET_AREA, TARGET_AREA - 1 / (1 + grid))
    torch.testing.assert_close(found[0, 1:], expected, rtol=1e-4, atol=0)


@pytest.mark.long
@pytest.mark.more
def test_exp_parameterization_dilates_time():
    """A shift of a raw exp weight by b stretches the kernel in time by e^b: the L1 distance is e^b - 1, never inf."""
    ensemble, task_loss, weights = one_mode("exp", dt=0.02)
    config = RadiiConfig(from_=0.1, to=1.5, count=4)
    found = measure(ensemble, KernelDistance(task_loss, 0.02), weights, "recurrent", radii=config)
    torch.testing.assert_close(found[0, 1:], torch.expm1(radius_grid(config)), rtol=1e-3, atol=0)


def test_the_stability_radius_of_a_direct_model_is_its_slowest_rate():
    """Inside min rate the error converges as the horizon grows; beyond it grows without bound."""
    errors = {}
    for horizon in (200, 400, 800):
        ensemble, task_loss, weights = one_mode("direct", 1.0, horizon, rate=0.1)
        grid = RadiiConfig(from_=0.05, to=0.2, count=2)
        loss = KernelDistance(task_loss, 1.0)
        errors[horizon] = measure(ensemble, loss, weights, "recurrent", radii=grid, starts=0, ascent_steps=4)[0, 1:]
    assert errors[800][0] == pytest.approx(float(errors[400][0]), rel=1e-3)
    assert errors[400][1] > 1e3 * errors[200][1]
    assert errors[800][1] > 1e3 * errors[400][1]


def trained_pair():
    task = task_config(horizon=30, kernel="polynomial")
    (ensemble,), task_loss = stacked([model_config("exp", width=2), model_config("direct", width=2)], task=task)
    return ensemble, task_loss


@pytest.mark.parametrize("norm", ["spectral", "entrywise"])
@pytest.mark.parametrize("ball", ["recurrent", "all"])
def test_worst_case_is_no_smaller_than_random(ball, norm):
    ensemble, task_loss = trained_pair()
    data, config = task_loss.population(), {"radii": RadiiConfig(from_=1e-3, to=1.0, count=8), "norm": norm}
    worst = measure(ensemble, task_loss, ensemble.initial, ball, data, **config)
    # the random method draws from a stream of its own, and has no part in the ascent's starts
    random = measure(ensemble, task_loss, ensemble.initial, ball, data, method="random", repeats=200, **config)
    assert torch.equal(worst[:2, 0], random[:2, 0])
    assert (worst[:2] >= random[:2]).all()
    assert (worst[:2, 1:] > random[:2, 1:]).any()


def test_worst_case_reaches_an_exhaustive_grid():
    ensemble, task_loss = trained_pair()
    data = task_loss.population()
    grid = RadiiConfig(from_=0.01, to=0.5, count=4)
    worst = measure(ensemble, task_loss, ensemble.initial, "recurrent", data, radii=grid)[:2, 1:].T
    axis = torch.linspace(-1, 1, 41, dtype=torch.float64)
    square = torch.cartesian_prod(axis, axis)
    for radius, found in zip(radius_grid(grid), worst, strict=True):
        weights = ensemble.initial.unsqueeze(1).repeat(1, len(square), 1)
        weights[..., :2] += radius * square
        targets = ensemble.spread([task_loss.target(0)] * 2).unsqueeze(1)
        best = task_loss.loss(ensemble.model, ensemble.layout.named(weights), data, targets)[:2].amax(1)
        assert (found >= best * (1 - 1e-3)).all()
        assert (
            found <= best * (1 + 1e-2)
        ).all()  # a lower bound of the supremum cannot pass it by more than the grid's step


LAYER = {"activation": "linear", "state_size": 2, "layers": 1, "glu": False, "layer_norm": False}
FAMILIES = {
    "normalized diagonal": ("diagonal_rnn", {"normalize": True}),
    "normalized lru": ("lru", {"normalize": True}),
    "plain lru": ("lru", {"normalize": False}),
    "complex channels": ("stable_ssm", {**LAYER, "frequency": "relative"}),
    "tanh": ("diagonal_rnn", {"activation": "tanh"}),
}


@pytest.mark.parametrize("family", [n if n == "tanh" else pytest.param(n, marks=pytest.mark.more) for n in FAMILIES])
def test_the_default_search_finds_what_a_search_of_many_times_its_effort_finds(family):
    """Of trained models whose worst push is not the common one, at errors of 1 to 10 % of the zero predictor's."""
    name, fields = FAMILIES[family]
    task = task_config(horizon=32, kernel="polynomial", rate=0.4)
    config = TrialConfig(
        task=task,
        model=registry.get(registry.MODEL, name).Config(width=4, **fields),
        training=TrainingConfig(seeds=1, steps=600, batch_size=32, validation_size=64),
        perturbation=PerturbationConfig(
            radii=RadiiConfig(from_=1e-2, to=1.0, count=9), balls=("recurrent", "all"), test_size=256
        ),
    )
    longer = replace(config, perturbation=replace(config.perturbation, starts=8, ascent_steps=40))
    found, best = (run_trial(each, RunOptions(padded=False)).tables["curves"] for each in (config, longer))
    read = found["threshold"].notna()
    assert read.groupby(found["ball"]).sum().tolist() == [3, 3]
    assert (found["radius"] <= 1.015 * best["radius"])[read].all()
    share = found["change"] / found["zero_loss"]
    near = (share > 0.01) & (share < 0.1) & ~read
    assert (found["change"] >= 0.97 * best["change"])[near].all()


@pytest.mark.more
def test_the_search_finds_the_worst_push_of_a_non_normal_matrix_on_the_few_radii_of_its_study():
    """Its error has another worst push at every radius of a coarse grid, and grows a thousandfold between two radii."""
    task = task_config(horizon=24, kernel="polynomial", rate=3.2, exponent=1.1)
    model = registry.get(registry.MODEL, "nn_rnn").Config(
        width=32, activation="linear", initialization="random_orthogonal"
    )
    config = TrialConfig(
        task=task,
        model=model,
        training=TrainingConfig(seeds=1, steps=400, batch_size=32, validation_size=256),
        perturbation=PerturbationConfig(radii=RadiiConfig(from_=1e-3, to=1.0, count=9), balls=("all",), test_size=64),
    )
    curves = run_trial(config, RunOptions(padded=False)).tables["curves"]
    shares = (curves["change"] / curves["stronger"]).dropna()
    assert len(shares) == 2
    assert (shares >= 0.95).all()


@pytest.mark.parametrize(
    "grid", [RadiiConfig(), GRID, RadiiConfig(from_=1e-3, to=1.0, count=9), RadiiConfig(count=300)]
)
def test_a_curve_over_sequences_has_few_radii_and_both_ends_of_the_grid(grid):
    assert curve_places(grid, "error", closed=False) == curve_places(grid, "drift", closed=True) == [*range(grid.count)]
    places = curve_places(grid, "drift", closed=False)
    radii = radius_grid(grid)
    growth = float(radii[1] / radii[0])
    assert (places[0], places[-1]) == (0, grid.count - 1)
    assert (radii[places][1:] / radii[places][:-1] <= max(APART, growth) * 1.001).all()
    assert len(places) <= max(2.0, 2.0 + math.log(grid.to / grid.from_) / math.log(max(growth, APART**0.5)))


@pytest.mark.more
def test_error_is_monotone_and_keeps_infinities():
    task = task_config(horizon=600, kernel="exponential")
    (ensemble,), task_loss = stacked([model_config("direct", width=2), model_config("exp", width=2)], task=task)
    config = RadiiConfig(from_=1e-3, to=6.0, count=12)
    found = measure(ensemble, task_loss, ensemble.initial, "recurrent", task_loss.population(), radii=config)[:2]
    assert (found.diff(dim=1) >= 0)[torch.isfinite(found[:, 1:])].all()
    assert found[0, -1] == math.inf
    assert torch.isfinite(found[1]).all()
    assert not torch.isnan(found).any()


def test_the_balanced_gauge_makes_the_full_ball_a_property_of_the_function():
    ensemble, task_loss, weights = one_mode("exp", 1.0, 100, rate=0.05)
    raw = ensemble.layout.named(weights)["recurrent_weight"][:, :1]
    skewed = single(ensemble, raw, encoder=0.1, readout=10.0)
    data, config = task_loss.population(), {"radii": RadiiConfig(from_=0.01, to=0.5, count=4)}
    first, second = (measure(ensemble, task_loss, w, "all", data, **config)[0] for w in (weights, skewed))
    torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-12)


@pytest.mark.more
def test_results_do_not_depend_on_company():
    models = [model_config(name, width=width) for name in ("direct", "exp", "softplus") for width in (2, 5)]
    (together,), task_loss = stacked(models)
    data, config = task_loss.population(), {"radii": RadiiConfig(from_=0.01, to=1.0, count=4)}
    all_rows = measure(together, task_loss, together.initial, "all", data, **config)
    for row, model in enumerate(models):
        (alone,), _ = stacked([model], seeds=[row])
        assert torch.equal(all_rows[row], measure(alone, task_loss, alone.initial, "all", data, **config)[0])


class _Dense:
    """Stands for an ensemble with a true matrix among its weights."""

    def __init__(self) -> None:
        roles = {"W": Role(Part.RECURRENT, ("width", "width")), "c": Role(Part.READOUT, ("output", "width"))}
        self.layout = Layout(roles, {"W": (3, 3), "c": (1, 3)})
        self.exists = torch.ones(1, 12, dtype=torch.bool)
        self.real = torch.ones(1, dtype=torch.bool)

    def select(self, *parts: Part) -> torch.Tensor:
        return self.layout.select(*parts)


@pytest.mark.parametrize("norm", ["spectral", "entrywise"])
def test_ball_steepest_and_projection(norm):
    ball = Ball(_Dense(), "all", norm)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(1, 1, 12, dtype=torch.float64, generator=generator)
    best = ball.steepest(gradient)
    samples = ball.sphere(torch.randn(1, 5000, 12, dtype=torch.float64, generator=generator))
    assert float((best * gradient).sum()) >= float((samples * gradient).sum(-1).max())
    radius = torch.tensor([0.7], dtype=torch.float64)
    inside = ball.project(3.0 * samples[:, :1], radius)
    torch.testing.assert_close(ball.project(inside, radius), inside)
    size = torch.linalg.matrix_norm(inside[0, 0, :9].view(3, 3), 2) if norm == "spectral" else inside.abs().max()
    assert float(size) <= 0.7 + 1e-12
    small = 0.1 * samples[:, :1]
    torch.testing.assert_close(ball.project(small, radius), small)


@pytest.mark.parametrize("shape", [(6, 6), (6, 3), (3, 6)])
@pytest.mark.parametrize("rank", [1, 3])
def test_projection_clips_singular_values(shape, rank):
    role = Role(Part.RECURRENT, ("width", "width"))
    ensemble = _Dense()
    ensemble.layout = Layout({"W": role}, {"W": shape})
    ensemble.exists = torch.ones(1, shape[0] * shape[1], dtype=torch.bool)
    shift = (noise(1, 4, shape[0], rank) @ noise(1, 4, rank, shape[1], seed=5)).flatten(-2)
    radius = torch.tensor([1e-3, 0.5, 2.0, 100.0], dtype=torch.float64)
    found = Ball(ensemble, "all", "spectral").project(shift, radius)  # type: ignore[arg-type]
    left, values, right = torch.linalg.svd(shift.unflatten(-1, shape), full_matrices=False)
    expected = (left * torch.minimum(values, radius.unsqueeze(-1)).unsqueeze(-2)) @ right
    torch.testing.assert_close(found.unflatten(-1, shape), expected, rtol=1e-12, atol=1e-13)
