"""The response of independent modes against the recurrence, its hand-written gradient, and scales of their inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import noise, weights_of, with_random
from memsweep.models.base import Signature
from memsweep.models.modal.base import modal_response
from memsweep.models.modal.diagonal_rnn import DiagonalRNN
from memsweep.models.parameterizations.maps import LRU
from memsweep.testing import ModelSuite

NAMES = ("encoder_weight", "encoder_bias", "readout_weight", "readout_bias")


def arguments(leading: tuple[int, ...], outputs: int, inputs: int, width: int) -> list[Tensor]:
    """Encoder, bias, readout, offset, eigenvalues and gain; the first mode has eigenvalue 0."""
    shapes = ((width, inputs), (width,), (outputs, width), (outputs,), (width,), (width,))
    drawn = [noise(*leading, *shape, seed=index) for index, shape in enumerate(shapes)]
    drawn[4] = 0.95 * torch.tanh(drawn[4])
    drawn[4][..., 0] = 0.0
    return drawn


def response(values: list[Tensor], horizon: int) -> tuple[Tensor, Tensor]:
    found = modal_response(dict(zip(NAMES, values, strict=False)), values[4], values[5], horizon)
    return found.kernel, found.drift


def stepped(values: list[Tensor], horizon: int) -> tuple[Tensor, Tensor]:
    """The same by the recurrence: one impulse at every input, then the biases alone."""
    encoder, bias, readout, offset, eigenvalues, gain = values
    state = gain.unsqueeze(-1) * encoder
    driven = torch.zeros_like(bias)
    kernels, drifts = [], []
    for _ in range(horizon):
        kernels.append(readout @ state)
        state = eigenvalues.unsqueeze(-1) * state
        driven = eigenvalues * driven + gain * bias
        drifts.append((readout @ driven.unsqueeze(-1)).squeeze(-1) + offset)
    return torch.stack(kernels, -1), torch.stack(drifts, -1)


@pytest.mark.parametrize("horizon", [1, 16, 37])
@pytest.mark.parametrize("shape", [((3,), 1, 1, 4), ((2, 3), 2, 3, 5)])
def test_response_and_gradient_are_those_of_the_recurrence(shape, horizon):
    values = [value.requires_grad_() for value in arguments(*shape)]
    found, expected = response(values, horizon), stepped(values, horizon)
    outer = [noise(*value.shape, seed=10) for value in expected]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad(found, values, outer)
    for one, other in zip(gradients, torch.autograd.grad(expected, values, outer), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_bits_of_a_model_do_not_depend_on_the_others():
    def rows(values: list[Tensor]) -> list[Tensor]:
        live = [value.clone().requires_grad_() for value in values]
        found = response(live, 100)
        loss = sum(part.square().sum() for part in found)
        return [*(part.detach() for part in found), *torch.autograd.grad(loss, live)]

    values = arguments((64,), 1, 1, 8)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(3))
    broken = [value.clone() for value in values]
    broken[4][0] = torch.inf
    for one, two, three in zip(rows(values), rows([v[order] for v in values]), rows(broken), strict=True):
        assert torch.equal(one[order], two)
        assert torch.equal(one[1:], three[1:])


def published_lru(**fields: object) -> DiagonalRNN.Config:
    scaled = {"normalize": True, "normalization": "increment", "initialization": "published"}
    return DiagonalRNN.Config(parameterization=LRU.Config(), **({"width": 5} | scaled | fields))


class TestPublishedLRU(ModelSuite):
    model = "diagonal_rnn"
    config = published_lru(discretization="euler")
    signature = Signature(inputs=2, outputs=3, horizon=12)


@pytest.mark.parametrize("activation", ["linear", "hardtanh", "tanh"])
def test_the_lru_of_the_curse_of_memory_code(activation):
    """Its step is h + sigma((l - 1) h + sqrt(1 - (l - 1)^2) x) with l = exp(-exp w), for x the encoded input."""
    built = DiagonalRNN(published_lru(activation=activation), Signature(2, 3, 30), np.random.default_rng(0))
    built, inputs = with_random(("bias",), built, 0), noise(4, 30, 2)
    weights = {name: value[0] for name, value in weights_of(built).items()}
    turned = torch.exp(-torch.exp(weights["recurrent_weight"])) - 1.0
    scale = torch.sqrt(1.0 - turned**2)
    sigma = {"linear": lambda x: x, "hardtanh": torch.nn.functional.hardtanh, "tanh": torch.tanh}[activation]
    state, answers = torch.zeros(4, 5).double(), []
    for now in inputs.unbind(1):
        encoded = now @ weights["encoder_weight"].mT + weights["encoder_bias"]
        state = state + sigma(turned * state + scale * encoded)
        answers.append(state @ weights["readout_weight"].mT + weights["readout_bias"])
    torch.testing.assert_close(built(inputs), torch.stack(answers, 1), rtol=1e-10, atol=1e-11)
