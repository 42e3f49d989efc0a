"""Mamba-3 beside the loop over time of its authors' tests, and its choices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from memsweep.models.deep.attention.mamba3 import Mamba3Unit
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.models.parameterizations.maps import Softplus
from memsweep.testing import UnitSuite
from unit_loops import against

CHOICES = {
    "Euler": Mamba3Unit.Config(trapezoidal=False, rotation="none", biases=False, states=1),
    "Half": Mamba3Unit.Config(rotation="half", states=4, head_dim=1),
}
for _name, _config in CHOICES.items():
    globals()[f"Test{_name}"] = type(f"Test{_name}", (UnitSuite,), {"unit": "mamba3", "config": _config})
del UnitSuite  # pytest would collect the bare suite too

W = dict[str, Tensor]


def siso(config: Mamba3Unit.Config, w: W, x: Tensor) -> Tensor:
    """``mamba3_siso_step_ref`` of state-spaces/mamba, tests/ops/triton/test_mamba3_siso.py, with the module's maps."""
    heads, answers = len(w["bias_step"]), []
    pairs = len(w["encoder_speed"]) if "encoder_speed" in w else 0
    states = [torch.zeros(config.head_dim, config.states, dtype=x.dtype)] * heads
    angles = [torch.zeros(pairs, dtype=x.dtype)] * heads
    keys = [torch.zeros(config.states, dtype=x.dtype)] * heads
    values = [torch.zeros(config.head_dim, dtype=x.dtype)] * heads
    for step in x:
        normed = []
        for name in ("input", "output"):
            drive = w[f"encoder_{name}"] @ step
            normed.append(drive / torch.sqrt(drive.square().mean() + 1e-5) * w[f"norm_{name}"])
        value = (w["encoder_candidate"] @ step).reshape(heads, -1)
        dt = softplus(w["encoder_step"] @ step + w["bias_step"])
        raw = w["encoder_rate"] @ step
        rate = softplus(raw) if config.parameterization.name == "softplus" else heavy_tail(raw)
        adt = -torch.clamp(rate, min=1e-4) * dt
        share = torch.sigmoid(w["encoder_share"] @ step) if config.trapezoidal else torch.ones(heads, dtype=x.dtype)
        found = []
        for h in range(heads):
            if pairs:
                angles[h] = angles[h] + torch.tanh(w["encoder_speed"] @ step) * math.pi * dt[h]
            biases = [w[f"bias_{name}"][h] if config.biases else 0.0 for name in ("input", "output")]
            k, q = (turned(part + bias, angles[h]) for part, bias in zip(normed, biases, strict=True))
            alpha = torch.exp(adt[h])
            beta, gamma = (1 - share[h]) * dt[h] * alpha, share[h] * dt[h]
            states[h] = alpha * states[h] + beta * torch.outer(values[h], keys[h]) + gamma * torch.outer(value[h], k)
            found.append(states[h] @ q + w["skip"][h] * value[h])
            keys[h], values[h] = k, value[h]
        answers.append(w["readout"] @ torch.cat(found))
    return torch.stack(answers)


def heavy_tail(raw: Tensor) -> Tensor:
    return torch.where(raw >= 0, 1 + raw, 1 / (1 + raw.abs()))


def turned(vector: Tensor, angles: Tensor) -> Tensor:
    """Pairs of neighbours as complex numbers, times exp(i angle)."""
    turning = 2 * len(angles)
    found = torch.view_as_complex(vector[:turning].reshape(-1, 2)) * torch.exp(1j * angles)
    return torch.cat([torch.view_as_real(found).flatten(), vector[turning:]])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"trapezoidal": False},
        {"rotation": "half", "states": 6},
        {"rotation": "none", "biases": False, "head_dim": 3, "states": 1},
        {"parameterization": Softplus.Config(), "biases": False},
    ],
    ids=str,
)
def test_a_unit_is_its_authors_loop_with_all_gradients(fields: dict[str, Any]) -> None:
    config = Mamba3Unit.Config(**fields)
    unit = Mamba3Unit(config, 2 * config.states * config.head_dim, 3)
    against(unit, lambda w, x: siso(config, w, x), steps=40)


def test_it_starts_as_in_the_authors_code() -> None:
    unit = Mamba3Unit(Mamba3Unit.Config(states=4, head_dim=2), 800, 5)
    weights = {name: torch.from_numpy(value) for name, value in unit.initial(9, np.random.default_rng(0)).items()}
    steps = softplus(weights["bias_step"])
    assert 1e-3 <= steps.min() < 2e-3
    assert 0.05 < steps.max() <= 0.1
    assert bool((weights["bias_input"] == 1).all())
    assert float(weights["encoder_candidate"].abs().max()) <= 1 / math.sqrt(5)
    found = unit.eigenvalues({name: value.unsqueeze(0) for name, value in weights.items()})
    torch.testing.assert_close(found, torch.exp(-steps).repeat_interleave(8)[None])


def test_sizes_that_do_not_fit_are_refused_with_those_that_do() -> None:
    (found,) = ResidualStack.Config(unit=Mamba3Unit.Config(states=4, head_dim=2), width=12, features=4).problems()
    assert "give it 16" in found
    (found,) = ResidualStack.Config(unit=Mamba3Unit.Config(rotation="half"), width=8, features=4).problems()
    assert "with rotation half a channel needs 4, but has 2" in found
