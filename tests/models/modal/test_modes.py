"""The response of independent modes against the recurrence, and its hand-written gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine import noise
from memsweep.models.modal.base import modal_response

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
