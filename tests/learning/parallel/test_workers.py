"""One trial over several workers: shares give the bits of one worker, parts of the data its weights at every step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from engine import trial
from memsweep import registry
from memsweep.config.schema.trial import RadiiConfig, TrialConfig
from memsweep.learning import loop
from memsweep.learning.loss.batch_sharding import BatchSharding
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.parallel import restrict, shard_replicas
from memsweep.learning.state.checkpoint_file import from_bytes
from memsweep.learning.training.learner import Learner
from memsweep.streams import VALIDATION, Stream
from memsweep.trial import (
    ReplicaMeasurement,
    RunOptions,
    TrialResult,
    WorkerRank,
    _tasks_and_ensembles,
    results_of,
    run_pack,
    run_replicas,
)

SHORT = {"steps": 7, "batch_size": 10, "validation_size": 16, "validate_every": 3}
QUICK = {
    "radii": RadiiConfig(from_=0.01, to=1.0, count=2),
    "balls": ("recurrent",),
    "starts": 0,
    "ascent_steps": 2,
    "test_size": 16,
}


def assert_same(first: TrialResult, second: TrialResult) -> None:
    assert first.outcome == second.outcome
    assert first.summary == pytest.approx(second.summary, rel=0, abs=0, nan_ok=True)
    for name, table in first.tables.items():
        pd.testing.assert_frame_equal(table, second.tables[name], check_exact=True)


@given(st.lists(st.integers(1, 70), min_size=1, max_size=7), st.integers(1, 9), st.booleans())
def test_every_replica_belongs_to_one_worker(sizes: list[int], workers: int, dummies_are_free: bool) -> None:
    shares = shard_replicas(sizes, workers, dummies_are_free)
    assert len(shares) == workers
    owned = [(place, row) for share in shares for place, rows in share for row in rows]
    assert owned == [(place, row) for place, size in enumerate(sizes) for row in range(size)]
    loads = [sum(len(rows) for _, rows in share) for share in shares]
    if dummies_are_free:
        assert max(loads) - min(loads) <= 1
    else:  # a worker computes no more ensembles than it must
        assert max(len(share) for share in shares) <= -(-len(sizes) // workers)


def linear(**training: Any) -> list[TrialConfig]:
    """Two trials of two widths' buckets, so that the pack has two ensembles."""
    return [
        trial(task={"horizon": 8}, model={"width": width}, training=SHORT | {"seeds": 2} | training, perturbation=QUICK)
        for width in (3, 12)
    ]


def sampled(**training: Any) -> list[TrialConfig]:
    """Two trials of models that run over sequences; the second is of another learning rate."""
    return [
        trial(
            task={"horizon": 8},
            model={"activation": "tanh"},
            training=SHORT | {"seeds": 2, "learning_rate": rate} | training,
            perturbation=QUICK,
        )
        for rate in (0.01, 0.03)
    ]


def deep(**training: Any) -> list[TrialConfig]:
    """A model that packs with none, at exactly its shapes."""
    model = registry.get(registry.MODEL, "vanilla_rnn").Config(width=3, layers=2)
    first = sampled(**{"seeds": 3} | training)[0]
    return [dataclasses.replace(first, model=model)]


@pytest.mark.parametrize(
    ("configs", "padded", "workers"),
    [
        pytest.param(linear(), True, 2, marks=pytest.mark.more),
        pytest.param(linear(), True, 3, marks=pytest.mark.more),
        (sampled(), True, 3),
        (deep(), True, 2),
        (linear(seeds=5)[:1], False, 3),  # as a link of a chain
        (sampled()[:1], True, 4),  # more workers than replicas
    ],
    ids=["linear", "more workers than ensembles", "sampled", "deep", "a link of a chain", "idle workers"],
)
def test_the_shares_of_several_workers_are_the_bits_of_one(
    configs: list[TrialConfig], padded: bool, workers: int
) -> None:
    whole = run_pack(configs, RunOptions(padded=padded))
    found: list[ReplicaMeasurement] = []
    for rank in reversed(range(workers)):  # in whatever order they come
        found += run_replicas(configs, RunOptions(worker=WorkerRank(rank, workers), padded=padded))
    for one, several in zip(whole, results_of(configs, found), strict=True):
        assert_same(one, several)


def test_a_share_that_is_lost_is_missed() -> None:
    configs = linear()
    with pytest.raises(RuntimeError, match="2 replicas were measured, not 4"):
        results_of(configs, run_replicas(configs, RunOptions(worker=WorkerRank(0, 2))))


class Kept:
    """A checkpoint's place that keeps every state that was written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def read(self, most: int) -> bytes | None:
        return None

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def delete(self) -> None:
        """It keeps them."""

    def weights(self) -> list[torch.Tensor]:
        """After every step, of all ensembles."""
        states = [from_bytes(data, 2**30)["learners"] for data in self.written]
        return [torch.cat([learner["weights"].flatten() for learner in state]) for state in states]


def steps_of(configs: Sequence[TrialConfig], **options: Any) -> tuple[list[torch.Tensor], list[TrialResult]]:
    kept = Kept()
    results = run_pack(configs, RunOptions(checkpoint=kept, **options))
    return kept.weights(), results


@pytest.mark.parametrize(
    ("configs", "more"),
    [
        pytest.param(linear, {}, marks=pytest.mark.more),
        (sampled, {"train_size": 35, "clip": 0.05, "amplitude_penalty": 1e-3}),
        pytest.param(deep, {}, marks=pytest.mark.more),
    ],
)
def test_a_batch_in_parts_trains_as_the_whole_batch_does(configs: Any, more: dict[str, Any]) -> None:
    trials = configs(checkpoint_every=1, **more)
    whole, one = steps_of(trials)
    parts, several = steps_of(trials, shards=3)  # of 10 sequences: 4, 3 and 3
    assert len(whole) == len(parts) == SHORT["steps"] - 1
    for first, second in zip(whole, parts, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-11)
    assert any((first != second).any() for first, second in zip(whole, parts, strict=True))  # it did something else
    for first, second in zip(one, several, strict=True):
        assert first.summary == pytest.approx(second.summary, rel=1e-6, nan_ok=True)


def test_a_step_in_parts_leaves_no_tensor_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As tests/trial/test_device.py does it, on a device where tensors are only shapes."""
    config = trial(model={"activation": "tanh"}, training={"seeds": 1})
    (task,), (group,) = _tasks_and_ensembles([config], padded=True)
    shapes, from_numpy = FakeTensorMode(allow_non_fake_inputs=True), torch.from_numpy
    monkeypatch.setattr(torch, "from_numpy", lambda array: shapes.from_tensor(from_numpy(array)))
    group.model._parameters.clear()
    tensors = {name: shapes.from_tensor(getattr(group, name)) for name in ("initial", "exists", "real")}
    with shapes, torch.device("lazy:0"):
        there = restrict(dataclasses.replace(group, **tensors), range(1)).to("lazy:0")
        task_loss = task_loss_for([task], config.has_closed_form, torch.float64)
        learner = Learner.start(there, task_loss, config.training)
        data = BatchSharding(3).prepare(task_loss, task_loss.draw(Stream(0, VALIDATION), 0, 8))
        loop._step(learner, task_loss, data, 0, config.training)
        loop._validate([learner], task_loss, data, 1, config.training)
        assert str(learner.best_weights.device) == str(learner.loss.device) == "lazy:0"


@pytest.mark.parametrize(
    ("training", "model", "words"),
    [
        ({"batch_size": 2}, {}, "a batch of 2 sequences cannot be cut into 3 parts"),
        ({"objective": "population"}, {}, "population has no batch to cut"),
        ({}, {"name": "vanilla_rnn", "dropout": 0.5, "layers": 2}, "draws random numbers in training"),
    ],
)
def test_what_cannot_be_computed_in_parts_is_refused(
    training: dict[str, Any], model: dict[str, Any], words: str
) -> None:
    config = trial(training=SHORT | training)
    if model:
        fields = {name: value for name, value in model.items() if name != "name"}
        config = dataclasses.replace(config, model=registry.get(registry.MODEL, model["name"]).Config(**fields))
    with pytest.raises(ValueError, match=words):
        run_pack([config], RunOptions(shards=3))
