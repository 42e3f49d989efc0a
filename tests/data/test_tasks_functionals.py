"""Nonlinear functionals and the random transformer: targets, and the level that an answer without input reaches."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from memsweep import registry
from memsweep.data.api import Task
from memsweep.streams import TRAIN, VALIDATION, Stream
from paths import ROOT

registry.discover(ROOT)
NONLINEAR = registry.get(registry.TASK, "nonlinear_functional")
FILTER = registry.get(registry.TASK, "filter")

FUNCTIONS = {
    "tanh": np.tanh,
    "hardtanh": lambda z: np.clip(z, -1.0, 1.0),
    "relu": lambda z: np.maximum(z, 0.0),
    "square": np.square,
}


def nonlinear(**fields: object) -> Task:
    return NONLINEAR(NONLINEAR.Config(**fields))


@pytest.mark.parametrize("nonlinearity", FUNCTIONS)
@pytest.mark.parametrize("deviation", [1e-6, 0.3, 0.999, 1.0, 2.3, 50.0])
def test_variance_is_the_integral_over_the_normal_law(nonlinearity: str, deviation: float) -> None:
    function = FUNCTIONS[nonlinearity]

    def expectation(of: Callable[[float], float]) -> float:
        def both_sides(n: float) -> float:
            values = of(float(function(deviation * n))) + of(float(function(-deviation * n)))
            return values * math.exp(-0.5 * n * n) / math.sqrt(2.0 * math.pi)

        corner = [1.0 / deviation] if deviation > 0.2 else None
        return quad(both_sides, 0.0, 12.0, points=corner, limit=400, epsabs=0.0, epsrel=1e-12)[0]

    mean = expectation(lambda y: y)
    expected = expectation(lambda y: (y - mean) ** 2)
    found = nonlinear(nonlinearity=nonlinearity).nonlinearity.variance(np.array([deviation]))
    assert found[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kernel", ["exponential", "polynomial", "shift", "two_parts", "airy", "sine"])
@pytest.mark.parametrize("nonlinearity", FUNCTIONS)
def test_target_and_chance_for_every_kernel_and_nonlinearity(kernel: str, nonlinearity: str) -> None:
    made = nonlinear(kernel=kernel, nonlinearity=nonlinearity, horizon=24, dt=0.8)
    batch = made.draw(Stream(1, TRAIN), 2, 4000)
    noise, rho = batch.inputs[:50, :, 0].numpy(), made.kernel().numpy()
    plain = [[sum(rho[s] * x[t - s] for s in range(t + 1)) for t in range(24)] for x in noise]
    np.testing.assert_allclose(batch.targets[:50, :, 0], FUNCTIONS[nonlinearity](np.array(plain)), atol=1e-12)
    mean = batch.targets.mean(0, keepdim=True).expand_as(batch.targets)
    assert float(made.loss(mean, batch)) == pytest.approx(made.chance(), rel=0.2)


@pytest.fixture(scope="module")
def noise() -> torch.Tensor:
    return torch.from_numpy(Stream(5, "noise").generator().standard_normal((16, 40)))


def target(noise: torch.Tensor, **fields: object) -> torch.Tensor:
    """The target's answers ``[B, T]`` to noise ``[B, T]``, each step from a prefix of its own."""
    made = FILTER(FILTER.Config(horizon=noise.shape[1], **fields))
    return made.oracle(noise.unsqueeze(-1)).squeeze(-1)


@pytest.mark.parametrize(
    "fields",
    [
        {"heads": 1, "layers": 1, "width": 5},
        {"heads": 4, "layers": 3},
        {"heads": 2, "layers": 2, "dt": 0.5},
    ],
)
def test_the_masked_transformer_is_its_steps_one_by_one(fields: dict[str, object]) -> None:
    """torch's masked encoder over whole sequences against the layers written out, with a linear attention bias too."""
    made = FILTER(FILTER.Config(horizon=30, **fields))
    batch = made.draw(Stream(0, TRAIN), 0, 5)
    torch.testing.assert_close(batch.targets, made.oracle(batch.inputs), rtol=1e-11, atol=1e-11)


def test_the_target_is_causal_and_remembers(noise: torch.Tensor) -> None:
    right = target(noise)
    changed = noise.clone()
    changed[:, 20] += 1.0
    moved = (target(changed) - right).abs().amax(0)
    assert torch.equal(moved[:20], torch.zeros(20, dtype=torch.float64))
    assert moved[21:].min() > 1e-4


@pytest.mark.parametrize("fields", [{}, {"dt": 0.1, "weight_power": 0.0, "target_seed": 3}])
def test_the_best_constant_answer_to_the_filter_costs_one(fields: dict[str, object]) -> None:
    made = FILTER(FILTER.Config(horizon=40, **fields))
    batch = made.draw(Stream(0, VALIDATION), 0, 4000)
    mean = batch.targets.mean(0, keepdim=True).expand_as(batch.targets)
    assert made.loss(mean, batch).item() == pytest.approx(1.0, abs=0.1)


def test_heads_must_divide_the_width() -> None:
    (sentence,) = FILTER.Config(width=10, heads=4).problems()
    assert "width is 10" in sentence
    assert "4 heads" in sentence
