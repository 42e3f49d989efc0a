"""The dense RNN against brute force: its basis, recurrence, response, gauge, and what packing may not change."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from engine import noise, weights_of, with_random
from memsweep import registry
from memsweep.learning.ensemble.flat_layout import slots
from memsweep.learning.ensemble.replicas import Replica, build
from memsweep.models.base import Signature, as_linear
from memsweep.models.modal.dense_rnn import DenseRNN
from memsweep.models.modal.diagonal_rnn import DiagonalRNN
from memsweep.models.orthogonal_maps import random_orthogonal, random_symmetric, rotation
from memsweep.models.parameterizations.maps import Direct, Exp, Relu, Softplus
from memsweep.testing import ModelSuite
from paths import ROOT

registry.discover(ROOT)
FREE = {"basis": "free", "discretization": "euler"}
ACTIVATIONS = {
    "linear": lambda z: z,
    "hardtanh": lambda z: np.clip(z, -1.0, 1.0),
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0.0),
}


def config(parameterization: Any = None, **fields: Any) -> DenseRNN.Config:
    return DenseRNN.Config(**{"width": 5, "parameterization": parameterization or Exp.Config()} | fields)


def model(chosen: DenseRNN.Config, signature: Signature | None = None, seed: int = 0) -> DenseRNN:
    """Random biases everywhere."""
    return with_random(("bias",), DenseRNN(chosen, signature or Signature(2, 3, 30), np.random.default_rng(seed)), seed)


class TestTanh(ModelSuite):
    model = "dense_rnn"
    config = config(Softplus.Config(), activation="tanh")
    signature = Signature(inputs=2, outputs=3, horizon=12)


class TestNormalized(ModelSuite):
    model = "dense_rnn"
    config = config(normalize=True, dt=0.5)
    signature = Signature(inputs=2, outputs=3, horizon=12)


class TestNormalizedHardtanh(ModelSuite):
    model = "dense_rnn"
    config = config(normalize=True, activation="hardtanh", dt=0.5, width=8)


class TestFree(ModelSuite):
    model = "dense_rnn"
    config = config(Softplus.Config(), **FREE, dt=0.5)
    signature = Signature(inputs=2, outputs=3, horizon=12)


class TestFreeRelu(ModelSuite):
    model = "dense_rnn"
    config = config(**FREE, activation="relu")


class TestOfOneUnit(ModelSuite):
    model = "dense_rnn"
    config = config(width=1)


class TestPublished(ModelSuite):
    model = "dense_rnn"
    config = config(Softplus.Config(), **FREE, initialization="published", width=6)


# ---- orthogonal matrices


def test_padding_leaves_a_rotation_alone() -> None:
    """Exactly: the padded axes stay where they are, and no bit of the others reaches them."""
    generator = torch.zeros(1, 8, 8, dtype=torch.float64)
    generator[0, :5, :5] = noise(5, 5)
    found = rotation(generator)[0]
    assert torch.equal(found[5:, 5:], torch.eye(3).double())
    assert not found[:5, 5:].any()
    assert not found[5:, :5].any()
    torch.testing.assert_close(found[:5, :5], rotation(generator[:, :5, :5])[0], rtol=0, atol=1e-14)


def test_random_orthogonal_matrices_are_uniform() -> None:
    """The entries of a Haar matrix: mean 0, variance 1/M, fourth moment 3 / (M (M + 2)); the plain QR has a sign."""
    rng, width, count = np.random.default_rng(0), 4, 4000
    drawn = np.stack([random_orthogonal(width, rng) for _ in range(count)])
    np.testing.assert_allclose(
        drawn @ drawn.transpose(0, 2, 1), np.broadcast_to(np.eye(width), drawn.shape), atol=1e-13
    )
    corner = drawn[:, 0, 0]
    assert abs(corner.mean()) < 4 * 0.5 / np.sqrt(count)
    assert np.mean(corner**2) == pytest.approx(1 / width, rel=0.06)
    assert np.mean(corner**4) == pytest.approx(3 / (width * (width + 2)), rel=0.1)
    assert np.mean(np.linalg.det(drawn) > 0) == pytest.approx(0.5, abs=0.04)


def test_random_symmetric_matrices_have_the_wanted_eigenvalues() -> None:
    wanted = np.array([0.1, 0.5, 0.9, 0.99])
    matrix = random_symmetric(wanted, np.random.default_rng(0))
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-15)
    np.testing.assert_allclose(np.linalg.eigvalsh(matrix), wanted, rtol=1e-13)
    assert np.abs(matrix - np.diag(np.diagonal(matrix))).max() > 0.01


# ---- the recurrence


def dense(built: DenseRNN) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Recurrent increment P^T diag(lambda - 1) P / dt and gain of the input, built densely from the weights."""
    chosen = built.config
    weights = {name: value[0].numpy() for name, value in weights_of(built).items()}
    rate = {"exp": np.exp, "softplus": lambda w: np.log1p(np.exp(w)), "direct": lambda w: w}[
        chosen.parameterization.name
    ](weights["recurrent_weight"])
    exact = chosen.discretization == "exact" and chosen.parameterization.name != "direct"
    eigenvalue = np.exp(-rate * chosen.dt) if exact else 1.0 - rate * chosen.dt
    basis = weights["basis"]
    if chosen.basis == "orthogonal":
        basis = scipy.linalg.expm((basis - basis.T) / 2.0)
    increment = basis.T @ np.diag(eigenvalue - 1.0) @ basis / chosen.dt
    gain = basis.T @ np.diag(np.sqrt(1.0 - eigenvalue**2)) @ basis if chosen.normalize else np.eye(chosen.width)
    return increment, gain, weights


def by_hand(built: DenseRNN, inputs: Tensor) -> np.ndarray:
    increment, gain, weights = dense(built)
    chosen = built.config
    answers = np.zeros((*inputs.shape[:2], len(weights["readout_bias"])))
    for sequence, x in enumerate(inputs.numpy()):
        state = np.zeros(chosen.width)
        for time, now in enumerate(x):
            drive = gain @ (weights["encoder_weight"] @ now + weights["encoder_bias"]) / chosen.dt
            state = state + chosen.dt * ACTIVATIONS[chosen.activation](increment @ state + drive)
            answers[sequence, time] = weights["readout_weight"] @ state + weights["readout_bias"]
    return answers


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"dt": 0.3, "discretization": "euler"},
        {"normalize": True, "dt": 0.5},
        {"parameterization": Softplus.Config()},
        {"parameterization": Direct.Config()},
        FREE,
        {**FREE, "dt": 0.3, "parameterization": Softplus.Config()},
    ],
)
def test_outputs_are_those_of_the_recurrence(fields: dict[str, Any], activation: str) -> None:
    built, inputs = model(config(**fields, activation=activation)), noise(4, 30, 2)
    np.testing.assert_allclose(built(inputs).detach().numpy(), by_hand(built, inputs), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("fields", [{}, {"normalize": True, "dt": 0.5}, {"activation": "linear", "dt": 2.0}])
def test_orthogonal_and_linear_is_a_diagonal_rnn_in_other_axes(fields: dict[str, Any]) -> None:
    built = model(config(**fields))
    shared = {field.name: getattr(built.config, field.name) for field in dataclasses.fields(DiagonalRNN.Config)}
    diagonal = DiagonalRNN(DiagonalRNN.Config(**shared), built.signature)
    modal = built.modal(weights_of(built))
    modal.pop("basis")
    found, expected = built.response(weights_of(built), 30), diagonal.response(modal, 30)
    torch.testing.assert_close(found.kernel, expected.kernel, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(built.eigenvalues(weights_of(built)), diagonal.eigenvalues(modal), rtol=0, atol=0)
    inputs = noise(4, 30, 2)
    torch.testing.assert_close(built(inputs).unsqueeze(0), diagonal.outputs(modal, inputs), rtol=1e-11, atol=1e-12)


def test_the_published_code_in_two_steps() -> None:
    """h <- h + sigma(u x + b - P^T diag(relu(w)) P h), with numbers that can be followed on paper."""
    built = DenseRNN(config(Relu.Config(), **FREE, width=2, activation="hardtanh"), Signature(1, 1, 2))
    weights = {
        "recurrent_weight": [0.5, -1.0],  # the second is clamped to 0
        "basis": [[1.0, 1.0], [0.0, 2.0]],  # P^T diag(0.5, 0) P = [[0.5, 0.5], [0.5, 0.5]]
        "encoder_weight": [[1.0], [-2.0]],
        "encoder_bias": [0.25, 0.0],
        "readout_weight": [[1.0, 10.0]],
        "readout_bias": [0.5],
    }
    built.load_state_dict({name: torch.tensor(value).double() for name, value in weights.items()})
    # h_1 = sigma(0.5 + 0.25, -1) = (0.75, -1); h_2 = h_1 + sigma((1.25, -2) + 0.125) = (1.75, -2)
    answers = built(torch.tensor([[[0.5], [1.0]]]).double()).flatten().tolist()
    assert answers == pytest.approx([0.5 + 0.75 - 10.0, 0.5 + 1.75 - 20.0])


# ---- eigenvalues and stability


def test_a_free_basis_can() -> None:
    """The way in which the published softplus models blow up: sigma_max(P)^2 f > 2."""
    built = model(config(Softplus.Config(), **FREE))
    weights = weights_of(built)
    assert (built.eigenvalues(weights).abs() < 1.0).all()
    grown = weights | {"basis": 3.0 * weights["basis"]}
    assert built.eigenvalues(grown).abs().max() > 1.0
    step = torch.from_numpy(np.eye(5) + 9.0 * dense(built)[0])
    torch.testing.assert_close(built.eigenvalues(grown)[0], torch.linalg.eigvalsh(step), rtol=1e-12, atol=1e-13)


# ---- packs, modes, gauge


def test_padding_never_moves() -> None:
    """No gradient reaches a weight that does not exist, through basis or modes, but for its own raw rate."""
    (ensemble,) = build(DenseRNN, [Replica(0, config(width=5), 0, 0.01)], Signature(1, 1, 20), torch.float64, slots)
    flat = ensemble.initial.clone().requires_grad_()
    linear = as_linear(ensemble.model)
    assert linear is not None
    response = linear.response(ensemble.layout.named(flat), 20)
    (gradient,) = torch.autograd.grad(response.kernel[0].square().sum(), flat)
    named = ensemble.layout.named(gradient)
    assert not named["basis"][0, 5:].any()
    assert not named["basis"][0, :, 5:].any()
    assert not named["recurrent_weight"][0, 5:].any()
    assert named["basis"][0, :5, :5].any()


# ---- initial weights and configs


def test_the_initial_basis_is_no_small_turn() -> None:
    """Angles all over the half circle, and a free basis that starts orthogonal."""
    drawn = DenseRNN.initial(config(width=200), Signature(1, 1, 20), np.random.default_rng(0))["basis"]
    angles = np.abs(np.linalg.eigvals((drawn - drawn.T) / 2.0).imag)
    assert 2.6 < angles.max() < np.pi
    assert np.mean(angles) == pytest.approx(2.83 * 4 / (3 * np.pi), rel=0.05)  # of a semicircle law
    free = DenseRNN.initial(config(**FREE, width=20), Signature(1, 1, 20), np.random.default_rng(0))["basis"]
    np.testing.assert_allclose(free @ free.T, np.eye(20), atol=1e-14)
