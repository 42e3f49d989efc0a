"""Slices of perturbed copies: bytes are counted right, the budget is kept, and the errors are the same."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from engine import noise, task_config
from memsweep import registry
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig
from memsweep.learning import memory
from memsweep.learning.ensemble.replicas import Ensemble, Replica, build
from memsweep.learning.loss.base import TaskLoss
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.memory import Footprint, live_bytes
from memsweep.models.base import Signature
from memsweep.stability.perturbation.ascent import first_steps, slice_size
from memsweep.stability.perturbation.ball import Ball
from memsweep.stability.perturbation.error import perturbation_error
from memsweep.stability.perturbation.moved import Moved
from memsweep.streams import TEST, Stream

MEBIBYTE = 1 << 20
CPU = torch.device("cpu")
CASES = ("population", "batch", "sampled", "dense")


def setting(case: str, rows: int = 6, width: int = 8) -> tuple[Ensemble, TaskLoss, Any, torch.Tensor]:
    """An ensemble, its task_loss, data and targets."""
    task = registry.get(registry.TASK, "linear_functional")(task_config(horizon=40))
    model_class = registry.get(registry.MODEL, "dense_rnn" if case == "dense" else "diagonal_rnn")
    model = model_class.Config(width=width, activation="tanh" if case == "sampled" else "linear")
    replicas = [Replica(0, model, seed, 0.01) for seed in range(rows)]
    (ensemble,) = build(model_class, replicas, Signature(1, 1, 40), torch.float64, None)
    task_loss = task_loss_for([task], case != "sampled", torch.float64)
    data = task_loss.data(Stream(0, TEST), 0, 24) if case in ("batch", "sampled") else task_loss.population()
    return ensemble, task_loss, data, ensemble.spread([task_loss.target(0)] * rows)


def a_step(case: str, rows: int = 6, width: int = 8) -> Any:
    """The work of a slice, as a function of its copies."""
    ensemble, task_loss, data, targets = setting(case, rows, width)
    weights = ensemble.initial

    def loss(shift: torch.Tensor) -> torch.Tensor:
        return task_loss.loss(
            ensemble.model, ensemble.layout.named(weights.unsqueeze(1) + shift), data, targets.unsqueeze(1)
        )

    return first_steps(loss, Ball(ensemble, "all", "spectral"), weights, torch.tensor([0.1], dtype=weights.dtype), 8)


def errors(
    made: tuple[Ensemble, TaskLoss, Any, torch.Tensor], budget: int | None, radii: int = 7, steps: int = 4
) -> torch.Tensor:
    """Of a setting, in the ball of all weights; six starts a radius."""
    ensemble, task_loss, data, targets = made
    config = PerturbationConfig(radii=RadiiConfig(from_=1e-3, to=0.5, count=radii), starts=2, ascent_steps=steps)
    return perturbation_error(ensemble, task_loss, data, ensemble.initial, targets, "all", config, budget=budget).errors


def test_bytes_of_tensors_count_from_birth_to_death():
    given = noise(1000)

    def work() -> None:
        first = given + 1.0  # 8000
        second = first * 2.0  # 16000
        first += second  # in place
        second.view(10, 100).transpose(0, 1)  # a view
        given.view(-1).mul_(1.0)  # was there before
        del first  # 8000
        second.sum()  # 8008

    assert live_bytes(work).peak == 16000
    assert live_bytes(work).moments[-1] == 8008


@pytest.mark.parametrize("case", CASES)
def test_the_peak_is_that_of_torchs_own_allocator(case):
    """It counts whatever is taken while the step runs: also inside operations, a little more than what lives."""
    work = partial(a_step(case), 3)
    work()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    taken = np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])
    counted = live_bytes(work).peak
    assert counted == pytest.approx(int(taken.max()), rel=0.05)
    assert counted == live_bytes(work).peak


def test_the_size_of_a_slice_is_the_largest_that_fits():
    crossing = Footprint(fixed=np.array([100.0, 0.0]), each=np.array([1.0, 3.0]))
    assert [crossing.peak(copies) for copies in (1, 50, 51)] == [101, 150, 153]
    assert [crossing.largest_count(budget) for budget in (110, 152, 153)] == [10, 50, 51]
    assert crossing.largest_count(0) == 1
    for case in CASES:
        work = a_step(case)
        budget = 8 * live_bytes(partial(work, 1)).peak
        size = slice_size(work, CPU, budget)
        assert size >= 8
        assert live_bytes(partial(work, size)).peak <= budget < live_bytes(partial(work, size + 1)).peak


@pytest.mark.parametrize("case", ["dense", *(pytest.param(case, marks=pytest.mark.more) for case in CASES[:-1])])
def test_a_small_budget_is_kept_and_finds_the_same_errors(case):
    small, large = 6 * live_bytes(partial(a_step(case), 1)).peak, 1024 * MEBIBYTE
    made = setting(case)
    peaks, found = [], []
    for budget in (small, large):
        peaks.append(live_bytes(partial(errors, made, budget)).peak)
        found.append(errors(made, budget))
    # twelve starts at seven radii and six beyond, what each slice reaches, all of it; worst shifts of all radii and
    # their neighbours
    beside = made[0].initial.nbytes * (13 * 12 * 3 + 4 * 7)
    assert peaks[0] <= small + beside < peaks[1]
    assert torch.isfinite(found[0]).all()
    torch.testing.assert_close(*found, rtol=1e-7, atol=0.0)


def test_a_slice_does_not_depend_on_how_many_rows_are_real(monkeypatch):
    """Else the last bits of a trial would depend on its company."""
    sizes = []
    monkeypatch.setattr(
        "memsweep.stability.perturbation.moved.slice_size",
        lambda *args: sizes.append(slice_size(*args)) or sizes[-1],  # type: ignore[func-returns-value]
    )
    ensemble, task_loss, data, targets = setting("dense")
    config = PerturbationConfig(radii=RadiiConfig(from_=1e-3, to=0.5, count=3), starts=1, ascent_steps=2)
    found = [
        perturbation_error(
            replace(ensemble, real=torch.arange(6) < real), task_loss, data, ensemble.initial, targets, "all", config
        ).errors
        for real in (6, 2)
    ]
    assert sizes[0] == sizes[1]
    assert torch.equal(found[0][:2], found[1][:2])


def test_alike_work_is_measured_whole_once_unless_its_memory_depends_on_values(monkeypatch):
    """A model that holds more at some weights gets its own number, as if nothing had been kept."""
    monkeypatch.setattr(memory, "_found", {})

    def work(held: int) -> Any:
        def of(units: int) -> None:
            asked.append(units)
            torch.zeros(held + 8, units) + 1.0

        return of

    for held, expected in ((0, [1, 2, 4]), (0, [1]), (100, [1, 2, 4]), (0, [1, 2, 4])):
        asked: list[int] = []
        found = memory.largest_count(work(held), 10_000, "alike")
        assert asked == expected
        assert found == memory.footprint(work(held), 10_000).largest_count(10_000)


def test_slices_of_equal_shapes_share_their_measurement(monkeypatch):
    """Seeds, weights and sequences do not matter; the size of data, the ball and the model do."""
    monkeypatch.setattr(memory, "_found", {})
    whole: list[int] = []
    measured = memory.footprint
    monkeypatch.setattr(memory, "footprint", lambda *args: whole.append(1) or measured(*args))

    def sizes(seed: int, sequences: int, width: int = 8, ball: str = "all") -> int:
        ensemble, task_loss, _, targets = setting("sampled", 2, width)
        data = task_loss.data(Stream(seed, TEST), seed, sequences)
        moved = Moved.of(ensemble, task_loss, ensemble.initial + 0.01 * seed, targets, ball, PerturbationConfig())
        return moved._size(data, moved.reading)

    first = [sizes(seed, 24) for seed in range(3)]
    assert len(whole) == 1
    assert len({*first}) == 1
    monkeypatch.setattr(memory, "_found", {})
    assert sizes(2, 24) == first[0]
    for number, other in enumerate(({"sequences": 48}, {"width": 4}, {"ball": "recurrent"}), 3):
        sizes(0, **{"sequences": 24, **other})
        assert len(whole) == number
