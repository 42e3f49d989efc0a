"""Selective units beside loops over time that are written from the papers' equations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from memsweep.models.deep.unit_selective import HGRNUnit, MinGRUUnit, MinLSTMUnit, RGLRUUnit, SelectiveUnit
from memsweep.recurrence.varying import selective_scan
from memsweep.testing import OnlineUnitSuite

CHOICES = {"MinGruChrono": MinGRUUnit.Config(chrono=True), "MinLstmChrono": MinLSTMUnit.Config(chrono=True)}
for _name, _config in CHOICES.items():
    globals()[f"Test{_name}"] = type(f"Test{_name}", (OnlineUnitSuite,), {"unit": _config.name, "config": _config})
del OnlineUnitSuite  # pytest would collect the bare suite too

Weights = dict[str, Tensor]


def min_gru(w: Weights, x: Tensor) -> Tensor:
    """Feng et al. 2024 (arXiv 2410.01201), section 3.1."""
    state, states = torch.zeros(x.shape[0], w["bias_update"].shape[0], dtype=x.dtype), []
    for step in x.unbind(1):
        update = torch.sigmoid(step @ w["encoder_update"].T + w["bias_update"])
        candidate = step @ w["encoder_candidate"].T + w["bias_candidate"]
        state = (1 - update) * state + update * candidate
        states.append(state)
    return torch.stack(states, 1)


def min_lstm(w: Weights, x: Tensor) -> Tensor:
    """The same, section 3.2."""
    state, states = torch.zeros(x.shape[0], w["bias_forget"].shape[0], dtype=x.dtype), []
    for step in x.unbind(1):
        forget = torch.sigmoid(step @ w["encoder_forget"].T + w["bias_forget"])
        new = torch.sigmoid(step @ w["encoder_input"].T + w["bias_input"])
        candidate = step @ w["encoder_candidate"].T + w["bias_candidate"]
        state = forget / (forget + new) * state + new / (forget + new) * candidate
        states.append(state)
    return torch.stack(states, 1)


def hgrn(w: Weights, x: Tensor) -> Tensor:
    """Qin et al. 2023 (arXiv 2311.04823), with real states and one layer's own lower bound."""
    state, states = torch.zeros(x.shape[0], w["decay"].shape[0], dtype=x.dtype), []
    bound = torch.sigmoid(w["decay"])
    for step in x.unbind(1):
        forget = bound + (1 - bound) * torch.sigmoid(step @ w["encoder_forget"].T + w["bias_forget"])
        candidate = step @ w["encoder_candidate"].T + w["bias_candidate"]
        state = forget * state + (1 - forget) * candidate * torch.sigmoid(candidate)
        states.append(state)
    return torch.stack(states, 1)


def rg_lru(w: Weights, x: Tensor) -> Tensor:
    """De et al. 2024 (arXiv 2402.19427), equations 1 to 4, on a linear map of the input."""
    state, states = torch.zeros(x.shape[0], w["decay"].shape[0], dtype=x.dtype), []
    for step in x.unbind(1):
        recurrence = torch.sigmoid(step @ w["encoder_recurrence"].T + w["bias_recurrence"])
        new = torch.sigmoid(step @ w["encoder_input"].T + w["bias_input"])
        candidate = step @ w["encoder_candidate"].T + w["bias_candidate"]
        decay = torch.sigmoid(w["decay"]) ** (8.0 * recurrence)
        state = decay * state + torch.sqrt(1 - decay**2) * (new * candidate)
        states.append(state)
    return torch.stack(states, 1)


LOOPS: list[tuple[type[SelectiveUnit], Callable[[Weights, Tensor], Tensor]]]
LOOPS = [(MinGRUUnit, min_gru), (MinLSTMUnit, min_lstm), (RGLRUUnit, rg_lru), (HGRNUnit, hgrn)]


@pytest.mark.parametrize(("kind", "loop"), LOOPS, ids=["min_gru", "min_lstm", "rg_lru", "hgrn"])
def test_a_unit_is_its_papers_loop_with_all_gradients(
    kind: type[SelectiveUnit], loop: Callable[[Weights, Tensor], Tensor]
) -> None:
    unit, rng = kind(kind.Config(), 5, 3), np.random.default_rng(3)  # type: ignore[attr-defined]
    weights = {
        name: torch.from_numpy(value + 0.2 * rng.standard_normal(value.shape)).requires_grad_()
        for name, value in unit.initial(20, rng).items()
        if name in unit.part_names
    }
    x = torch.from_numpy(rng.standard_normal((4, 17, 3))).requires_grad_()
    states = unit.states(unit.parts({name: weight.unsqueeze(0) for name, weight in weights.items()}), x.unsqueeze(0))[0]
    outer = torch.from_numpy(rng.standard_normal(states.shape))
    found = torch.autograd.grad(states, [*weights.values(), x], outer)
    expected = loop(weights, x)
    torch.testing.assert_close(states, expected, rtol=1e-10, atol=1e-10)
    wanted = torch.autograd.grad(expected, [*weights.values(), x], outer)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_the_scan_has_the_gradient_of_its_coefficients(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    slope, drive, outer = (torch.randn(2, 3, 11, 5, dtype=dtype, generator=generator) for _ in range(3))
    slope, drive = (0.5 * slope).requires_grad_(), drive.requires_grad_()
    found = torch.autograd.grad(selective_scan(slope, drive), [slope, drive], outer)
    state, states = torch.zeros_like(drive[:, :, 0]), []
    for time in range(11):
        state = slope[:, :, time] * state + drive[:, :, time]
        states.append(state)
    for one, other in zip(found, torch.autograd.grad(torch.stack(states, 2), [slope, drive], outer), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_chrono_spreads_time_scales_over_the_horizon() -> None:
    for kind in (MinGRUUnit, MinLSTMUnit):
        unit = kind(kind.Config(chrono=True), 200, 3)
        weights = {n: torch.from_numpy(v).unsqueeze(0) for n, v in unit.initial(1000, np.random.default_rng(0)).items()}
        scales = 1.0 / (1.0 - unit.eigenvalues(weights)[0])
        assert scales.max() > 800
        assert scales.min() < 100
        assert scales.max() < 1001 if kind is MinGRUUnit else True
