"""A rule's gradient beside that of backpropagation: the right numbers, kept and stored; training does not move."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from engine import section, trial, whole
from memsweep import registry
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.learning.ensemble.replicas import Ensemble, Replica, build
from memsweep.learning.loop import train
from memsweep.learning.loss.base import TaskLoss
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.training.learner import Learner
from memsweep.learning.training.observer import Observer
from memsweep.measures.alignment.names import ALL
from memsweep.measures.alignment.observer import AlignmentObserver
from memsweep.models.base import Signature
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.stability.results import TrialResult
from memsweep.streams import TRAIN, Stream
from memsweep.trial import run_trial

STACK = ResidualStack.Config(width=3, features=3, layers=2)
SETTINGS = {"seeds": 2, "steps": 6, "batch_size": 5, "validation_size": 6, "validate_every": 2}
SETTINGS |= {"rule": "online_full", "alignment_every": 3}
TRAINING = section(TrainingConfig, **SETTINGS)


def small(model: ResidualStack.Config = STACK, **training: Any) -> TrialConfig:
    base = trial(task={"horizon": 7}, perturbation={"balls": (), "test_size": 6})
    return replace(base, model=model, training=section(TrainingConfig, **SETTINGS | training))


def setting(model: ResidualStack.Config = STACK) -> tuple[Ensemble, TaskLoss]:
    task = registry.get(registry.TASK, "linear_functional")(small().task)
    replicas = [Replica(0, model, seed, 0.01) for seed in range(2)]
    (ensemble,) = build(ResidualStack, replicas, Signature(1, 1, 7), torch.float64, None)
    return ensemble, task_loss_for([task], False, torch.float64)


def table(result: TrialResult, layer: str) -> pd.DataFrame:
    rows = result.tables["alignment"]
    return rows[rows["layer"] == layer]


def observed(learner: Learner) -> Observer:
    (observer,) = learner.observers
    return observer


def gradients(ensemble: Ensemble, task_loss: TaskLoss, training: TrainingConfig) -> tuple[dict[str, Tensor], ...]:
    """By the rule and by backpropagation, of the first batch at the initial weights, by name."""
    learner = Learner.start(ensemble, task_loss, training)
    data = task_loss.data(Stream(0, TRAIN), 0, training.batch_size)
    return tuple(ensemble.layout.named(learner.gradients(task_loss, whole(data), rule)[1]) for rule in (None, "bptt"))


def test_layers_are_compared_by_their_own_weights_and_everything_with_all() -> None:
    """Against the plain formulas, over weights picked by the ends of their names."""
    ensemble, task_loss = setting()
    found, true = gradients(ensemble, task_loss, TRAINING)
    (learner,) = train([ensemble], task_loss, replace(TRAINING, steps=1, validate_every=1))
    for row in range(2):
        compared = {one["layer"]: one for one in observed(learner).of(row, 1)}
        assert list(compared) == ["0", "1", ALL]
        for layer, end in {"0": "_l0", "1": "_l1", ALL: ""}.items():
            own = [name for name in found if name.endswith(end)]
            a, b = (np.concatenate([of[name][row].flatten().numpy() for name in own]) for of in (found, true))
            assert compared[layer]["cosine"] == pytest.approx(a @ b / math.sqrt((a @ a) * (b @ b)), rel=1e-12)
            assert compared[layer]["norm_ratio"] == pytest.approx(math.sqrt((a @ a) / (b @ b)), rel=1e-12)
            assert compared[layer]["step"] == 0
    assert len(own) == len(found) > 15


def test_by_hand() -> None:
    """Weights (first layer | second layer | behind them), of three replicas."""
    first, second = torch.tensor([True, True, False, False, False]), torch.tensor([False, False, True, True, False])
    weights = {"0": first, "1": second, ALL: torch.ones(5, dtype=torch.bool)}
    alignment = AlignmentObserver("alignment", 3, 10, weights=weights)
    rule = torch.tensor([[3.0, 0.0, 0.0, 0.0, 4.0], [1e-30, 0.0, 0.0, -2.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]])
    true = torch.tensor([[3.0, 4.0, 1.0, 0.0, 0.0], [1e-30, 0.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 2.0, 0.0]])
    alignment.compare(rule, true)
    alignment.compare(rule, true)
    small = [tuple(one.values()) for one in alignment.of(0, 10)]
    both = [(0, "0", 0.6, 0.6), (0, "1", 0.0, 0.0), (0, ALL, 9 / 5 / math.sqrt(26), 5 / math.sqrt(26))]
    assert [one[:2] for one in small] == [one[:2] for one in both]
    assert [one[2:] for one in small] == [pytest.approx(one[2:], rel=1e-7) for one in both]
    assert [one["step"] for one in alignment.of(0, 11)] == [0, 0, 0, 10, 10, 10]
    assert alignment.of(0, 0) == []
    tiny = alignment.of(1, 1)
    assert (tiny[0]["cosine"], tiny[0]["norm_ratio"]) == pytest.approx((1.0, 1.0))  # in float32, their squares are zero
    assert (tiny[1]["cosine"], tiny[1]["norm_ratio"]) == pytest.approx((-1.0, 0.5))
    nothing_to_compare_with = alignment.of(2, 1)[0]
    assert math.isnan(nothing_to_compare_with["cosine"])
    assert math.isnan(nothing_to_compare_with["norm_ratio"])


def test_what_the_rules_are_known_to_do() -> None:
    """Without a norm before the unit, exact sensitivities give the last layer's gradient whole, and not the first's."""
    plain = replace(STACK, norm="none")
    exact, spatial, frozen = (
        run_trial(small(plain, rule=rule)) for rule in ("online_full", "online_spatial", "online_reservoir")
    )
    assert table(exact, "1")[["cosine", "norm_ratio"]].to_numpy() == pytest.approx(1.0, abs=1e-10)
    assert (table(exact, "0")["cosine"] < 1.0 - 1e-6).all()
    assert (table(spatial, "1")["cosine"] < 1.0 - 1e-6).all()
    for layer in ("0", "1"):
        assert (table(frozen, layer)[["cosine", "norm_ratio"]] == 0.0).all(axis=None)
    assert (table(frozen, ALL)["cosine"] > 0.0).all()


def test_the_summary_holds_medians_over_replicas_of_means_over_steps() -> None:
    result = run_trial(small(seeds=3, steps=8))
    rows = result.tables["alignment"]
    assert rows["step"].tolist() == [step for _ in range(3) for step in (0, 3, 6) for _ in range(3)]
    for name in ("cosine", "norm_ratio"):
        for layer, key in (("0", f"{name}_layer_0"), ("1", f"{name}_layer_1"), (ALL, name)):
            of_seeds = [rows[(rows["seed"] == seed) & (rows["layer"] == layer)][name].mean() for seed in range(3)]
            assert result.summary[key] == pytest.approx(float(np.median(of_seeds)), rel=1e-14)


def test_comparing_changes_no_number_of_the_training() -> None:
    """With random numbers of each step, which both gradients see."""
    model = replace(STACK, dropout=0.3)
    with_it, without = run_trial(small(model)), run_trial(small(model, alignment_every=0))
    assert len(with_it.tables["alignment"]) == 2 * 2 * 3
    for name in ("curves", "replicas", "memory", "history"):
        pd.testing.assert_frame_equal(with_it.tables[name], without.tables[name], check_exact=True)
