"""The recurrent units beside what they are known as elsewhere, and under every choice of their Configs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.models.deep.unit_gru import GRUUnit
from memsweep.models.deep.unit_lru import LRUUnit
from memsweep.models.deep.unit_rnn import RNNUnit
from memsweep.models.initialization import lecun_normal, truncated_normal
from memsweep.testing import OnlineUnitSuite

CHOICES = {
    "RnnTanh": RNNUnit.Config(activation="tanh"),
    "RnnRelu": RNNUnit.Config(activation="relu"),
    "LruExactGamma": LRUUnit.Config(gamma="exact"),
    "LruPlain": LRUUnit.Config(normalize=False),
}
for _name, _config in CHOICES.items():
    globals()[f"Test{_name}"] = type(f"Test{_name}", (OnlineUnitSuite,), {"unit": _config.name, "config": _config})
del OnlineUnitSuite  # pytest would collect the bare suite too


def of(unit, seed=0, shift=0.0):
    drawn = unit.initial(10, np.random.default_rng(seed))
    return {name: torch.from_numpy(value + shift).unsqueeze(0).requires_grad_() for name, value in drawn.items()}


def inputs(features, seed=1):
    return torch.randn(1, 4, 9, features, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def gradients(states, live):
    outer = torch.randn(states.shape, dtype=states.dtype, generator=torch.Generator().manual_seed(2))
    return torch.autograd.grad(states, live, outer)


def test_gru_is_torchs_with_the_other_share():
    """torch.nn.GRU's update gate says how much of a state stays; states and gradients are the same."""
    unit, x_NBTF = GRUUnit(GRUUnit.Config(), 5, 5), inputs(5)
    weights = of(unit, shift=0.1)
    theirs = torch.nn.GRU(5, 5, batch_first=True, dtype=torch.float64)

    def joined(kind, last):
        return torch.cat([weights[f"{kind}_reset"][0], -weights[f"{kind}_update"][0], last[0]])

    with torch.no_grad():
        theirs.weight_ih_l0.copy_(joined("encoder", weights["encoder_candidate"]))
        theirs.weight_hh_l0.copy_(joined("matrix", weights["matrix_candidate"]))
        theirs.bias_ih_l0.copy_(joined("bias", weights["bias_candidate"]))
        theirs.bias_hh_l0.zero_()
        theirs.bias_hh_l0[10:] = weights["bias_recalled"][0]
    states = unit.states(unit.parts(weights), x_NBTF)
    expected, _ = theirs(x_NBTF[0])
    torch.testing.assert_close(states[0], expected, rtol=1e-12, atol=1e-12)
    found = dict(zip(weights, gradients(states, list(weights.values())), strict=True))
    encoder, matrix, bias, recalled = gradients(
        expected.unsqueeze(0), [theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0, theirs.bias_hh_l0]
    )
    for kind, whole in (("encoder", encoder), ("matrix", matrix), ("bias", bias)):
        for sign, gate, rows in zip((1, -1, 1), ("reset", "update", "candidate"), whole.chunk(3), strict=True):
            torch.testing.assert_close(found[f"{kind}_{gate}"][0], sign * rows, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(found["bias_recalled"][0], recalled[10:], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_rnn_shows_the_states_of_torchs_before_the_activation(activation):
    unit = RNNUnit(RNNUnit.Config(activation=activation), 5, 3)
    weights = of(unit)
    theirs = torch.nn.RNN(3, 5, nonlinearity=activation, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(weights["encoder"][0])
        theirs.weight_hh_l0.copy_(weights["matrix"][0])
    states = unit.states(unit.parts(weights), inputs(3))
    expected, _ = theirs(inputs(3)[0])
    torch.testing.assert_close(getattr(torch, activation)(states[0]), expected, rtol=1e-12, atol=1e-12)
    assert (states[0] - expected).abs().max() > 0.1


def test_linear_rnn_answers_with_its_convolution():
    """y_t = C sum_s A^s B x_{t-s} + D x_t, by powers of the matrix."""
    unit, x_NBTF = RNNUnit(RNNUnit.Config(), 5, 3), inputs(3)
    weights = of(unit)
    matrix, encoder = weights["matrix"][0], weights["encoder"][0]
    expected = x_NBTF[0] * weights["skip"][0]
    for lag in range(9):
        kernel = weights["readout"][0] @ torch.linalg.matrix_power(matrix, lag) @ encoder
        expected[:, lag:] = expected[:, lag:] + x_NBTF[0, :, : 9 - lag] @ kernel.T
    found = unit.answers(weights, unit.states(unit.parts(weights), x_NBTF), x_NBTF)
    torch.testing.assert_close(found[0], expected, rtol=1e-12, atol=1e-12)


def test_truncated_normal_numbers_are_jaxs():
    """Variance 0.774 within two deviations; lecun's are scaled to 1 / inputs, so that they end at 2.27 deviations."""
    numbers = truncated_normal((400, 500), np.random.default_rng(0))
    assert np.abs(numbers).max() < 2.0
    assert numbers.var() == pytest.approx(0.7737, rel=0.01)
    scaled = lecun_normal(400, 500, np.random.default_rng(0)) * np.sqrt(500)
    assert scaled.var() == pytest.approx(1.0, rel=0.01)
    assert 2.2 < np.abs(scaled).max() < 2.2737


def test_the_initial_rnn_forgets():
    """Its eigenvalues fill a disk of radius sqrt(0.774) = 0.88: entries of variance 1 / M would end near 1."""
    unit = RNNUnit(RNNUnit.Config(), 300, 4)
    eigenvalues = unit.eigenvalues(of(unit)).detach().abs()
    assert float(eigenvalues.square().mean()) == pytest.approx(0.774 / 2, rel=0.05)


def test_a_gru_of_another_size_is_refused():
    (found,) = list(ResidualStack.Config(unit=GRUUnit.Config(), width=8, features=4).problems())
    assert "width is 8 and features is 4: give both the same value" in found
    assert not list(ResidualStack.Config(unit=GRUUnit.Config(), width=8, features=8).problems())
