"""The linear recurrent unit against hand calculation, brute-force complex recurrences and statistics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import engine
from memsweep.models.base import Signature
from memsweep.models.modal.lru import LRU
from memsweep.testing import ModelSuite

WIDE = Signature(inputs=2, outputs=3, horizon=9)
KINDS: list[dict[str, Any]] = [
    {},
    {"normalize": False},
    {"gamma": "trained"},
    {"gamma": "trained", "skip": True, "initialization": "ring"},
]


def config(**fields: Any) -> Any:
    return LRU.Config(**{"width": 4} | fields)


def model(settings: Any, signature: Signature = WIDE, seed: int = 0) -> LRU:
    """A model with every weight away from its start, and phases that turn."""
    made = engine.moved(LRU(settings, signature, np.random.default_rng(seed)), seed)
    if settings.initialization == "spread":
        with torch.no_grad():
            made.theta.add_(2.0)
    return made


def brute(made: LRU, inputs: np.ndarray) -> np.ndarray:
    """One sequence ``[T, I]`` through the model, step by step, in numpy's complex numbers."""
    w = {name: weight.detach().numpy() for name, weight in made.named_parameters()}
    eigenvalues = np.exp(-np.exp(w["nu"]) + 1j * np.exp(w["theta"]))
    gamma = np.exp(w["gamma_log"]) if "gamma_log" in w else np.sqrt(1.0 - np.abs(eigenvalues) ** 2)
    gamma = gamma if made.config.normalize else 1.0
    state, answers = np.zeros(made.config.width, complex), []
    for x in inputs:
        drive = (w["encoder_re"] + 1j * w["encoder_im"]) @ x + w["bias_re"] + 1j * w["bias_im"]
        state = eigenvalues * state + gamma * drive
        answer = ((w["readout_re"] + 1j * w["readout_im"]) @ state).real + w["readout_bias"]
        answers.append(answer + w["skip"] @ x if made.config.skip else answer)
    return np.stack(answers)


def toy() -> tuple[LRU, Tensor]:
    """One mode: lambda = 1/2 (a whole turn a step), gamma = 1, B = 2 + 2i, C = 2 + i; inputs 1, 2, 3."""
    made = LRU(config(width=1, normalize=False), Signature(1, 1, 3))
    values = {"nu": math.log(math.log(2.0)), "theta": math.log(math.tau), "encoder_re": 2.0, "encoder_im": 2.0}
    values |= {"readout_re": 2.0, "readout_im": 1.0}
    with torch.no_grad():
        for name, weight in made.named_parameters():
            weight.fill_(values.get(name, 0.0))
    return made, torch.tensor([1.0, 2.0, 3.0]).double().view(1, 3, 1)


def test_the_published_toy_forward() -> None:
    """arXiv 2305.15947's own test: h = 2 + 2i, 5 + 5i, 8.5 + 8.5i, so that Re(C h) = 2, 5, 8.5."""
    made, inputs = toy()
    torch.testing.assert_close(made(inputs).flatten(), torch.tensor([2.0, 5.0, 8.5]).double(), rtol=1e-14, atol=0)
    imaginary = torch.complex(torch.zeros(1), torch.ones(1))  # C = 1 and C = -i read the state's two parts
    for readout, expected in ((1.0 + 0 * imaginary, [2.0, 5.0, 8.5]), (-imaginary, [2.0, 5.0, 8.5])):
        with torch.no_grad():
            made.readout_re.copy_(readout.real.view(1, 1))
            made.readout_im.copy_(readout.imag.view(1, 1))
        torch.testing.assert_close(made(inputs).flatten(), torch.tensor(expected).double(), rtol=1e-14, atol=0)


@pytest.mark.parametrize("exact", [False, True])
def test_the_published_toy_backward(exact: bool) -> None:
    """With the targets 1: dL/dlambda = 53 + 159i and dL/dB = 85.75 - 42.875i, through the scan and the response."""
    made, inputs = toy()
    if exact:
        kernel = made.response({k: v.unsqueeze(0) for k, v in made.named_parameters()}, 3).kernel[0, 0, 0]
        answers = torch.stack([(kernel[: t + 1].flip(0) * inputs[0, : t + 1, 0]).sum() for t in range(3)])
    else:
        answers = made(inputs).flatten()
    (0.5 * (answers - 1.0).square().sum()).backward()
    found = {name: float(weight.grad) for name, weight in made.named_parameters() if weight.grad is not None}
    assert found["encoder_re"] == pytest.approx(85.75, rel=1e-13)
    assert found["encoder_im"] == pytest.approx(-42.875, rel=1e-13)
    # d lambda / d nu = -ln(2)/2 and d lambda / d theta = i pi there
    assert found["nu"] == pytest.approx(-53.0 * math.log(2.0) / 2.0, rel=1e-13)
    assert found["theta"] == pytest.approx(-159.0 * math.pi, rel=1e-13)


@pytest.mark.parametrize("fields", KINDS)
def test_outputs_are_the_recurrence(fields: dict[str, Any]) -> None:
    made = model(config(**fields))
    inputs = np.random.default_rng(3).standard_normal((2, 9, 2))
    expected = np.stack([brute(made, sequence) for sequence in inputs])
    np.testing.assert_allclose(made(torch.from_numpy(inputs)).detach().numpy(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("fields", KINDS)
def test_the_response_is_what_impulses_and_biases_do(fields: dict[str, Any]) -> None:
    made, horizon = model(config(**fields)), 33
    response = made.response(engine.weights_of(made), horizon)
    drift = brute(made, np.zeros((horizon, 2)))
    np.testing.assert_allclose(response.drift[0].T.numpy(), drift, rtol=1e-11, atol=1e-13)
    for channel in range(2):
        impulse = np.zeros((horizon, 2))
        impulse[0, channel] = 1.0
        answer = brute(made, impulse) - drift
        np.testing.assert_allclose(response.kernel[0, :, channel].T.numpy(), answer, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("fields", KINDS)
def test_gradients_by_finite_differences(fields: dict[str, Any]) -> None:
    made = model(config(**fields, width=2), Signature(1, 2, 5))
    inputs = torch.from_numpy(np.random.default_rng(3).standard_normal((2, 5, 1)))
    names = list(engine.weights_of(made))
    values = tuple(value.requires_grad_() for value in engine.weights_of(made).values())

    def response(*v: Tensor) -> tuple[Tensor, Tensor]:
        found = made.response(dict(zip(names, v, strict=True)), 5)
        return found.kernel, found.drift

    assert torch.autograd.gradcheck(lambda *v: made.outputs(dict(zip(names, v, strict=True)), inputs), values)
    assert torch.autograd.gradcheck(response, values)


@pytest.mark.parametrize(("r_min", "r_max", "max_phase"), [(0.0, 1.0, 6.28), (0.9, 0.999, 0.3)])
def test_the_ring_is_uniform_on_its_area(r_min: float, r_max: float, max_phase: float) -> None:
    settings = config(width=4000, initialization="ring", r_min=r_min, r_max=r_max, max_phase=max_phase)
    made = LRU(settings, Signature(1, 1, 10), np.random.default_rng(0))
    eigenvalues = made.eigenvalues(engine.weights_of(made))[0].numpy()
    sizes, phases = np.abs(eigenvalues), np.angle(eigenvalues) % math.tau
    assert sizes.min() >= r_min - 1e-12
    assert sizes.max() < r_max
    # on a uniform area |lambda|^2 is uniform, and independent of the phase
    squares = stats.uniform(r_min**2, r_max**2 - r_min**2)
    assert stats.kstest(sizes**2, squares.cdf).pvalue > 0.01
    assert stats.kstest(phases, stats.uniform(0.0, max_phase).cdf).pvalue > 0.01
    assert abs(stats.spearmanr(sizes, phases).statistic) < 0.05


def test_extreme_draws_of_the_ring_are_finite() -> None:
    class Edges:
        """A generator whose uniform numbers are the two ends of their range."""

        def uniform(self, size: Any) -> np.ndarray:
            return np.resize(np.array([0.0, np.nextafter(1.0, 0.0)]), size)

        def standard_normal(self, size: Any) -> np.ndarray:
            return np.ones(size)

    for name in ("ring", "spread"):
        weights = LRU.initial(config(width=2, initialization=name, gamma="trained"), WIDE, Edges())  # type: ignore
        assert all(np.isfinite(value).all() for value in weights.values())


def test_a_spread_start_covers_the_time_scales_and_hardly_turns() -> None:
    weights = LRU.initial(config(width=20), Signature(1, 1, 400), np.random.default_rng(0))
    decays = np.exp(weights["nu"])
    assert 1 / 400 <= decays.min() < 1 / 250
    assert 0.6 < decays.max() <= 1.0
    assert (np.exp(weights["theta"]) <= 0.1 * decays).all()


def test_inside_the_unit_circle_for_every_weight() -> None:
    made = LRU(config(width=500), Signature(1, 1, 10))
    weights = engine.weights_of(made) | {"nu": torch.linspace(-35.0, 20.0, 500).double().unsqueeze(0)}
    assert (made.eigenvalues(weights).abs() < 1.0).all()
    # gamma does not cancel away in the slowest modes: gamma^2 = 1 - exp(-2 e^nu) -> 2 e^nu
    slowest = made._gain(weights)[0, 0]
    assert float(slowest) == pytest.approx(math.sqrt(2.0 * math.exp(-35.0)), rel=1e-12)


@pytest.mark.parametrize("gamma", ["exact", "trained"])
def test_gamma_keeps_the_state_at_unit_variance(gamma: str) -> None:
    """White noise of variance 1 through |B| = 1 gives E|h|^2 = 1, in every mode, also when gamma starts as a weight."""
    settings = config(width=5, initialization="ring", r_min=0.3, r_max=0.95, gamma=gamma)
    made = LRU(settings, Signature(1, 2, 300), np.random.default_rng(0))
    noise = torch.from_numpy(np.random.default_rng(1).standard_normal((400, 300, 1)))
    power = torch.zeros(5).double()
    with torch.no_grad():
        made.encoder_re.fill_(0.6)
        made.encoder_im.fill_(0.8)
        for mode in range(5):
            for weight in (made.readout_re, made.readout_im):
                weight.zero_()
            made.readout_re[0, mode] = 1.0  # Re h
            made.readout_im[1, mode] = -1.0  # Im h
            power[mode] = made(noise)[:, 100:].square().sum(-1).mean()
    torch.testing.assert_close(power, torch.ones(5).double(), rtol=0.05, atol=0)


class TestTrainedGamma(ModelSuite):
    model = "lru"
    config = config(gamma="trained", skip=True, initialization="ring")


class TestPlainStates(ModelSuite):
    model = "lru"
    config = config(normalize=False)
    signature = Signature(inputs=2, outputs=3, horizon=12)


del ModelSuite  # pytest would collect the bare suite too
