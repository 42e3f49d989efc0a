"""Rounding is no effect: a small change is lost on modules that round, spike or keep integers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from memsweep.checks.apart import effect_of
from memsweep.checks.finding import Status
from memsweep.checks.memory.capacity import capacity
from memsweep.checks.memory.decay import decay
from memsweep.checks.memory.response import memory_function
from memsweep.checks.subject import Subject

TAU = 20.0
FACTOR = math.exp(-1 / TAU)


class RoundsItsInputs(nn.Module):
    """h_t = a h_(t-1) + round(x_t), behind an offset: its float64 sums round otherwise from row to row."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(1, 16), nn.Linear(16, 1)
        self.factor = nn.Parameter(torch.tensor(FACTOR))

    def decay(self) -> Tensor:
        return self.factor.reshape(1)

    def forward(self, x: Tensor) -> Tensor:
        entered = self.enter(torch.round(x))
        h, states = torch.zeros_like(entered[:, 0]), []
        for t in range(x.shape[1]):
            h = self.factor * h + entered[:, t]
            states.append(h)
        return self.leave(torch.stack(states, 1))


class RoundsAndSteps(RoundsItsInputs):
    """The same, with a step form."""

    def step(self, x: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor]:
        h = self.enter(torch.round(x)) + (0 if h is None else self.factor * h)
        return self.leave(h), h


class KeepsIntegers(nn.Module):
    """Its state counts billionths, and is no floating-point number."""

    def __init__(self) -> None:
        super().__init__()
        self.size = nn.Parameter(torch.ones(1))

    def decay(self) -> Tensor:
        return torch.full((1,), FACTOR)

    def step(self, x: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor]:
        h = torch.round(1e9 * x + (0 if h is None else FACTOR * h)).to(torch.int64)
        return self.size * h / 1e9, h

    def forward(self, x: Tensor) -> Tensor:
        h, outputs = None, []
        for t in range(x.shape[1]):
            y, h = self.step(x[:, t], h)
            outputs.append(y)
        return torch.stack(outputs, 1)


class Spikes(nn.Module):
    """Integrates, and fires at 1; its outputs are traces of its spikes."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(1, 16)

    def forward(self, x: Tensor) -> Tensor:
        entered = self.enter(x)
        v, trace, outputs = torch.zeros_like(entered[:, 0]), torch.zeros_like(entered[:, 0]), []
        for t in range(x.shape[1]):
            v = 0.9 * v + entered[:, t]
            fired = (v > 1).to(x.dtype)
            v, trace = v * (1 - fired), 0.9 * trace + fired
            outputs.append(trace)
        return torch.stack(outputs, 1)


class Half(nn.Module):
    """A mode in bfloat16, whatever precision it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 0.98, 16))

    def forward(self, x: Tensor) -> Tensor:
        given, factor = x.bfloat16(), self.weight.bfloat16()
        h, outputs = torch.zeros_like(given[:, 0]), []
        for t in range(x.shape[1]):
            h = factor * h + (1 - factor) * given[:, t]
            outputs.append(h)
        return torch.stack(outputs, 1).sum(-1, keepdim=True).to(x.dtype)


class LongInHalf(nn.Module):
    """A mean over 100 steps, whose state is wide and whose inputs and outputs are not: zero for inputs below 0.05."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 1))

    def forward(self, x: Tensor) -> Tensor:
        given = (x * (x.abs() > 0.05)).bfloat16() @ self.weight.bfloat16()
        h, outputs = torch.zeros(len(x), 1), []
        for t in range(x.shape[1]):
            h = 0.99 * h + 0.01 * given[:, t].float()
            outputs.append(h)
        return torch.stack(outputs, 1).bfloat16()


class EntersInHalf(RoundsItsInputs):
    """A decay of 0.99 as declared, behind a projection in bfloat16; its bias builds up in the states."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.99))

    def step(self, x: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor]:
        h = self.enter(x).bfloat16().to(x.dtype) + (0 if h is None else self.factor * h)
        return self.leave(h), h

    def forward(self, x: Tensor) -> Tensor:
        h, outputs = None, []
        for t in range(x.shape[1]):
            y, h = self.step(x[:, t], h)
            outputs.append(y)
        return torch.stack(outputs, 1)


class UndefinedBelow(nn.Module):
    """A sum of rounded inputs, which is not finite where no more than nothing is held."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cumsum(self.weight * torch.round(x), 1)
        return y.where(x[:, -1:] > 0.5, math.nan)


class ForgetsAbove(nn.Module):
    """A sum that a positive input clears."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        h, outputs = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = h.where(x[:, t] <= 0, 0) + self.weight * x[:, t]
            outputs.append(h)
        return torch.stack(outputs, 1)


class DecaysById(nn.Module):
    """A leaky sum of ids, each of which has a decay of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = nn.Parameter(torch.randn(4, 6))
        self.factors = nn.Parameter(torch.linspace(0.90, 0.99, 4))

    def decay(self, x: Tensor) -> Tensor:
        return self.factors[x].unsqueeze(-1)

    def step(self, x: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor]:
        h = self.entries[x] + (0 if h is None else self.decay(x) * h)
        return h.sum(-1, keepdim=True), h

    def forward(self, x: Tensor) -> Tensor:
        h, outputs = None, []
        for t in range(x.shape[1]):
            y, h = self.step(x[:, t], h)
            outputs.append(y)
        return torch.stack(outputs, 1)


def seeded(kind: Callable[[], nn.Module], inputs: int = 1, horizon: int = 256, tokens: bool = False) -> Subject:
    def build() -> nn.Module:
        torch.manual_seed(0)
        return kind()

    return Subject(build, inputs, horizon, tokens=tokens)


@pytest.mark.parametrize("kind", [RoundsItsInputs, RoundsAndSteps])
def test_a_module_that_rounds_its_inputs_keeps_what_it_declares(kind: Callable[[], nn.Module]) -> None:
    found = decay(seeded(kind), 600)
    assert found.status is Status.PASS, found.sentence
    assert found.numbers["change"] == 1.0
    assert "The inputs are changed by 1, as less moves too little." in found.sentence
    assert found.numbers["longest"] == pytest.approx(TAU, abs=1)
    assert found.numbers["shortest"] == pytest.approx(TAU, abs=1)


def test_the_time_scales_of_steps_that_round_to_nothing_are_none() -> None:
    found = memory_function(seeded(RoundsItsInputs), 600)
    assert found.numbers["time_scale_typical"] == pytest.approx(TAU, rel=0.05)
    assert found.numbers["time_scale_longest"] == pytest.approx(TAU, rel=0.05)
    assert "of 16 steps of the input (8 of them move no output beyond rounding)" in found.sentence


def test_a_state_of_integers_is_compared_in_the_outputs() -> None:
    found = decay(seeded(KeepsIntegers), 600)
    assert found.status is Status.PASS, found.sentence
    assert found.numbers["compared"] == "outputs"


def test_a_spiking_module_has_a_memory() -> None:
    found = decay(seeded(Spikes), 600)
    assert found.numbers["longest"] >= 10
    assert found.numbers["change"] > 1e-4


def test_a_long_memory_in_half_precision_is_no_rounding() -> None:
    found = memory_function(seeded(LongInHalf, horizon=512), 600)
    assert found.numbers["time_scale_typical"] == pytest.approx(100, rel=0.05)
    assert "of 16 steps of the input (4 of them move no output beyond rounding)" in found.sentence


def test_a_decay_that_rounding_may_hide_in_the_states_is_not_compared() -> None:
    found = decay(seeded(EntersInHalf, horizon=512), 600)
    assert found.status is Status.NOTE, found.sentence
    assert "Its declared decay is not compared: what is left in its states may be rounding." in found.sentence


def test_a_decay_by_id_that_is_as_declared_has_no_fault() -> None:
    found = decay(seeded(DecaysById, 4, tokens=True), 600)
    assert found.status is Status.PASS, found.sentence
    assert found.numbers["compared"] == "states"


def test_no_memory_is_said_of_the_changes_that_were_tried() -> None:
    found = decay(seeded(lambda: nn.Linear(1, 2)), 600)
    assert found.sentence == (
        "Not measured: no output changes beyond rounding once its input is past, "
        "by changes of size 1.0e-04, 0.01 and 1."
    )


def test_no_memory_of_ids_is_said_of_the_ids_that_were_tried() -> None:
    found = decay(seeded(lambda: nn.Embedding(4, 2), 4, tokens=True), 600)
    assert found.sentence == (
        "Not measured: no output changes beyond rounding once its input is past, by the next id in the place of each."
    )


def test_rows_that_are_not_finite_do_not_move() -> None:
    found = decay(seeded(UndefinedBelow), 600)
    assert found.numbers["change"] == 1.0
    assert "Under 4 of 9 held inputs it never forgets" in found.sentence
    assert "5 of 9 held inputs, whose outputs or states are not finite" in found.sentence


def test_held_inputs_that_leave_nothing_are_not_said_to_keep_all() -> None:
    found = decay(seeded(ForgetsAbove), 600)
    assert "falls to 1/e in 248 or more steps, under 5 of 9 held inputs (measured over 248)." in found.sentence
    assert (
        "Under 5 of 9 held inputs it never forgets: after 248 steps, all of an earlier one is left." in found.sentence
    )


def test_in_half_precision_singular_values_below_rounding_are_not_counted() -> None:
    found = capacity(seeded(Half), 600)
    assert found.status is Status.PASS
    assert found.numbers["size_fine"] is None
    assert 1 <= found.numbers["size"] <= 16
    assert "rounding hides smaller ones" in found.sentence


def test_rows_of_rounding_are_zero_and_undefined_rows_stay() -> None:
    apart = torch.tensor([[1e-17, 3e-16], [1e-9, 1e-17], [float("nan"), 0.0]], dtype=torch.float64)
    found = effect_of(apart, torch.ones(3, dtype=torch.float64), torch.float64, 0.1)
    assert found.rows[0].tolist() == [0.0, 0.0]
    assert found.rows[1].tolist() == pytest.approx([1e-8, 1e-16])
    assert found.rows[2].isnan().tolist() == [True, False]
    assert found.moved() == (1, 2)
    assert 1e-14 < float(found.floor[0]) < 1e-12
