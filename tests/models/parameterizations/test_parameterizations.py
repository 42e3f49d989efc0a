"""Parameterizations against numerical suprema, inverses and derivatives; over the whole registry."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from memsweep import registry
from memsweep.models.parameterizations.base import DISCRETE, DISCRETIZATIONS, EULER, EXACT, Mixture, build
from paths import ROOT

registry.discover(ROOT)
ALL = registry.names(registry.PARAMETERIZATION)
STABLE = ["best", "exp", "heavy_tail", "lru", "sigmoid", "softplus"]
BESTS = [{"a": 1.0, "b": 0.1}, {"a": 2.0, "b": 0.7}, {"a": 0.3, "b": 2.0}]
CASES = [(name, {}) for name in ALL] + [("best", fields) for fields in BESTS]

every_map = pytest.mark.parametrize(("name", "fields"), CASES, ids=str)
every_discretization = pytest.mark.parametrize("discretization", DISCRETIZATIONS)


def make(name: str, **fields: Any):
    return build(registry.get(registry.PARAMETERIZATION, name).Config(**fields))


def column(values) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def reached(part, count: int = 40) -> Tensor:
    """Rates from 1e-4 to 10, or to what the map reaches."""
    return torch.logspace(-4, math.log10(min(10.0, 0.999 * part.rates[1])), count, dtype=torch.float64)


def is_discrete(part, discretization: str) -> bool:
    """The eigenvalue comes from a discrete-time map: always for LRU's, whatever the discretization."""
    return discretization == DISCRETE or part.Config.name == "lru"


def decay(part, raw: Tensor, discretization: str) -> Tensor:
    """f of the definitions: the rate, or 1 - eigenvalue of the discrete-time map."""
    if is_discrete(part, discretization):
        return 1.0 - part.eigenvalue(raw, 1.0, discretization)
    return part.rate(raw)


@every_map
def test_raw_inverts_rate(name, fields):
    part = make(name, **fields)
    rates = reached(part)
    torch.testing.assert_close(part.rate(part.raw(rates)), rates, rtol=1e-9, atol=0)


@every_map
def test_the_range_of_rates(name, fields):
    part = make(name, **fields)
    rates = part.rate(torch.cat([torch.linspace(-40, 40, 8001), column([-1e-9, 0.0, 1e-9, -1e13, 1e13])]).double())
    slowest, fastest = part.rates
    assert rates.min() >= slowest
    assert rates.max() <= fastest
    assert rates.min() <= (1e-12 if slowest == 0 else -30)
    assert rates.max() >= (30 if math.isinf(fastest) else (1 - 1e-12) * fastest)


@every_discretization
@pytest.mark.parametrize("dt", [0.25, 1.0])
@every_map
def test_initial_weights_give_the_wanted_memory(name, fields, dt, discretization):
    part = make(name, **fields)
    rates = torch.logspace(-5, math.log10(0.98 * min(1.0 / dt, part.rates[1])), 30, dtype=torch.float64)
    found = part.eigenvalue(part.raw_for(rates, dt, discretization), dt, discretization)
    linear = discretization == EULER or (name in ("direct", "relu") and discretization == EXACT)
    expected = 1.0 - rates * dt if linear and name != "lru" else torch.exp(-rates * dt)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


@every_discretization
@pytest.mark.parametrize(("name", "fields"), [("sigmoid", {}), ("best", {"b": 4.0})], ids=str)
def test_a_rate_out_of_reach_starts_close_to_the_fastest(name, fields, discretization):
    part, wanted = make(name, **fields), column([1.0, 10.0, 1e6])
    raw = part.raw_for(wanted, 1.0, discretization)
    assert torch.isfinite(raw).all()
    if discretization == DISCRETE and name == "sigmoid":  # this map reaches every eigenvalue between 0 and 1
        torch.testing.assert_close(part.eigenvalue(raw, 1.0, DISCRETE), torch.exp(-wanted))
    else:
        fastest = part.rates[1]
        found = decay(part, raw, discretization)
        torch.testing.assert_close(found, torch.minimum(wanted, column(0.99 * fastest)), rtol=1e-9, atol=0)


def test_the_discrete_time_maps_as_published():
    weights = [0.6, 0.9, 1.7, 2.5]
    sigma = [1 / (1 + math.exp(-w)) for w in weights]
    published = {
        "direct": weights,
        "relu": [1 - w for w in weights],
        "exp": [math.exp(-math.exp(w)) for w in weights],
        "lru": [math.exp(-math.exp(w)) for w in weights],
        "softplus": [math.exp(-math.log1p(math.exp(w))) for w in weights],
        "sigmoid": sigma,
        "best": [1 - 1 / (w * w + 0.5) for w in weights],
        "heavy_tail": [math.exp(-1 - w) for w in weights],
        "inverse": [1 - 1 / w for w in weights],
    }
    for name, eigenvalues in published.items():
        for dt in (0.1, 1.0):  # discrete time knows no dt
            found = make(name).eigenvalue(column(weights), dt, DISCRETE)
            torch.testing.assert_close(found, column(eigenvalues), rtol=1e-14, atol=1e-15)


def test_continuous_maps_by_step():
    raw, dt = column([0.3, 1.2]), 0.2
    for name, rates in {"sigmoid": torch.sigmoid(raw), "inverse": 1 / raw, "best": 1 / column([0.59, 1.94])}.items():
        part = make(name)
        torch.testing.assert_close(part.eigenvalue(raw, dt, EXACT), torch.exp(-rates * dt))
        torch.testing.assert_close(part.eigenvalue(raw, dt, EULER), 1 - rates * dt)
    for name in ("direct", "relu"):  # trained as they stand
        for discretization in (EXACT, EULER):
            torch.testing.assert_close(make(name).eigenvalue(raw, dt, discretization), 1 - raw * dt)


@pytest.mark.parametrize("discretization", [EXACT, EULER])
def test_a_clamp_taken_away_leaves_the_modes_as_they_are(discretization):
    part, raw = make("relu"), column([-0.7, 0.0, 0.4, 2.5])
    free = part.projection()
    assert free.Config.name == "direct"
    found = free.eigenvalue(part.rate(raw), 0.3, discretization)
    assert torch.equal(found, part.eigenvalue(raw, 0.3, discretization))
    assert all(make(name).projection() is None for name in ALL if name != "relu")


@pytest.mark.parametrize("name", ALL)
def test_an_unknown_discretization_is_an_error(name):
    if name != "lru":
        with pytest.raises(ValueError, match="discretization must be one of discrete, euler, exact, got 'zoh'"):
            make(name).eigenvalue(column([1.0]), 1.0, "zoh")
        with pytest.raises(ValueError, match="got 'zoh'"):
            make(name).raw_for(column([1.0]), 1.0, "zoh")


def test_a_dead_relu_mode_is_an_integrator_without_a_gradient():
    part, raw = make("relu"), column([-0.5, 0.0, 0.5]).requires_grad_()
    for discretization in DISCRETIZATIONS:
        eigenvalue = part.eigenvalue(raw, 1.0, discretization)
        (gradient,) = torch.autograd.grad(eigenvalue.sum(), raw)
        assert eigenvalue[:2].tolist() == [1.0, 1.0]
        assert gradient[:2].tolist() == [0.0, 0.0]
        assert gradient[2] < 0


def worst_change(part, shift: float, discretization: str) -> float:
    """sup |f(w) / f(w~) - 1| on a grid, over modes that decay; inf when a shift makes one that does not."""
    fine = torch.logspace(-9, 0, 200, dtype=torch.float64)  # close to where maps without a constraint cross over
    raw = torch.cat([torch.linspace(-12, 12, 2401, dtype=torch.float64), fine, 1.0 - fine, 0.5 + fine])
    moves = torch.linspace(-shift, shift, 41, dtype=torch.float64)
    moved = raw.unsqueeze(-1) + moves
    before, after = decay(part, raw, discretization), decay(part, moved, discretization)
    limit = 2.0 if is_discrete(part, discretization) else math.inf  # 1 - eigenvalue of 2 is the eigenvalue -1
    sound = (before > 0) & (before < limit)
    change = torch.where((after > 0) & (after < limit), (before.unsqueeze(-1) / after - 1.0).abs(), math.inf)
    return float(change[sound].max())


@every_discretization
@pytest.mark.parametrize("shift", [0.02, 0.1, 0.5])
@every_map
def test_modulus_is_the_supremum(name, fields, shift, discretization):
    part = make(name, **fields)
    worst, claimed = worst_change(part, shift, discretization), part.modulus(shift, discretization)
    if math.isinf(claimed):
        assert worst > 1e6
    else:
        assert worst <= claimed * (1 + 1e-8)
        assert worst > 0.999 * claimed


@every_discretization
@every_map
def test_gradient_over_weight_is_the_gradient_of_the_map(name, fields, discretization):
    """|df/dw| / f^2, the closed form that ``memsweep describe`` prints beside autograd's."""
    part = make(name, **fields)
    raw = torch.linspace(0.1 if name == "relu" else -6.3, 6.3, 64, dtype=torch.float64).requires_grad_()
    f = decay(part, raw, discretization)
    (slope,) = torch.autograd.grad(f.sum(), raw)
    formula = part.closed_forms()[is_discrete(part, discretization)]
    known = {name: getattr(torch, name) for name in ("exp", "log", "sinh", "abs", "sigmoid")} | {"max": torch.clamp_min}
    known |= {"w": raw.detach(), "f": part.rate(raw.detach())} | vars(part.config)
    found = torch.as_tensor(eval(formula.partition(" for ")[0].replace("^", "**"), known))
    torch.testing.assert_close(found.expand_as(raw).double(), slope.abs() / f.detach().square(), rtol=1e-10, atol=0)


def test_published_modulus_values():
    for name in ("exp", "softplus", "sigmoid", "lru"):
        assert make(name).modulus(0.1) == pytest.approx(0.105171, abs=1e-6)
    assert make("best").modulus(0.1) == pytest.approx(0.151774, abs=1e-6)
    assert make("best").modulus(0.5) == pytest.approx(1.0, abs=1e-12)
    assert make("best", b=0.1).modulus(0.1) == pytest.approx(0.370156, abs=1e-6)
    for name in ("direct", "relu", "inverse"):
        assert make(name).modulus(0.1) == math.inf
    assert make("exp").modulus(1e9) == math.inf


@every_discretization
@pytest.mark.parametrize("name", ALL)
def test_what_theory_calls_stable(name, discretization):
    part = make(name)
    assert part.modulus(0.0, discretization) == 0.0
    # the discrete map of best reaches the eigenvalue -1 for b = 0.5, its published value
    assert (part.modulus(1e-6, discretization) < math.inf) == (
        name in STABLE and (name, discretization) != ("best", DISCRETE)
    )
    assert make("best", b=0.51).modulus(1e-6, discretization) < math.inf


@given(name=st.sampled_from(STABLE), weight=st.floats(-30, 30), dt=st.sampled_from([0.1, 1.0, 10.0]))
def test_every_weight_of_a_stable_map_is_a_stable_mode(name, weight, dt):
    raw = column([weight])
    assert 0.0 <= make(name).eigenvalue(raw, dt, EXACT).item() < 1.0
    discrete = make(name, **({"b": 0.51} if name == "best" else {})).eigenvalue(raw, dt, DISCRETE).item()
    assert -1.0 < discrete < 1.0


@every_discretization
def test_mixture_gives_each_replica_its_own_map_and_a_clean_gradient(discretization):
    names = [*ALL, *ALL]
    configs = [registry.get(registry.PARAMETERIZATION, name).Config() for name in names]
    configs += [make("best", **fields).config for fields in BESTS]
    raw = torch.linspace(-6.5, 6.5, len(configs) * 7, dtype=torch.float64)
    raw = raw[torch.randperm(len(raw), generator=torch.Generator().manual_seed(0))].view(len(configs), 7)
    raw[names.index("direct")] = 800.0  # overflows under other maps
    raw.requires_grad_()
    mixed = Mixture(configs).eigenvalue(raw, 0.5, discretization)
    (gradient,) = torch.autograd.grad(mixed.sum(), raw)
    for row, config in enumerate(configs):
        alone = Mixture([config]).eigenvalue(raw, 0.5, discretization)[row]  # of one shape, as ensembles compute it
        (slope,) = torch.autograd.grad(alone.sum(), raw)
        assert torch.equal(mixed[row], alone)
        assert torch.equal(gradient[row], slope[row])
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("discretization", [EXACT, EULER])
@pytest.mark.parametrize("name", ["best", "direct", "exp", "inverse", "lru", "relu", "softplus"])
def test_gradients_without_a_graph_have_the_bits_of_autograd(name, discretization, dtype):
    part = make(name)
    generator = torch.Generator().manual_seed(3)
    random = torch.randn(2, 200, dtype=dtype, generator=generator)
    raw, outer = torch.cat([random, torch.tensor([[0.0, -0.25, 1e-3, 30.0, -30.0], [1.0, 0.0, -0.0, 2.0, 3.0]])], 1)
    raw, outer = raw.to(dtype), outer.to(dtype)
    leaf = raw.clone().requires_grad_(True)
    expected = part.eigenvalue(leaf, 1.0, discretization)
    (slope,) = torch.autograd.grad(expected, leaf, outer)
    eigenvalue, backward = part.differentiated(raw, discretization)
    integers = torch.int64 if dtype == torch.float64 else torch.int32

    assert torch.equal(eigenvalue.view(integers), expected.detach().view(integers))
    assert torch.equal(backward(outer).view(integers), slope.view(integers))


def test_a_map_that_inherits_from_another_goes_through_autograd():
    """It may have another rate, whose gradient the other does not know."""

    class Twice(type(make("exp"))):
        def rate(self, raw: Tensor) -> Tensor:
            return 2.0 * super().rate(raw)

    assert Twice(make("exp").config).differentiated(column([0.5]), EXACT) is None
    assert make("exp").differentiated(column([0.5]), DISCRETE) is None
