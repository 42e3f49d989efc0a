"""Values that are not finite in one of two readings alone, which the audit compares: a difference, and never a gap."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from memsweep.checks.apart import Marked, difference
from memsweep.checks.contract.batch import batch
from memsweep.checks.contract.causality import causality
from memsweep.checks.contract.determinism import determinism
from memsweep.checks.contract.forms import forms
from memsweep.checks.contract.padding import padding
from memsweep.checks.contract.pieces import pieces
from memsweep.checks.finding import Finding, Status, finding
from memsweep.checks.memory.decay import decay
from memsweep.checks.memory.gradient import gradient
from memsweep.checks.memory.response import memory_function
from memsweep.checks.run import audit
from memsweep.checks.subject import Subject
from memsweep.checks.weights.derivatives import derivatives
from memsweep.models import contracts

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ([1.0, NAN], [1.0, NAN], 0.0),
        ([1.0, INF], [1.0, NAN], 0.0),
        ([NAN, NAN], [NAN, NAN], 0.0),
        ([1.0, NAN], [1.0, 2.0], INF),
        ([1.0, 2.0], [1.0, INF], INF),
        ([1.0, NAN, 3.0], [1.0, NAN, 4.0], 0.25),
    ],
)
def test_a_value_that_is_finite_in_one_alone_is_a_difference(
    one: list[float], other: list[float], apart: float
) -> None:
    assert difference(torch.tensor(one), torch.tensor(other)) == apart


def test_marks_let_a_rule_of_a_study_see_it() -> None:
    answers = iter([[[[1.0], [NAN], [4.0]]], [[[0.0], [0.0], [0.0]]], [[[1.0], [2.0], [4.0]]]])
    inputs = torch.zeros(1, 3, 1)

    def run(_inputs: Tensor) -> Tensor:
        return torch.tensor(next(answers))

    (found,) = contracts.determinism(Marked(run), inputs, inputs)
    assert found.size == 1.0
    assert "other outputs for the same inputs" in found.words
    same = Marked(lambda _inputs: torch.tensor([[[1.0], [NAN], [4.0]]]))
    (found,) = contracts.determinism(same, inputs, inputs)
    assert found.size == 0.0


class Sum(nn.Module):
    """The running sum of its inputs: nothing wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5]))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight * x).cumsum(1)


class Carries(Sum):
    """It takes and gives its state; a sequence that goes on gives nan for its first step."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        out = super().forward(x) + (0 if state is None else state)
        answer = out.clone()
        if state is not None and x.shape[1] > 1:
            answer[:, 0] = NAN
        return answer, out[:, -1:]


class Steps(Sum):
    """Its step form gives nan from step 9 on."""

    def step(self, x: Tensor, state: tuple[Tensor, int] | None) -> tuple[Tensor, tuple[Tensor, int]]:
        total, count = (torch.zeros_like(x), 0) if state is None else state
        total = total + self.weight * x
        return total * (NAN if count >= 9 else 1.0), (total, count + 1)


class Padded(Sum):
    """Under padding on the left it divides by the steps so far, none."""

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        there = torch.ones(x.shape[:2], dtype=torch.bool) if padding_mask is None else padding_mask
        count = there.unsqueeze(-1).to(x).cumsum(1)
        return super().forward(there.unsqueeze(-1) * x + 0 / count)


class KnowsLater(Sum):
    """A large later input makes all outputs nan."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * torch.where(x.abs().amax((1, 2), keepdim=True) > 5, NAN, 1.0)


class KnowsOthers(Sum):
    """A large input of one sequence makes the outputs of all nan."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * torch.where(x.abs().max() > 5, NAN, 1.0)


class Remembers(Sum):
    """Every third call gives nan."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) * (NAN if self.calls % 3 == 0 else 1.0)


class RemembersInTraining(Sum):
    """In training a buffer of the call before decides whether outputs are nan."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        answer = super().forward(x)
        if self.training:
            answer = torch.where(self.last > 0, NAN, answer)
            self.last = x.detach().abs().max()
        return answer


@pytest.mark.parametrize(
    ("make", "look"),
    [
        (Carries, pieces),
        (Steps, forms),
        (Padded, padding),
        (KnowsLater, causality),
        (KnowsOthers, batch),
        (Remembers, determinism),
        (RemembersInTraining, determinism),
    ],
)
def test_nan_in_one_reading_alone_is_a_fault(
    make: Callable[[], nn.Module], look: Callable[[Subject, float], Finding]
) -> None:
    found = look(Subject(make, 2, 64), 600.0)
    assert found.status is Status.FAULT
    assert "nan or inf in one of the two" in found.sentence or look in (batch, determinism)
    assert look(Subject(Sum, 2, 64), 600.0).status in (Status.PASS, Status.SKIP)


class NanAtLarge(Sum):
    """Under a held or stepped input beyond 8 it gives nan."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * torch.where(x.abs() > 8, NAN, 1.0))


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (memory_function, "Left out: 6 of 24 steps of the input, whose outputs are not finite."),
        (decay, "held inputs, whose outputs or states are not finite."),
        (gradient, "Left out: 2 of 6 inputs, whose gradients are not finite."),
    ],
)
def test_inputs_that_are_left_out_are_counted(look: Callable[[Subject, float], Finding], words: str) -> None:
    found = look(Subject(NanAtLarge, 2, 64), 600.0)
    assert found.status is Status.NOTE
    assert words in found.sentence


class _NanBackwards(torch.autograd.Function):
    @staticmethod
    def forward(context, x: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        return 2 * x

    @staticmethod
    def backward(context, slope: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        return slope * NAN


def test_a_derivative_by_inputs_that_is_nan_where_outputs_are_smooth_is_a_fault() -> None:
    class Twice(Sum):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(_NanBackwards.apply(x))

    found = derivatives(Subject(Twice, 2, 64), 600.0)
    assert found.status is Status.FAULT
    assert "autograd gives nan, differences" in found.sentence


@pytest.mark.parametrize(
    "numbers",
    [
        {"deep": {"list": [1.0, NAN]}},
        {"deep": {"list": [[1.0], [1.0, NAN]]}},
        {"deep": {"list": (1.0, (NAN,))}},
        {"deep": [{"list": 1.0}, {"list": [NAN]}, {"list": NAN}]},
    ],
)
def test_a_number_that_is_nan_is_noticed_however_deep(numbers: dict[str, object]) -> None:
    found = finding("a", "Well.", numbers)
    assert found.status is Status.NOTE
    assert found.sentence == "Well. No number came out for deep.list."


def test_an_infinity_is_a_number_and_a_text_is_none() -> None:
    assert finding("a", "Well.", {"deep": {"list": [1.0, INF]}, "fine": None, "text": "nan"}).status is Status.PASS


class Nowhere(nn.Module):
    """Its outputs are nan."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.weight * inputs / 0 * 0


def test_outputs_that_are_nowhere_finite_pass_no_comparison() -> None:
    found = audit(Subject(Nowhere, inputs=1, horizon=16), seconds=2.0)
    status = {each.check: each.status for each in found.findings}
    assert (status.pop("shapes"), status.pop("finite"), status.pop("cost")) == (Status.PASS, Status.FAULT, Status.PASS)
    assert set(status.values()) == {Status.SKIP}
    assert "no output is finite" in found["batch"].sentence


class NarrowAlone(nn.Module):
    """It overflows in float32 alone."""

    def forward(self, inputs: Tensor) -> Tensor:
        large = torch.full_like(inputs, 100.0).exp()
        return inputs * (large / large)


def test_a_module_that_is_finite_in_one_precision_is_compared_in_it() -> None:
    found = audit(Subject(NarrowAlone, inputs=1, horizon=16), seconds=3.0)
    status = {each.check: each.status for each in found.findings}
    assert status["finite"] is Status.FAULT
    assert status["batch"] is Status.PASS
