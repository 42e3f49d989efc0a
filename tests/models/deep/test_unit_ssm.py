"""Selective state-space units beside loops over time that are written from the papers' equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from memsweep.models.deep.unit import OnlineUnit
from memsweep.models.deep.unit_ssm import HEADWISE, S6Unit, SelectiveSSDUnit, SSDUnit, StateSpaceUnit, _MeanDecay
from memsweep.models.parameterizations.maps import Direct, Exp, HeavyTail, Sigmoid, Softplus
from memsweep.testing import OnlineUnitSuite

CHOICES = {
    "S6Exact": S6Unit.Config(states=2, discretization="exact", parameterization=Softplus.Config()),
    "S6Heads": S6Unit.Config(states=1, head_dim=2, decay=HEADWISE, parameterization=Direct.Config()),
    "SsdSmallHeads": SSDUnit.Config(head_dim=1, parameterization=Sigmoid.Config()),
    "SsdSelectiveElementwise": SelectiveSSDUnit.Config(head_dim=1, decay="elementwise", discretization="exact"),
}
for _name, _config in CHOICES.items():
    globals()[f"Test{_name}"] = type(f"Test{_name}", (OnlineUnitSuite,), {"unit": _config.name, "config": _config})
del OnlineUnitSuite  # pytest would collect the bare suite too

Weights = dict[str, Tensor]
MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "softplus": softplus,
    "direct": lambda w: w,
    "heavy_tail": lambda w: torch.where(w >= 0, 1 + w, 1 / (1 + w.abs())),
}


def s6(w: Weights, u: Tensor, config: Any) -> Tensor:
    """Gu and Dao 2023 (arXiv 2312.00752), algorithm 2, one channel after the other."""
    rates = MAPS[config.parameterization.name](w["decay"]).reshape(-1, config.states)
    answers = []
    for sequence in u:
        states, rows = torch.zeros_like(rates), []
        for step in sequence:
            x, b, c = (w[f"encoder_{name}"] @ step for name in ("candidate", "input", "output"))
            delta = softplus(w["encoder_step"] @ step + w["bias_step"])
            advanced = []
            for channel, before in enumerate(states):
                decay = torch.exp(-delta[channel] * rates[channel])
                gain = delta[channel] if config.discretization == "euler" else (1 - decay) / rates[channel]
                advanced.append(decay * before + gain * b * x[channel])
            states = torch.stack(advanced)
            rows.append(w["readout"] @ (states @ c + w["skip"] * x))
        answers.append(torch.stack(rows))
    return torch.stack(answers)


def ssd(w: Weights, u: Tensor, config: Any) -> Tensor:
    """Dao and Gu 2024 (arXiv 2405.21060), equation 16 by heads: a matrix state H = a H + Delta x B^T of each head.

    With a rate from the input where the weights have one, as in Mamba-3.
    """
    heads, answers = len(w["bias_step"]), []
    for sequence in u:
        states, rows = [torch.zeros(config.head_dim, config.states, dtype=u.dtype)] * heads, []
        for step in sequence:
            x, b, c = (w[f"encoder_{name}"] @ step for name in ("candidate", "input", "output"))
            delta = softplus(w["encoder_step"] @ step + w["bias_step"])
            raw = w["encoder_rate"] @ step + w["bias_rate"] if "bias_rate" in w else w["decay"]
            rate = MAPS[config.parameterization.name](raw)
            channels = x.reshape(heads, -1)
            states = [
                torch.exp(-delta[head] * rate[head]) * states[head] + delta[head] * torch.outer(channels[head], b)
                for head in range(heads)
            ]
            rows.append(w["readout"] @ (torch.cat([state @ c for state in states]) + w["skip"] * x))
        answers.append(torch.stack(rows))
    return torch.stack(answers)


CASES: list[tuple[type[OnlineUnit], Callable[[Weights, Tensor, Any], Tensor], Any]] = [
    (S6Unit, s6, S6Unit.Config()),
    *((S6Unit, s6, S6Unit.Config(parameterization=part.Config())) for part in (Softplus, Direct, HeavyTail)),
    *((S6Unit, s6, S6Unit.Config(discretization="exact", parameterization=p.Config())) for p in (Exp, HeavyTail)),
    (SSDUnit, ssd, SSDUnit.Config()),
    (SSDUnit, ssd, SSDUnit.Config(head_dim=3, states=4, parameterization=HeavyTail.Config())),
    (SelectiveSSDUnit, ssd, SelectiveSSDUnit.Config()),
    (SelectiveSSDUnit, ssd, SelectiveSSDUnit.Config(head_dim=3, states=4, parameterization=Softplus.Config())),
]


@pytest.mark.parametrize(("kind", "loop", "config"), CASES)
def test_a_unit_is_its_papers_loop_with_all_gradients(
    kind: type[OnlineUnit], loop: Callable[[Weights, Tensor, Any], Tensor], config: Any
) -> None:
    unit, rng = kind(config, 24, 5), np.random.default_rng(3)
    weights = {
        name: torch.from_numpy(value + 0.2 * rng.standard_normal(value.shape)).requires_grad_()
        for name, value in unit.initial(20, rng).items()
    }
    x = torch.from_numpy(rng.standard_normal((3, 11, 5))).requires_grad_()
    answers = unit.run({name: weight.unsqueeze(0) for name, weight in weights.items()}, x.unsqueeze(0))[0]
    outer = torch.from_numpy(rng.standard_normal(answers.shape))
    found = torch.autograd.grad(answers, [*weights.values(), x], outer)
    expected = loop(weights, x, config)
    torch.testing.assert_close(answers, expected, rtol=1e-10, atol=1e-10)
    wanted = torch.autograd.grad(expected, [*weights.values(), x], outer)
    for name, one, other in zip([*weights, "x"], found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10, msg=name)


def test_the_scale_of_zero_order_hold_and_its_gradient_keep_their_digits() -> None:
    y = torch.cat([torch.zeros(1), -torch.logspace(-12, 1.5, 400), torch.logspace(-12, 0, 100)]).double()
    y.requires_grad_()
    found = _MeanDecay.apply(y)
    (slope,) = torch.autograd.grad(found.sum(), y)
    # Gauss-Legendre: the mean of exp(s y) over s in 0 ... 1, and its derivative
    nodes, shares = (torch.from_numpy(values) for values in np.polynomial.legendre.leggauss(40))
    places = 0.5 * (nodes + 1.0)
    powers = torch.exp(places * y.detach().unsqueeze(-1))
    torch.testing.assert_close(found, 0.5 * (shares * powers).sum(-1), rtol=1e-13, atol=0)
    torch.testing.assert_close(slope, 0.5 * (shares * places * powers).sum(-1), rtol=1e-11, atol=0)


def test_they_start_as_published() -> None:
    rng = np.random.default_rng(0)
    s6 = S6Unit(S6Unit.Config(states=16), 1600, 8)
    weights = {name: torch.from_numpy(value) for name, value in s6.initial(100, rng).items()}
    torch.testing.assert_close(weights["decay"].exp().reshape(100, 16)[7], torch.arange(1.0, 17.0).double())
    steps = softplus(weights["bias_step"])
    assert 1e-3 <= steps.min() < 2e-3
    assert 0.05 < steps.max() <= 0.1
    ssd = SSDUnit(SSDUnit.Config(states=4, head_dim=4), 1600, 8)
    rates = np.exp(ssd.initial(100, rng)["decay"])
    assert (len(rates), rates.min() >= 1, rates.max() <= 16) == (100, True, True)
    selective = SelectiveSSDUnit(SelectiveSSDUnit.Config(parameterization=Softplus.Config()), 8, 3)
    torch.testing.assert_close(
        softplus(torch.from_numpy(selective.initial(9, rng)["bias_rate"])), torch.ones(2).double()
    )


@pytest.mark.parametrize("base", [S6Unit, SSDUnit])
def test_a_derived_class_whose_layer_would_not_be_its_own_is_refused(base: Any) -> None:
    class Slower(base):
        def coefficients(self, drives: Any) -> Any:
            decay, added = super().coefficients(drives)
            return decay.sqrt(), added

    class Whole(Slower):
        run = StateSpaceUnit.run

    (problem,) = Slower.problems(None)  # type: ignore[arg-type]
    assert "coefficients of its own" in problem
    assert "run = StateSpaceUnit.run" in problem
    assert not [*Whole.problems(None)]  # type: ignore[arg-type]
    assert not [*base.problems(None)]
