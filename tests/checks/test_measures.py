"""The checks' measurements against values that are known in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from memsweep.checks.contract.forms import forms
from memsweep.checks.finding import Status
from memsweep.checks.memory.capacity import capacity
from memsweep.checks.memory.decay import decay
from memsweep.checks.memory.gradient import gradient
from memsweep.checks.memory.response import memory_function
from memsweep.checks.memory.scale import time_scale
from memsweep.checks.numerics.cost import cost
from memsweep.checks.numerics.precision import precision
from memsweep.checks.subject import Subject, affordable

TAU = 20.0


class OneMode(nn.Module):
    """h_t = a h_(t-1) + x_t with a = exp(-1 / 20)."""

    def __init__(self, factor: float = math.exp(-1 / TAU)) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor, dtype=torch.float64))

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        h, states = torch.zeros_like(x[:, 0]) if state is None else state, []
        for t in range(x.shape[1]):
            h = self.factor * h + x[:, t]
            states.append(h)
        return torch.stack(states, 1), h

    def decay(self) -> Tensor:
        return self.factor.reshape(1)


def one_mode(horizon: int = 512, **settings: Any) -> Subject:
    return Subject(lambda: OneMode(**settings), 1, horizon)


def test_the_time_scale_of_an_exponential_is_its_time_constant() -> None:
    assert time_scale(np.exp(-np.arange(4000) / 100.0)) == pytest.approx(100.0, rel=0.01)
    assert time_scale(np.ones(100)) == pytest.approx(63.2, rel=0.01)
    assert math.isnan(time_scale(np.zeros(5)))


def test_one_mode_remembers_as_long_as_its_factor_says() -> None:
    subject = one_mode()
    by_step, by_gradient = memory_function(subject, 600), gradient(subject, 600)
    assert by_step.numbers["time_scale"] == pytest.approx(TAU, rel=0.03)
    assert by_step.numbers["horizon_limited"] is False
    assert by_gradient.numbers["time_scale_typical"] == pytest.approx(TAU, rel=0.03)
    assert by_gradient.numbers["depends_on_input"] is False
    held = decay(subject, 600)
    assert held.status is Status.PASS
    assert held.numbers["longest"] == pytest.approx(TAU, abs=1)
    assert held.numbers["shortest"] == pytest.approx(TAU, abs=1)
    assert held.numbers["declared_time_constant_longest"] == pytest.approx(TAU)


class Rectified(OneMode):
    """y = |h|: its gradient has the same norm for all inputs, and the sign of h."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        states, last = super().forward(x, state)
        return states.abs(), last


def test_gradients_that_differ_in_sign_alone_depend_on_the_input() -> None:
    found = gradient(Subject(Rectified, 1, 64), 600)
    assert found.numbers["time_scale_shortest"] == found.numbers["time_scale_longest"]
    assert found.numbers["depends_on_input"] is True
    assert "linear" not in found.sentence
    assert "The gradient is the same for all 6 inputs" in gradient(one_mode(64), 600).sentence


class Modes(nn.Module):
    """Linear modes side by side, of which one output shows so many different ones."""

    def __init__(self, factors: list[float]) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.tensor(factors, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        h, states = torch.zeros(len(x), len(self.factors), dtype=x.dtype), []
        for t in range(x.shape[1]):
            h = self.factors * h + x[:, t]
            states.append(h.sum(-1, keepdim=True))
        return torch.stack(states, 1)


def test_the_size_of_a_linear_state_is_the_rank_of_its_hankel_matrix() -> None:
    factors = [0.95, 0.7, 0.7, -0.5]  # two of one factor are one number to whoever reads the output
    finding = capacity(Subject(lambda: Modes(factors), 1, 64), 600)
    found = finding.numbers
    lags = np.arange(1, 33)[:, None] + np.arange(32)
    values = np.linalg.svd((np.array(factors)[:, None, None] ** lags).sum(0), compute_uv=False)
    assert found["length"] == 64
    assert found["size_fine"] == found["size_fine_least"] == found["size_fine_most"] == 3
    assert found["size"] == (values > 0.01 * values[0]).sum()
    assert "of the largest (over" in finding.sentence  # all inputs agree: there is no span to give


def test_a_gated_state_passes_on_no_more_than_its_width() -> None:
    found = capacity(Subject(lambda: nn.GRU(3, 5, batch_first=True), 3, 40), 600)
    assert 1 <= found.numbers["size_least"] <= found.numbers["size_fine_most"] <= 5
    assert "numbers of the past" in found.sentence
    ids = capacity(Subject(lambda: nn.Embedding(7, 2), 7, 16, tokens=True), 600)
    assert ids.status is Status.SKIP


def test_a_memory_beyond_the_horizon_is_a_lower_bound() -> None:
    found = memory_function(one_mode(64, factor=0.9999), 600)
    assert found.numbers["horizon_limited"] is True
    assert "or more" in found.sentence


def test_the_states_of_torchs_layers_are_a_step_form() -> None:
    found = forms(Subject(lambda: nn.GRU(2, 5, batch_first=True), 2, 100), 600)
    assert found.status is Status.PASS
    assert found.numbers["step_form"] == "forward(x, hx)"
    assert found.numbers["difference"] < 1e-12
    assert found.numbers["lengths"][-1] == 100


def test_a_submodule_called_step_is_no_step_form(subject: Callable[..., Subject]) -> None:
    from memsweep.models.module.config import ArgumentNames

    found = forms(subject("selective_ssm:SelectiveSSM", names=ArgumentNames(width="d_model")), 600)
    assert found.status is Status.SKIP


def test_bfloat16_forgets_or_never_does() -> None:
    """exp(-1/512) is 1 in bfloat16: the mode that forgets in 512 steps becomes an integrator."""
    found = precision(one_mode(2048, factor=math.exp(-1 / 512)), 600)
    assert found.status is Status.NOTE
    assert found.numbers["bfloat16"]["noise"]["rounded_once"][-1] > 0.3
    assert found.numbers["float32"]["noise"]["error"][-1] < 1e-4


def test_memory_of_attention_with_a_matrix_of_weights_grows_with_the_square() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.maps = nn.Linear(4, 12)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.maps(x).chunk(3, -1)
            mask = torch.full((x.shape[1], x.shape[1]), -math.inf).triu(1)
            return torch.softmax(q @ k.mT + mask, -1) @ v

    attention, linear = cost(Subject(Attention, 4, 512), 600), cost(one_mode(), 600)
    assert attention.numbers["memory_exponent"] == pytest.approx(2.0, abs=0.1)
    assert linear.numbers["memory_exponent"] == pytest.approx(1.0, abs=0.1)


def test_lengths_end_where_the_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    seen = []
    for length in affordable([16, 64, 256, 1024, 4096], 10.0):
        seen.append(length)
        now[0] += 1e-6 * length**2  # 256: 0.07 s, 1024: 1 s, 4096: 17 s
    assert seen == [16, 64, 256, 1024]
