"""The three ways of a linear model's loss on a batch: they agree, and the batch's shape and the width alone choose."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from engine import model_config, task_config, trial, usual_model, whole
from memsweep.config.schema.batch_loss import CONVOLUTION, SEQUENCES, STATISTICS, fastest, way_of
from memsweep.config.schema.trial import TrialConfig
from memsweep.learning.loss.base import TaskLoss
from memsweep.learning.loss.convolved import ConvolvedLoss, fast_length
from memsweep.learning.loss.exact import ExactLoss
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.learning.training.learner import Learner
from memsweep.recurrence.compiled.library import KERNELS
from memsweep.streams import TRAIN, Stream
from memsweep.trial import _tasks_and_ensembles, program, run_pack, run_trial, train_replicas

LOSSES = {STATISTICS: ExactLoss, CONVOLUTION: ConvolvedLoss, SEQUENCES: SampledLoss}
QUIET = {"balls": (), "test_size": 8}


def long_trial(model: str = "diagonal_rnn", *, width: int = 8, rate: float = 0.05, **training: Any) -> TrialConfig:
    """A trial of two steps on a horizon that no statistics of its small batch are made for."""
    steps = {"steps": 2, "batch_size": 8, "validation_size": 8, "validate_every": 1}
    config = trial(task={"horizon": 520, "rate": rate}, training=steps | training, perturbation=QUIET)
    return dataclasses.replace(config, model=usual_model(model, width=width))


def gradients(config: TrialConfig, way: str) -> tuple[Tensor, Tensor]:
    """Losses and gradients of the first batch, by a way."""
    (task,), (ensemble,) = _tasks_and_ensembles([config], padded=True)
    dtype = getattr(torch, config.training.dtype)
    loss: TaskLoss[Any] = SampledLoss(task, dtype) if way == SEQUENCES else ExactLoss([task], dtype)
    if way == CONVOLUTION:
        loss = ConvolvedLoss([task], dtype, [ensemble])
    learner = Learner.start(ensemble, loss, config.training)
    batch = loss.prepare(loss.draw(Stream(0, TRAIN), 0, config.training.batch_size))
    found, gradient = learner.gradients(loss, whole(batch))
    return found[ensemble.real], gradient[ensemble.real]


@pytest.mark.parametrize(
    ("model", "width", "dtype", "close"),
    [
        ("diagonal_rnn", 8, "float64", 1e-10),
        ("diagonal_rnn", 40, "float64", 1e-10),
        ("dense_rnn", 8, "float64", 1e-10),
        ("lru", 8, "float64", 1e-10),
        ("diagonal_rnn", 8, "float32", 2e-5),
    ],
)
def test_all_ways_agree_on_both_sides_of_the_border(model: str, width: int, dtype: str, close: float) -> None:
    batch = 512
    narrow = width if model == "diagonal_rnn" else None
    border = next(horizon for horizon in range(2, 10_000) if fastest(horizon, batch, narrow) != STATISTICS)
    for horizon in (border - 1, border):
        config = long_trial(model, width=width, seeds=2, batch_size=batch, dtype=dtype)
        config = dataclasses.replace(config, task=dataclasses.replace(config.task, horizon=horizon))
        assert way_of(config) == fastest(horizon, batch, narrow)
        loss, gradient = gradients(config, STATISTICS)
        ways = [CONVOLUTION, SEQUENCES] if narrow else [CONVOLUTION]
        for way in ways:
            other, its = gradients(config, way)
            torch.testing.assert_close(other, loss, rtol=close, atol=0.0)
            assert ((its - gradient).norm(dim=-1) <= close * gradient.norm(dim=-1)).all(), (way, horizon)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("diagonal_rnn", {}),
        ("diagonal_rnn", {"normalize": True}),
        ("dense_rnn", {}),
        ("lru", {}),
        ("lru", {"gamma": "trained"}),
        ("lru", {"skip": True}),
    ],
)
def test_the_kernel_gives_the_loss_and_gradient_of_the_response(
    model: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of models with more weights than modes have, too; without a kernel their response is computed."""
    config = dataclasses.replace(long_trial(seeds=2), model=usual_model(model, width=6, **fields))
    config = dataclasses.replace(config, task=dataclasses.replace(config.task, horizon=50))
    loss, gradient = gradients(config, STATISTICS)
    monkeypatch.setenv(KERNELS, "plain")
    expected, its = gradients(config, STATISTICS)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0.0)
    assert ((gradient - its).norm(dim=-1) <= 1e-12 * its.norm(dim=-1)).all()


@pytest.mark.parametrize(("horizon", "batch", "width"), [(256, 64, 8), (400, 8, 64), (511, 16, 20)])
def test_few_states_leave_the_statistics_early(horizon: int, batch: int, width: int) -> None:
    assert fastest(horizon, batch, width) == SEQUENCES
    assert fastest(horizon, 512 // width + 1, width) == fastest(255, batch, width) == STATISTICS
    assert fastest(horizon, batch, None) == STATISTICS
    config = long_trial(width=width, seeds=2, batch_size=batch)
    config = dataclasses.replace(config, task=dataclasses.replace(config.task, horizon=horizon))
    assert way_of(config) == SEQUENCES
    for one, other in zip(gradients(config, STATISTICS), gradients(config, SEQUENCES), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-10 * float(one.norm()))


@pytest.mark.parametrize(
    ("model", "width", "way"),
    [
        ("diagonal_rnn", 8, SEQUENCES),
        ("diagonal_rnn", 64, CONVOLUTION),
        ("dense_rnn", 8, CONVOLUTION),
        ("lru", 8, CONVOLUTION),
    ],
)
def test_a_trial_trains_by_its_way_and_has_its_bits_in_every_pack(model: str, width: int, way: str) -> None:
    one = long_trial(model, width=width)
    others = [dataclasses.replace(one, model=dataclasses.replace(one.model, width=width - 1))]
    others.append(dataclasses.replace(one, training=dataclasses.replace(one.training, seeds=3, first_seed=7)))
    if way == CONVOLUTION:  # responses stand for the models, so that targets may differ
        others.append(dataclasses.replace(one, task=dataclasses.replace(one.task, rate=0.3)))
    if model == "diagonal_rnn":
        softplus = dataclasses.replace(one.model, parameterization=model_config("softplus").parameterization)
        others.insert(0, dataclasses.replace(one, model=softplus))
    assert {program(other) for other in others} == {program(one)}
    assert [way_of(config) for config in (one, *others)] == [way] * (1 + len(others))
    assert type(train_replicas([one]).loss) is LOSSES[way]
    alone = run_trial(one).tables["history"]
    together = run_pack([*others, one])[-1].tables["history"]
    assert alone.equals(together)


@pytest.mark.parametrize("model", ["diagonal_rnn", "dense_rnn", "lru"])
def test_a_convolution_computes_no_responses_of_dummies(model: str) -> None:
    def operations(seeds: int) -> int:
        with FlopCounterMode(display=False) as counter:
            gradients(long_trial(model, width=64, seeds=seeds), CONVOLUTION)
        return counter.get_total_flops()

    assert 0 < operations(1) <= operations(32) / 8


def test_replicas_that_end_change_no_bit_of_the_others() -> None:
    config = long_trial(width=64, seeds=6)
    (task,), (ensemble,) = _tasks_and_ensembles([config], padded=True)
    loss = ConvolvedLoss([task], torch.float64, [ensemble])
    learner = Learner.start(ensemble, loss, config.training)
    batch = whole(loss.prepare(loss.draw(Stream(0, TRAIN), 0, 8)))
    before = learner.gradients(loss, batch)
    for ended in ([1], [0, 1, 2, 3], [0, 2, 4, 5]):
        learner.running[:] = True
        learner.running[ended] = False
        on = learner.live
        assert all(
            torch.equal(now[on], then[on]) for now, then in zip(learner.gradients(loss, batch), before, strict=True)
        )
    learner.running[:] = False
    learner.gradients(loss, batch)  # of an ensemble that ended beside one that trains on


@pytest.mark.parametrize("width", [8, 64])
def test_threads_change_no_bit(width: int) -> None:
    config = dataclasses.replace(long_trial(width=width), task=task_config(horizon=4000))
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(gradients(config, way_of(config)))
    torch.set_num_threads(1)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_trials_of_different_ways_share_no_program() -> None:
    narrow, wide = long_trial(width=8), long_trial(width=64)
    assert (way_of(narrow), way_of(wide)) == (SEQUENCES, CONVOLUTION)
    assert program(narrow) != program(wide)
    short = dataclasses.replace(narrow, task=dataclasses.replace(narrow.task, horizon=100))
    assert way_of(short) == STATISTICS
    assert "way" not in program(short)


def test_the_expected_loss_needs_no_way() -> None:
    config = long_trial(objective="population")
    assert way_of(config) == ""
    assert type(train_replicas([config]).loss) is ExactLoss


def test_transforms_have_room_for_every_lag() -> None:
    for least in (1, 2, 3, 15, 16, 17, 999, 1999, 2047, 2049, 19_999):
        length = fast_length(least)
        assert least <= length <= max(1.25 * least, least + 1)
