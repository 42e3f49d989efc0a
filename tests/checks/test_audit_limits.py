"""The limits of an audit: margins of a declared decay, time that runs out, outputs that no input reaches, sys.exit."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from memsweep.checks import run
from memsweep.checks.finding import Finding, Status, finding
from memsweep.checks.memory.capacity import capacity
from memsweep.checks.memory.decay import decay
from memsweep.checks.memory.response import memory_function
from memsweep.checks.numerics.cost import cost
from memsweep.checks.part import Check
from memsweep.checks.run import audit
from memsweep.checks.subject import Subject
from memsweep.checks.weights.derivatives import derivatives
from memsweep.documents import plain
from memsweep.errors import ModuleError
from memsweep.report.audit import About, audit_text


class Channels(nn.Module):
    """16 channels h = a h + u, whose declaration is another function of a."""

    def __init__(self, declared: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.readout = nn.Parameter(torch.linspace(0.5, 3, 16)), nn.Linear(16, 1)
        self.declared = declared

    def decay(self) -> Tensor:
        return self.declared(torch.sigmoid(self.a))

    def step(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        state = x + torch.sigmoid(self.a) * (0 if state is None else state)
        return self.readout(state), state

    def forward(self, x: Tensor) -> Tensor:
        state, answers = None, []
        for now in x.unbind(1):
            answer, state = self.step(now, state)
            answers.append(answer)
        return torch.stack(answers, 1)


@pytest.mark.parametrize(
    ("declared", "status", "words"),
    [
        (lambda a: a, Status.PASS, "to a factor of 2, which is all that is compared"),
        (lambda a: 0.9 * a, Status.FAULT, "keeps longer than it declares"),  # 6.5 steps, and 21 are true
        (lambda a: a ** (1 / 3), Status.FAULT, "forgets sooner than it declares"),
        (lambda a: 0.1 * a, Status.PASS, "not compared"),  # it is over before 8 steps
    ],
)
def test_a_declared_decay_is_compared_by_its_late_rate(
    declared: Callable[[Tensor], Tensor], status: Status, words: str
) -> None:
    found = decay(Subject(lambda: Channels(declared), 1, 64), 600)
    assert found.status is status
    assert words in found.sentence


class OneWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight * x).cumsum(1)


@pytest.mark.parametrize(("make", "count"), [(OneWeight, 1), (lambda: nn.GRU(1, 2, batch_first=True), 4)])
def test_weights_are_counted_once_and_left_out_once(make: Callable[[], nn.Module], count: int) -> None:
    subject = Subject(make, 1, 32)
    assert derivatives(subject, 600).numbers["weights"] == count
    assert not subject.left_out
    hurried = derivatives(subject, 0)
    assert hurried.numbers["weights"] == 0
    assert hurried.numbers["compared"] > 0  # all together, in each regime
    assert [text for text in subject.left_out if "weights" in text] == [f"{count} of {count} weights one by one"]


def test_outputs_that_no_input_reaches_are_a_fault() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            return self.bias + 0 * x.detach()

    subject = Subject(Flat, 1, 64)
    found = memory_function(subject, 600)
    assert found.status is Status.FAULT
    assert "do not depend on the inputs" in found.sentence
    told = cost(subject, 600).sentence
    assert "nan" not in told
    assert "T^" not in told
    assert memory_function(Subject(OneWeight, 1, 64), 600).status is Status.PASS


def test_the_rank_is_told_as_a_lower_bound() -> None:
    assert "The state holds at least so many" in capacity(Subject(lambda: Channels(lambda a: a), 1, 64), 600).sentence


def test_a_module_that_ends_the_process_is_refused() -> None:
    class Ends(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            sys.exit(f"no {x.shape}")

    with pytest.raises(ModuleError, match="ends the process: SystemExit"):
        audit(Subject(Ends, 1, 8))


def test_time_that_is_left_goes_to_what_had_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    now, allowed = [0.0], list[float]()
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def wants_five(subject: Subject, seconds: float) -> Finding:
        allowed.append(seconds)
        now[0] += min(5.0, seconds)
        if seconds < 5:
            subject.left_out.append("the rest")
        return finding("wants", "Well.", {})

    checks = (
        Check("wants", wants_five, 1, 0.1, needs=()),
        Check("needs little", lambda _subject, _seconds: finding("needs little", "Well.", {}), 2, 0.9, needs=()),
    )
    monkeypatch.setattr(run, "checks", lambda: checks)
    found = audit(Subject(OneWeight, 1, 8), 10.0)
    assert allowed == [pytest.approx(1.0), pytest.approx(9.0)]
    assert found.status is Status.PASS
    assert found.seconds["wants"] == pytest.approx(6.0)


class Chaotic(nn.Module):
    """One state that follows small inputs, and is chaotic under large ones."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        state, states = torch.full_like(x[:, 0], 0.3), []
        for step in x.unbind(1):
            state = 0.4 * torch.sin(self.weight * step * state + step)
            states.append(state)
        return torch.stack(states, 1)


def test_inputs_under_which_a_module_is_chaotic_are_named() -> None:
    """Differences say nothing there; what was not compared must not seem to agree."""
    found = derivatives(Subject(Chaotic, 1, 100), 60.0)
    assert found.status is Status.PASS
    assert found.numbers["chaotic"] == ["hold", "large"]
    assert found.sentence.endswith("Not compared where outputs are chaotic: inputs hold, large.")


class Explodes(nn.Module):
    """h = a h + u with an a of 1e4: not finite in float64 behind step 77."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor([1e4]))

    def forward(self, x: Tensor) -> Tensor:
        state, answers = 0 * x[:, 0], []
        for now in x.unbind(1):
            state = self.a * state + now
            answers.append(state)
        return torch.stack(answers, 1)


def test_a_precision_that_nothing_can_be_compared_with_is_no_pass() -> None:
    found = audit(Subject(Explodes, 1, 128))
    assert found["precision"].status is Status.NOTE
    assert "In float64 its outputs are not finite" in found["precision"].sentence
    told = audit_text(found, About("Explodes", {}), width=500)
    assert not re.search(r"\bnan\b", told)
    assert "float32 (unknown)" in told
    for each in found.findings:
        assert each.status is not Status.PASS or "nan" not in json.dumps(plain(each.numbers)).lower(), each


@pytest.mark.parametrize(("horizon", "known"), [(1, False), (2, False), (4, True)])
def test_growth_needs_three_lengths_and_says_which(horizon: int, known: bool) -> None:
    found = cost(Subject(OneWeight, 1, horizon), 600)
    assert (found.numbers["time_exponent_spread"] is not None) is known
    assert (f"; from 1 to {horizon} steps " in found.sentence) is known
    assert found.status is Status.PASS
