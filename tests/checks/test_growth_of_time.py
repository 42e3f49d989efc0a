"""The power of the length with which time grows is of the work alone, and is told where runs of one length agree."""

from __future__ import annotations

import time
from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from memsweep.checks.numerics.cost import _growth, cost
from memsweep.checks.subject import Subject


class Loop(nn.Module):
    """A linear loop; each call waits, as for another process."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((8,), 0.9))

    def forward(self, x: Tensor) -> Tensor:
        self.first()
        h, states = torch.zeros(len(x), 8, dtype=x.dtype), []
        for t in range(x.shape[1]):
            h = self.factor * h + x[:, t]
            states.append(h)
        return torch.stack(states, 1)

    def first(self) -> None:
        time.sleep(0.05)


class WorksMore(Loop):
    """Each call in training does four times the work of the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Counter[int]()

    def forward(self, x: Tensor) -> Tensor:
        self.length = x.shape[1]
        return super().forward(x)

    def first(self) -> None:
        if torch.is_grad_enabled():
            self.calls[self.length] += 1
            with torch.no_grad():
                for _ in range(4 ** min(5, self.calls[self.length])):
                    torch.ones(30_000).sin_()


class CountsThreads(Loop):
    """The numbers of threads of its calls in training."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = list[int]()

    def first(self) -> None:
        if torch.is_grad_enabled():
            self.threads.append(torch.get_num_threads())


def test_work_is_timed_on_one_thread_and_seconds_on_all() -> None:
    before, subject = torch.get_num_threads(), Subject(CountsThreads, 1, 2)
    torch.set_num_threads(3)
    try:
        cost(subject, 600)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert {*subject.at(torch.float32).threads} == {1, 3}


def test_waiting_is_no_growth() -> None:
    found = cost(Subject(Loop, 1, 512), 600)
    assert found.numbers["training_seconds"][-1] > 0.05
    assert found.numbers["time_exponent"] is None or found.numbers["time_exponent"] > 0.6


def test_runs_that_disagree_give_no_power() -> None:
    found = cost(Subject(WorksMore, 1, 8), 600)
    assert found.numbers["time_exponent"] is None
    assert found.numbers["time_exponent_spread"] > 0.5
    assert "runs of one length differ too much to say how work grows, memory grows as T^" in found.sentence


def test_the_spread_of_a_power_is_that_of_the_two_least_runs() -> None:
    lengths = [8, 16, 32]
    assert _growth(lengths, [[2.0, 1.0, 9.0], [2.0, 2.0], [4.0]]) == pytest.approx((1.0, 0.5))
    assert _growth(lengths, [[each] for each in (1.0, 4.0, 16.0)]) == pytest.approx((2.0, 0.0))
    assert _growth(lengths[:2], [[1.0], [2.0]]) == (None, None)
