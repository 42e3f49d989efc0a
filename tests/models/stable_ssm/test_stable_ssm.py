"""The StableSSM layer against brute force: its discretization, kernel, convolution, mix, gauge and signs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor, nn

from engine import noise, weights_of, with_random
from memsweep import registry
from memsweep.models.base import Signature
from memsweep.models.parameterizations.base import build
from memsweep.models.parameterizations.maps import Best, Direct, Relu
from memsweep.models.stable_ssm.layer import _CausalConvolution, causal_convolution, discretized, kernel, layer_norm
from memsweep.models.stable_ssm.model import StableSSM
from memsweep.testing import ModelSuite
from paths import ROOT

registry.discover(ROOT)
PARAMETERIZATIONS = registry.names(registry.PARAMETERIZATION)
LINEAR: dict[str, Any] = {"activation": "linear", "glu": False, "layer_norm": False}


def config(parameterization: Any = None, **fields: Any) -> StableSSM.Config:
    fields = {"width": 3, "state_size": 8} | fields
    if parameterization is not None:
        fields["parameterization"] = parameterization
    return StableSSM.Config(**fields)


def default_of(parameterization: str) -> Any:
    return registry.get(registry.PARAMETERIZATION, parameterization).Config()


def model(chosen: StableSSM.Config, signature: Signature | None = None, seed: int = 0) -> StableSSM:
    """Random biases and skips everywhere."""
    return with_random(
        ("bias", "norm", "skip"), StableSSM(chosen, signature or Signature(2, 3, 30), np.random.default_rng(seed)), seed
    )


class TestLinear(ModelSuite):
    model = "stable_ssm"
    config = config(**LINEAR, initialization="spread")
    signature = Signature(inputs=2, outputs=3, horizon=20)


class TestLinearWithoutResidual(ModelSuite):
    model = "stable_ssm"
    config = config(Direct.Config(), **LINEAR, residual=False, frequency="relative")


class TestLinearBare(ModelSuite):
    model = "stable_ssm"
    config = config(**LINEAR, residual=False, skip=False, initialization="spread")
    signature = Signature(inputs=1, outputs=2, horizon=20)


class TestDeep(ModelSuite):
    model = "stable_ssm"
    config = config(Best.Config(), layers=3, initialization="spread")
    signature = Signature(inputs=2, outputs=3, horizon=100)


class TestPlainLayers(ModelSuite):
    model = "stable_ssm"
    config = config(layers=2, activation="tanh", glu=False, layer_norm=False, residual=False, skip=False)


def test_a_step_solves_the_differential_equation() -> None:
    """Input held over a step: the matrix exponential of the system and its input, joined."""
    rate, frequency, log_dt = noise(1, 2, 3).abs(), noise(1, 2, 3, seed=4), noise(1, 2, seed=5)
    eigenvalues, gain = discretized(rate, frequency, log_dt)
    for channel in range(2):
        dt = math.exp(float(log_dt[0, channel]))
        for mode in range(3):
            a = complex(-rate[0, channel, mode], frequency[0, channel, mode])
            joined = scipy.linalg.expm(dt * np.array([[a, 1.0], [0.0, 0.0]]))
            assert complex(eigenvalues[0, channel, mode]) == pytest.approx(joined[0, 0], rel=1e-13)
            assert complex(gain[0, channel, mode]) == pytest.approx(joined[0, 1], rel=1e-12)


@pytest.mark.parametrize("size", [0.0, 1e-13, 1e-7, 0.99e-4, 1.01e-4, 1e-2])
def test_the_input_weight_of_slow_modes(size: float) -> None:
    """(e^z - 1)/z and its derivative by their series, however small z is: nothing cancels, nothing is 0/0."""
    rate = torch.full((1, 1, 1), size, dtype=torch.float64, requires_grad=True)
    frequency = torch.full((1, 1, 1), 0.5 * size, dtype=torch.float64)
    _, gain = discretized(rate, frequency, torch.zeros(1, 1, dtype=torch.float64))
    z = complex(-size, 0.5 * size)
    assert gain.item() == pytest.approx(sum(z**n / math.factorial(n + 1) for n in range(12)), rel=1e-14)
    gain.real.sum().backward()
    slope = sum(n * z ** (n - 1) / math.factorial(n + 1) for n in range(1, 12))
    assert rate.grad is not None
    assert float(rate.grad) == pytest.approx(-slope.real, rel=1e-9)


def test_the_kernel_is_the_answer_of_conjugate_pairs() -> None:
    """A real system of 2 S states per channel, stepped through time."""
    rate, frequency, log_dt = noise(1, 2, 3).abs(), noise(1, 2, 3, seed=4), noise(1, 2, seed=5)
    output = torch.complex(noise(1, 2, 3, seed=6), noise(1, 2, 3, seed=7))
    found = kernel(output, *discretized(rate, frequency, log_dt), 25)
    for channel in range(2):
        dt = math.exp(float(log_dt[0, channel]))
        answer = np.zeros(25)
        for mode in range(3):
            r, w, c = (
                float(rate[0, channel, mode]),
                float(frequency[0, channel, mode]),
                complex(output[0, channel, mode]),
            )
            # real and imaginary part of one mode, with an input that reaches the real part
            joined = scipy.linalg.expm(dt * np.array([[-r, -w, 1.0], [w, -r, 0.0], [0.0, 0.0, 0.0]]))
            step, state = joined[:2, :2], joined[:2, 2]
            for lag in range(25):
                answer[lag] += 2.0 * (c.real * state[0] - c.imag * state[1])
                state = step @ state
        np.testing.assert_allclose(found[0, channel].numpy(), answer, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 63, 64, 65, 128, 200])
def test_convolution(steps: int) -> None:
    x, response = noise(3, steps, 4), noise(3, steps, seed=8)
    found = causal_convolution(x, response)
    for row, sequence in np.ndindex(3, 4):
        expected = np.convolve(x[row, :, sequence], response[row])[:steps]
        np.testing.assert_allclose(found[row, :, sequence].numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("first", [1, 49, 50, 51, 150, 199])
def test_the_past_keeps_its_bits_when_the_future_changes(first: int) -> None:
    x, response = noise(3, 200, 4), noise(3, 200, seed=8)
    changed = x.clone()
    changed[:, first:] += 1e6
    before, after = causal_convolution(x, response), causal_convolution(changed, response)
    assert torch.equal(before[:, :first], after[:, :first])
    assert not torch.equal(before[:, first], after[:, first])


@pytest.mark.parametrize("steps", [3999, 4000, 4096, 4500])
def test_long_convolutions_agree_with_products(steps: int) -> None:
    """On both sides of the border, where transforms lead from block to block; the past keeps its bits there, too."""
    x, response = noise(2, steps, 3).requires_grad_(), noise(2, steps, seed=8).requires_grad_()
    upstream = noise(2, steps, 3, seed=9)
    found = causal_convolution(x, response)
    expected = _CausalConvolution.apply(x, response, 64)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for one, other in zip(
        torch.autograd.grad(found, (x, response), upstream),
        torch.autograd.grad(expected, (x, response), upstream),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    changed = x.detach().clone()
    changed[:, 3500:] += 1e6
    assert torch.equal(causal_convolution(changed, response)[:, :3500], found[:, :3500])


def test_convolution_and_discretization_differentiate() -> None:
    x, response = noise(2, 11, 2).requires_grad_(), noise(2, 11, seed=8).requires_grad_()
    for most in (1, 4, 5, 11, 64):
        assert torch.autograd.gradcheck(lambda a, b, most=most: causal_convolution(a, b, most), (x, response))
    parts = [noise(1, 2, 3).abs().requires_grad_(), noise(1, 2, 3, seed=4).requires_grad_()]
    parts += [noise(1, 2, seed=5).requires_grad_(), noise(1, 2, 3, seed=6).requires_grad_()]

    def answers(rate: Tensor, frequency: Tensor, log_dt: Tensor, output: Tensor) -> Tensor:
        return kernel(torch.complex(output, 0.5 * output), *discretized(rate, frequency, log_dt), 9)

    assert torch.autograd.gradcheck(answers, parts)


def test_layer_norm_is_torch_s() -> None:
    norm = nn.LayerNorm(5).double()
    weight, bias, x = noise(5), noise(5, seed=4), noise(1, 5, 7, 2, seed=5)
    norm.load_state_dict({"weight": weight, "bias": bias})
    found = layer_norm(x, weight.unsqueeze(0), bias.unsqueeze(0))
    torch.testing.assert_close(found, norm(x.movedim(1, -1)).movedim(-1, 1), rtol=1e-12, atol=1e-12)


ACTIVATIONS = {
    "gelu": nn.GELU(),
    "linear": nn.Identity(),
    "tanh": nn.Tanh(),
    "hardtanh": nn.Hardtanh(),
    "relu": nn.ReLU(),
}


def by_hand(built: StableSSM, inputs: Tensor) -> Tensor:
    """The model by a complex recurrence over time and torch's own modules: ``[B, T, O]``."""
    chosen, weights = built.config, {name: weight.detach() for name, weight in built.named_parameters()}
    x = nn.functional.linear(inputs, weights["encoder_weight"], weights["encoder_bias"])
    for layer in range(chosen.layers):
        own = {
            name.removesuffix(f"_l{layer}"): weight for name, weight in weights.items() if name.endswith(f"_l{layer}")
        }
        dt = own["log_dt"].exp()[:, None]
        rate = build(chosen.parameterization).rate(own["raw_rate"])
        a = torch.complex(-rate, own["frequency"] * (rate if chosen.frequency == "relative" else 1.0))
        c = torch.complex(own["output_re"], own["output_im"])
        state = torch.zeros(len(inputs), *a.shape, dtype=torch.complex128)
        answers = []
        for now in x.unbind(1):
            state = torch.exp(dt * a) * state + (torch.exp(dt * a) - 1.0) / a * now[..., None]
            answers.append(2.0 * (c * state).sum(-1).real)
        y = torch.stack(answers, 1)
        if chosen.skip:
            y = y + own["skip"] * x
        y = ACTIVATIONS[chosen.activation](y)
        if chosen.glu:
            mix = nn.Conv1d(chosen.width, 2 * chosen.width, 1).double()
            mix.load_state_dict({"weight": own["glu_weight"].unsqueeze(-1), "bias": own["glu_bias"]})
            y = nn.GLU(dim=1)(mix(y.transpose(1, 2))).transpose(1, 2)
        if chosen.residual:
            y = y + x
        if chosen.layer_norm:
            y = nn.functional.layer_norm(y, (chosen.width,), own["norm_weight"], own["norm_bias"])
        x = y
    return nn.functional.linear(x, weights["readout_weight"], weights["readout_bias"])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"layers": 2, "initialization": "spread"},
        {"frequency": "relative", "layers": 2, "initialization": "spread"},
        *({"activation": name, "layers": 2} for name in ("linear", "tanh", "hardtanh", "relu")),
        *({name: False} for name in ("skip", "glu", "residual", "layer_norm")),
        LINEAR,
    ],
)
def test_outputs_are_those_of_the_recurrence(fields: dict[str, Any]) -> None:
    built, inputs = model(config(**fields)), noise(4, 30, 2)
    torch.testing.assert_close(built(inputs), by_hand(built, inputs), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", PARAMETERIZATIONS)
@pytest.mark.parametrize("scheme", ["published", "spread"])
def test_every_parameterization_starts_with_decaying_kernels(name: str, scheme: str) -> None:
    """The code published with the paper starts ``direct`` with growing ones: its sign is wrong."""
    chosen = config(default_of(name), **LINEAR, residual=False, skip=False, dt_min=0.05, initialization=scheme)
    built = model(chosen, Signature(1, 1, 50))
    sizes = built.eigenvalues(weights_of(built)).abs()
    assert (sizes < 1.0).all()
    if scheme == "published":
        dt = weights_of(built)["log_dt_l0"].exp().repeat_interleave(4, -1)
        torch.testing.assert_close(-sizes.log() / dt, torch.full_like(dt, 0.5), rtol=1e-9, atol=0)
    answers = built.response(weights_of(built), 600).kernel.abs()[0, 0, 0]
    assert answers[500:].max() < 1e-3 * answers[:100].max()


def test_with_relative_frequencies_a_shift_of_exp_dilates_time() -> None:
    """dt A becomes e^s dt A, rotation and all; a free frequency stays and turns more often in a longer life."""
    for name, factor in (("relative", math.exp(-0.3)), ("free", 1.0)):
        built = model(config(initialization="spread", frequency=name))
        weights = weights_of(built)
        before = built.eigenvalues(weights).log()
        after = built.eigenvalues(weights | {"raw_rate_l0": weights["raw_rate_l0"] - 0.3}).log()
        torch.testing.assert_close(after.real, math.exp(-0.3) * before.real)
        torch.testing.assert_close(after.imag, factor * before.imag)


def test_spread_gives_every_channel_all_time_scales() -> None:
    built = model(config(width=3, state_size=16, initialization="spread"), Signature(1, 1, 400))
    rates = -built.eigenvalues(weights_of(built)).abs().log().reshape(3, 8)
    assert (rates > 1.0 / 401).all()
    assert (rates < 1.0).all()
    assert (rates.amin(-1) < 400**-0.75).all()
    assert (rates.amax(-1) > 400**-0.25).all()
    turns = built.eigenvalues(weights_of(built)).angle().reshape(3, 8)
    assert (turns <= 0.1 * rates).all()


def test_a_dead_mode_integrates() -> None:
    """Rate and frequency 0, as ``relu`` can have them: the kernel is constant, not 0/0, and gradients are finite."""
    built = model(
        config(Relu.Config(), width=1, state_size=2, **LINEAR, residual=False, skip=False), Signature(1, 1, 9)
    )
    with torch.no_grad():
        built.get_parameter("raw_rate_l0").fill_(-1.0)
        built.get_parameter("frequency_l0").fill_(0.0)
    weights = {name: weight.unsqueeze(0) for name, weight in built.named_parameters()}
    answers = built.response(weights, 9).kernel
    product = weights["encoder_weight"] * weights["readout_weight"] * weights["output_re_l0"]
    expected = 2.0 * product * weights["log_dt_l0"].exp().unsqueeze(-1)
    torch.testing.assert_close(answers, expected.unsqueeze(-1).expand(-1, -1, -1, 9), rtol=1e-12, atol=0)
    answers.square().sum().backward()
    assert all(torch.isfinite(weight.grad).all() for weight in built.parameters() if weight.grad is not None)


@pytest.mark.parametrize("residual", [True, False])
def test_balanced_channels(residual: bool) -> None:
    """The same function whatever the scales were, with one gauge for all of them."""
    built = model(config(**LINEAR, residual=residual))
    weights = weights_of(built)
    scale = torch.tensor([0.01, 3.0, 100.0]).double()
    moved = weights | {
        "encoder_weight": weights["encoder_weight"] * scale[:, None],
        "encoder_bias": weights["encoder_bias"] * scale,
        "readout_weight": weights["readout_weight"] / scale,
    }
    if not residual:
        free = torch.tensor([7.0, 0.1, 30.0]).double()
        moved |= {name: moved[name] * free[:, None] for name in ("output_re_l0", "output_im_l0")}
        moved |= {"skip_l0": moved["skip_l0"] * free, "readout_weight": moved["readout_weight"] / free}
    balanced, again = built.balanced(weights), built.balanced(moved)
    for name, value in balanced.items():
        torch.testing.assert_close(again[name], value, rtol=1e-9, atol=1e-12)
    output = torch.cat([balanced["output_re_l0"], balanced["output_im_l0"]], -1).norm(dim=-1)
    encoder, readout = balanced["encoder_weight"].norm(dim=-1), balanced["readout_weight"].norm(dim=-2)
    torch.testing.assert_close(encoder.square(), output.square() + readout.square(), rtol=1e-10, atol=0)
    if not residual:
        torch.testing.assert_close(output, readout, rtol=1e-10, atol=0)
    before, after = built.response(moved, 30), built.response(balanced, 30)
    torch.testing.assert_close(after.kernel, before.kernel, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(after.drift, before.drift, rtol=1e-9, atol=1e-11)
