"""The state-space model against brute force, in both of its forms and bases."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import engine
from memsweep import registry
from memsweep.learning.ensemble.flat_layout import slots
from memsweep.learning.ensemble.replicas import Replica, build
from memsweep.learning.training import pruning
from memsweep.models.affine import composed, equalized
from memsweep.models.base import Signature
from memsweep.models.modal.ssm import SSM
from memsweep.testing import ModelSuite

SIGMA = {
    "linear": lambda x: x,
    "hardtanh": lambda x: np.clip(x, -1.0, 1.0),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
}
FORMS = list(itertools.product(("plain", "mlp"), ("diagonal", "free")))
WIDE = Signature(inputs=2, outputs=3, horizon=9)


def config(parameterization: str = "exp", **fields: Any) -> Any:
    part = registry.get(registry.PARAMETERIZATION, parameterization).Config()
    euler = {"discretization": "euler"} if fields.get("basis") == "free" else {}
    return SSM.Config(**{"width": 4} | euler | fields, parameterization=part)


def model(settings: Any, signature: Signature = WIDE, seed: int = 0) -> SSM:
    """A model with every weight away from its start: biases are not zero and no basis is orthogonal."""
    return engine.moved(SSM(settings, signature, np.random.default_rng(seed)), seed)


def arrays(made: SSM) -> dict[str, np.ndarray]:
    return {name: weight.detach().numpy() for name, weight in made.named_parameters()}


def brute(settings: Any, w: dict[str, np.ndarray], rates: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """One sequence ``[T, I]`` through the model, step by step; the rates are the parameterization's."""
    sigma, dt = SIGMA[settings.activation], settings.dt
    mlp = settings.form == "mlp"
    state, answers = np.zeros(settings.width), []
    for x in inputs:
        drive = w["encoder_weight"] @ x + w["encoder_bias"]
        if mlp:
            drive = sigma(w["before_weight_l0"] @ drive + w["before_bias_l0"])
            drive = w["before_weight_l1"] @ drive + w["before_bias_l1"]
        if settings.basis == "free":
            state = state + drive - dt * w["basis"].T @ (rates * (w["basis"] @ state))
        else:
            eigenvalues = 1.0 - rates * dt if settings.discretization == "euler" else np.exp(-rates * dt)
            gain = np.sqrt(1.0 - eigenvalues**2) if settings.normalize else 1.0
            state = eigenvalues * state + gain * drive
        if mlp:
            hidden = sigma(w["after_weight_l0"] @ state + w["after_bias_l0"])
            out = w["after_weight_l1"] @ hidden + w["after_bias_l1"]
        else:
            out = sigma(state)
        answers.append(w["readout_weight"] @ out + w["readout_bias"])
    return np.stack(answers)


@pytest.mark.parametrize(("form", "basis"), FORMS)
@pytest.mark.parametrize("activation", list(SIGMA))
def test_outputs_are_the_recurrence(form: str, basis: str, activation: str) -> None:
    settings = config(form=form, basis=basis, activation=activation, dt=0.5)
    made = model(settings)
    inputs = np.random.default_rng(3).standard_normal((2, 9, 2))
    weights = arrays(made)
    expected = np.stack([brute(settings, weights, np.exp(weights["recurrent_weight"]), x) for x in inputs])
    np.testing.assert_allclose(made(torch.from_numpy(inputs)).detach().numpy(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("form", "basis"), FORMS)
def test_the_response_is_what_impulses_and_biases_do(form: str, basis: str) -> None:
    settings = config(form=form, basis=basis)
    made = model(settings)
    weights = arrays(made)
    rates, horizon = np.exp(weights["recurrent_weight"]), 33
    response = made.response(engine.weights_of(made), horizon)
    drift = brute(settings, weights, rates, np.zeros((horizon, 2)))
    np.testing.assert_allclose(response.drift[0].T.numpy(), drift, rtol=1e-11, atol=1e-13)
    for channel in range(2):
        impulse = np.zeros((horizon, 2))
        impulse[0, channel] = 1.0
        answer = brute(settings, weights, rates, impulse) - drift
        np.testing.assert_allclose(response.kernel[0, :, channel].T.numpy(), answer, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("form", "basis"), FORMS)
def test_gradients_by_finite_differences(form: str, basis: str) -> None:
    made = model(config(form=form, basis=basis, activation="tanh", width=2), Signature(1, 1, 5))
    straight = model(config(form=form, basis=basis, width=2), Signature(1, 1, 5))
    inputs = torch.from_numpy(np.random.default_rng(3).standard_normal((2, 5, 1)))
    names = list(engine.weights_of(made))
    values = tuple(value.requires_grad_() for value in engine.weights_of(made).values())
    assert torch.autograd.gradcheck(lambda *v: made.outputs(dict(zip(names, v, strict=True)), inputs), values)

    def linear(*v: Tensor) -> tuple[Tensor, Tensor]:
        response = straight.response(dict(zip(names, v, strict=True)), 5)
        return response.kernel, response.drift

    assert torch.autograd.gradcheck(linear, values)


def test_eigenvalues_of_a_free_basis() -> None:
    settings = config(basis="free", dt=0.7)
    at_start = SSM(settings, WIDE, np.random.default_rng(0))
    basis = at_start.basis.detach().numpy()
    np.testing.assert_allclose(basis @ basis.T, np.eye(4), atol=1e-14)
    rates = np.exp(at_start.recurrent_weight.detach().numpy())
    found = at_start.eigenvalues(engine.weights_of(at_start))[0].numpy()
    np.testing.assert_allclose(found, np.sort(1.0 - 0.7 * rates), rtol=1e-12)
    moved = model(settings)
    weights = arrays(moved)
    matrix = np.eye(4) - 0.7 * weights["basis"].T @ np.diag(np.exp(weights["recurrent_weight"])) @ weights["basis"]
    expected = np.sort(np.linalg.eigvals(matrix).real)
    np.testing.assert_allclose(moved.eigenvalues(engine.weights_of(moved))[0].numpy(), expected, rtol=1e-11)
    diverged = engine.weights_of(moved, moved)
    diverged["basis"][0, 1, 2] = torch.nan
    found = moved.eigenvalues(diverged).numpy()
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1], expected, rtol=1e-11)


def test_the_published_start() -> None:
    settings = config("relu", form="mlp", basis="free", initialization="published", width=200)
    weights = SSM.initial(settings, Signature(1, 1, 100), np.random.default_rng(0))
    assert abs(weights["recurrent_weight"].mean()) < 0.2
    assert 0.85 < weights["recurrent_weight"].std() < 1.15
    for name in ("before_weight_l0", "before_weight_l1", "after_weight_l0", "after_weight_l1", "readout_weight"):
        bound = 1.0 / np.sqrt(200.0)
        assert np.abs(weights[name]).max() <= bound
        assert np.abs(weights[name]).max() > 0.95 * bound
        assert np.abs(weights[name.replace("weight", "bias")]).max() <= bound
    distinct = {weights[f"{name}_weight_l{layer}"].tobytes() for name in ("before", "after") for layer in range(2)}
    assert len(distinct) == 4


def test_maps_with_a_dead_one_keep_their_scales() -> None:
    rng = np.random.default_rng(0)
    maps = [
        (torch.from_numpy(rng.standard_normal((2, 3, 3))), torch.from_numpy(rng.standard_normal((2, 3))))
        for _ in range(3)
    ]
    maps[1][0][1] = 0.0
    result = equalized(maps)
    assert all(torch.equal(new[0][1], old[0][1]) for new, old in zip(result, maps, strict=True))
    norms = torch.stack([weight[0].norm() for weight, _ in result])
    torch.testing.assert_close(norms, norms[:1].expand(3), rtol=1e-12, atol=0)
    for new, old in zip(composed(result), composed(maps), strict=True):
        torch.testing.assert_close(new, old, rtol=1e-12, atol=1e-13)


def test_a_merged_mode_of_a_nonlinear_model_changes_nothing() -> None:
    """A mode without amplitude becomes half of another, whose readout the two share: their states must not change."""
    settings = config(activation="tanh", width=3)
    (ensemble,) = build(SSM, [Replica(0, settings, 0, 0.01)], Signature(1, 1, 12), torch.float64, slots)
    named = ensemble.layout.named(ensemble.initial)
    named["readout_weight"][..., 1] = 0.0
    weights = ensemble.layout.flat(named)
    inputs = torch.from_numpy(np.random.default_rng(3).standard_normal((4, 12, 1)))
    rows = torch.zeros(ensemble.rows, dtype=torch.long)
    assert pruning.by_amplitude(ensemble, weights)[0, -3] == 1  # the weakest of the three that exist
    merged = pruning.merge(ensemble, weights, rows + 1, rows + 2)
    before, after = (ensemble.model.outputs(ensemble.layout.named(w), inputs)[0] for w in (weights, merged))
    assert not torch.equal(weights[0], merged[0])
    torch.testing.assert_close(after, before, rtol=1e-12, atol=1e-13)


class TestTanh(ModelSuite):
    model = "ssm"
    config = config(activation="tanh")


class TestFreeBasis(ModelSuite):
    model = "ssm"
    config = config(basis="free")


class TestMLP(ModelSuite):
    model = "ssm"
    config = config(form="mlp", activation="tanh")


class TestLinearMLPInAFreeBasis(ModelSuite):
    model = "ssm"
    config = config("softplus", form="mlp", basis="free")


del ModelSuite  # pytest would collect the bare suite too
