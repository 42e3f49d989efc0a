"""Parameterizations against numerical suprema, inverses and derivatives; over the whole registry."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from memsweep import registry
from memsweep.models.parameterization import EXACT, Mixture, build

registry.discover(Path(__file__).parents[1])
ALL = registry.names(registry.PARAMETERIZATION)
RATES = torch.logspace(-4, 1, 40, dtype=torch.float64)


def make(name: str):
    return build(registry.get(registry.PARAMETERIZATION, name).Config())


@pytest.mark.parametrize("name", ALL)
def test_raw_inverts_rate(name):
    part = make(name)
    torch.testing.assert_close(part.rate(part.raw(RATES)), RATES, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", ALL)
def test_gradient_scale_by_differentiation(name):
    part = make(name)
    raw = part.raw(RATES).requires_grad_()
    rate = part.rate(raw)
    (slope,) = torch.autograd.grad(rate.sum(), raw)
    torch.testing.assert_close(part.gradient_scale(raw), slope.abs() / rate.square(), rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", ALL)
def test_modulus_is_the_supremum(name):
    part = make(name)
    raw = torch.cat([part.raw(torch.logspace(-12, 2, 400, dtype=torch.float64)), torch.linspace(-30, 30, 400).double()])
    raw = raw[part.rate(raw) > 0]
    for shift in (0.1, 0.5):
        moves = torch.linspace(-shift, shift, 201, dtype=torch.float64)
        moved = part.rate(raw.unsqueeze(-1) + moves)
        worst = float(torch.where(moved > 0, (part.rate(raw).unsqueeze(-1) / moved - 1.0).abs(), torch.inf).max())
        claimed = part.modulus(shift)
        if math.isinf(claimed):
            assert worst > 1e6
        else:
            assert worst <= claimed * (1 + 1e-9)
            assert worst > 0.99 * claimed
    assert part.modulus(0.0) == 0.0


def test_published_modulus_values():
    assert make("exp").modulus(0.1) == pytest.approx(0.105171, abs=1e-6)
    assert make("softplus").modulus(0.1) == pytest.approx(0.105171, abs=1e-6)
    assert make("direct").modulus(0.1) == math.inf


def test_mixture_gives_each_replica_its_own_map_and_a_clean_gradient():
    configs = [registry.get(registry.PARAMETERIZATION, name).Config() for name in ("direct", "exp", "softplus", "exp")]
    raw = torch.tensor([[800.0, 0.2], [0.3, -5.0], [-2.0, 1.0], [1.0, 2.0]], dtype=torch.float64).requires_grad_()
    mixed = Mixture(configs).eigenvalue(raw, 1.0, EXACT)
    for row, config in enumerate(configs):
        alone = Mixture([config]).eigenvalue(raw[row : row + 1], 1.0, EXACT)[0]
        assert torch.equal(mixed[row], alone)
    (gradient,) = torch.autograd.grad(mixed.sum(), raw)
    assert torch.isfinite(gradient).all()  # exp(800) of the direct replica's weight must not reach any gradient
