"""The vanilla RNN against torch.nn.RNN, against brute force, and against what theory says of its memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engine import noise, weights_of, with_random
from memsweep import registry
from memsweep.learning.ensemble.replicas import Replica, build, stability_margin
from memsweep.models.base import Signature
from memsweep.models.matrix.vanilla_rnn import VanillaRNN
from memsweep.stability.memory_function import memory_function, step_memory
from memsweep.testing import ModelSuite
from paths import ROOT

registry.discover(ROOT)
SIGNATURE = Signature(inputs=2, outputs=3, horizon=15)
DEEP = {"layers": 3, "dropout": 0.3}


def config(**fields: Any) -> VanillaRNN.Config:
    return VanillaRNN.Config(**{"width": 5} | fields)


def model(chosen: VanillaRNN.Config, signature: Signature = SIGNATURE, seed: int = 0) -> VanillaRNN:
    """Random biases everywhere."""
    return with_random(("bias",), VanillaRNN(chosen, signature, np.random.default_rng(seed)), seed)


class TestRelu(ModelSuite):
    model = "vanilla_rnn"
    config = config(activation="relu", initialization="published")
    signature = SIGNATURE


class TestLinear(ModelSuite):
    model = "vanilla_rnn"
    config = config(activation="linear")
    signature = SIGNATURE


class TestPublishedLinear(ModelSuite):
    """A recurrent matrix that is not symmetric, whose eigenvalues are complex."""

    model = "vanilla_rnn"
    config = config(activation="linear", initialization="published", width=8)


class TestDeepHardtanh(ModelSuite):
    model = "vanilla_rnn"
    config = config(activation="hardtanh", **DEEP)
    signature = SIGNATURE


class TestBidirectional(ModelSuite):
    model = "vanilla_rnn"
    config = config(bidirectional=True, layers=2)
    signature = SIGNATURE
    causal = False


# ---- torch.nn.RNN


def reference(built: VanillaRNN) -> tuple[nn.RNN, nn.Linear]:
    """torch's own modules with the model's weights, loaded by name."""
    chosen, state = built.config, built.state_dict()
    rnn = nn.RNN(
        built.signature.inputs,
        chosen.width,
        chosen.layers,
        nonlinearity=chosen.activation,
        batch_first=True,
        bidirectional=chosen.bidirectional,
    ).double()
    recurrent = {name: value for name, value in state.items() if not name.startswith("readout")}
    rnn.load_state_dict(recurrent, strict=True)
    readout = nn.Linear(state["readout_weight"].shape[1], built.signature.outputs).double()
    readout.load_state_dict({name: state[f"readout_{name}"] for name in ("weight", "bias")}, strict=True)
    return rnn, readout


TORCH = [
    {"activation": activation, "layers": layers, "bidirectional": bidirectional, "initialization": scheme}
    for activation in ("tanh", "relu")
    for layers in (1, 2, 3)
    for bidirectional in (False, True)
    for scheme in ("spread", "published")
]


@pytest.mark.parametrize("fields", TORCH)
def test_outputs_and_gradients_are_torch_s(fields: dict[str, Any]) -> None:
    built, inputs, weight = model(config(**fields)), noise(4, 15, 2), noise(4, 15, 3, seed=8)
    rnn, readout = reference(built)
    found, expected = built(inputs), readout(rnn(inputs)[0])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    wanted = dict(rnn.named_parameters()) | {f"readout_{name}": value for name, value in readout.named_parameters()}
    for name, value in built.named_parameters():
        torch.testing.assert_close(value.grad, wanted[name].grad, rtol=1e-10, atol=1e-11)


def test_published_initial_weights_are_drawn_as_torch_draws_them() -> None:
    """The same bounds and the same uniform law, for every weight of RNN and Linear."""
    chosen = config(width=100, layers=2, initialization="published")
    drawn = VanillaRNN.initial(chosen, SIGNATURE, np.random.default_rng(0))
    rnn, readout = nn.RNN(2, 100, 2), nn.Linear(100, 3)
    theirs = dict(rnn.named_parameters()) | {f"readout_{name}": value for name, value in readout.named_parameters()}
    assert set(drawn) == set(theirs)
    for name, value in drawn.items():
        assert value.shape == theirs[name].shape
        for values in (value, theirs[name].detach().numpy()):
            assert np.abs(values).max() <= 0.1 + 1e-7
            if values.size >= 100:
                assert values.std() == pytest.approx(0.1 / math.sqrt(3.0), rel=0.2)
                assert abs(values.mean()) < 4 * 0.1 / math.sqrt(3.0 * values.size)


# ---- brute force


@pytest.mark.parametrize("activation", ["linear", "hardtanh"])
@pytest.mark.parametrize("layers", [1, 2])
def test_activations_that_torch_has_not(activation: str, layers: int) -> None:
    built, inputs = model(config(activation=activation, layers=layers)), 2.0 * noise(4, 15, 2)
    weights = {name: value[0].numpy() for name, value in weights_of(built).items()}
    x = inputs.numpy()
    for layer in range(layers):
        states = np.zeros((4, 15, 5))
        for time in range(15):
            before = states[:, time - 1] if time else np.zeros((4, 5))
            z = x[:, time] @ weights[f"weight_ih_l{layer}"].T + weights[f"bias_ih_l{layer}"]
            z = z + before @ weights[f"weight_hh_l{layer}"].T + weights[f"bias_hh_l{layer}"]
            states[:, time] = z if activation == "linear" else np.clip(z, -1.0, 1.0)
        x = states
    expected = x @ weights["readout_weight"].T + weights["readout_bias"]
    np.testing.assert_allclose(built(inputs).detach().numpy(), expected, rtol=1e-11, atol=1e-12)
    assert activation == "linear" or (np.abs(x) == 1.0).any()


def test_the_response_of_a_linear_one() -> None:
    built = model(config(activation="linear", initialization="published"))
    weights = {name: value[0].numpy() for name, value in weights_of(built).items()}
    found = built.response(weights_of(built), 40)
    power, drift = np.eye(5), weights["readout_bias"].copy()
    for lag in range(40):
        answers = weights["readout_weight"] @ power
        drift = drift + answers @ (weights["bias_ih_l0"] + weights["bias_hh_l0"])
        np.testing.assert_allclose(found.kernel[0, :, :, lag], answers @ weights["weight_ih_l0"], atol=1e-13)
        np.testing.assert_allclose(found.drift[0, :, lag], drift, atol=1e-13)
        power = power @ weights["weight_hh_l0"]


# ---- dropout


def in_training(seeds: list[int], step: int, **fields: Any) -> tuple[VanillaRNN, dict[str, Tensor]]:
    """A model in training, and one and the same weights for every seed."""
    built = model(config(**{"layers": 2, "dropout": 0.25} | fields)).train()
    built.start_step(seeds, step)
    return built, {name: value.expand(len(seeds), *value.shape[1:]) for name, value in weights_of(built).items()}


def test_dropout_keeps_the_mean_and_its_share() -> None:
    """With a second layer that hands its input on, the answers are the first layer's states, dropped or scaled up."""
    built, weights = in_training([7], 0, activation="linear", width=5)
    identity = torch.eye(5).double().unsqueeze(0)
    weights |= {"weight_ih_l1": identity, "weight_hh_l1": torch.zeros(1, 5, 5).double()}
    weights |= {name: torch.zeros(1, 5).double() for name in ("bias_ih_l1", "bias_hh_l1")}
    weights |= {"readout_weight": identity, "readout_bias": torch.zeros(1, 5).double()}
    inputs = noise(200, 15, 2)
    dropped, whole = built.outputs(weights, inputs), built.eval().outputs(weights, inputs)
    share = dropped / whole
    assert set(share.flatten().mul(3.0).round(decimals=9).tolist()) == {0.0, 4.0}
    kept = (share > 0).double().mean((0, 1))
    assert kept.mean() == pytest.approx(0.75, abs=0.02)
    assert (kept - 0.75).abs().max() < 0.15  # every step and every unit, not some of them for all sequences
    assert share.mean() == pytest.approx(1.0, abs=0.02)


def test_dropout_is_a_function_of_seed_and_step() -> None:
    inputs = noise(6, 15, 2)

    def answers(seeds: list[int], step: int) -> Tensor:
        built, weights = in_training(seeds, step)
        return built.outputs(weights, inputs)

    first = answers([1, 2, 3], 4)
    assert torch.equal(answers([1, 2, 3], 4), first)
    torch.testing.assert_close(answers([3], 4)[0], first[2], rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(answers([2, 1], 4), first[[1, 0]], rtol=1e-13, atol=1e-14)
    assert not torch.allclose(first[0], first[1])
    assert not torch.allclose(answers([1], 5)[0], first[0])


# ---- memory and stability


def test_the_memory_of_a_tanh_rnn_decays_exponentially() -> None:
    """A step's increments obey v_t = sigma' W v_{t-1}: |v_t| <= |W|^t |v_0| for steps of any size (|sigma'| <= 1).

    Small steps meet the rate of the slowest mode, and large ones, which saturate the units, forget faster.
    """
    built = model(config(width=4), Signature(1, 1, 60))
    weights = weights_of(built)
    weights |= {name: torch.zeros_like(value) for name, value in weights.items() if "bias" in name}
    norm = float(torch.linalg.matrix_norm(weights["weight_hh_l0"], 2))
    size = float(weights["readout_weight"].norm() * weights["weight_ih_l0"].norm())
    assert norm < 1.0
    memory = memory_function(built, weights, 200)[0]
    bound = size * norm ** torch.arange(200).double()
    assert (memory <= bound * (1 + 1e-9)).all()
    small, large = (step_memory(built, weights, 200, scales=(scale,))[0] for scale in (1e-3, 30.0))
    slowest = float(built.eigenvalues(weights).abs().max())
    assert slowest == pytest.approx(norm, rel=1e-12)  # a symmetric matrix
    rate = float((small[199] / small[149]) ** (1 / 50))
    assert rate == pytest.approx(slowest, rel=1e-4)
    assert large[20] < 0.1 * small[20]


def test_the_margin_and_its_gradient() -> None:
    """Of complex eigenvalues: by finite differences, and nan for weights that are not finite."""
    chosen = config(initialization="published")
    replicas = [Replica(0, chosen, seed, 0.01) for seed in range(2)]
    (ensemble,) = build(VanillaRNN, replicas, Signature(1, 1, 10), torch.float64, None)
    margins = stability_margin(ensemble, ensemble.initial)
    matrices = ensemble.layout.named(ensemble.initial)["weight_hh_l0"].numpy()
    assert margins.tolist() == pytest.approx([1 - np.abs(np.linalg.eigvals(m)).max() for m in matrices], rel=1e-12)
    flat = ensemble.initial.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda weights: stability_margin(ensemble, weights), flat)
    broken = torch.cat([ensemble.initial[:1], torch.full_like(ensemble.initial[:1], torch.inf)])
    assert stability_margin(ensemble, broken).isnan().tolist() == [False, True]


# ---- gauge and configs
