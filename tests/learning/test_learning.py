"""Training: the same numbers alone, in company, interrupted; divergence and early stop contained in one replica."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from engine import model_config, stacked, task_config
from memsweep.config.schema.training import TrainingConfig
from memsweep.learning.ensemble.replicas import build, stability_margin
from memsweep.learning.loop import train
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.streams import TEST, TRAIN, Stream

TRAINING = TrainingConfig(steps=40, batch_size=16, validation_size=64, validate_every=5, amplitude_penalty=1e-2)


def test_streams_never_meet():
    draws = [
        Stream(seed, name).generator(index).standard_normal(1000)
        for seed in (0, 1)
        for name in (TRAIN, TEST)
        for index in (0, 1, 2**40)
    ]
    assert len(np.unique(np.concatenate(draws))) == 12 * 1000
    again = Stream(1, TEST).generator(1).standard_normal(1000)
    np.testing.assert_array_equal(again, draws[3 * 3 + 1])


@pytest.mark.parametrize("objective", ["minibatch", pytest.param("population", marks=pytest.mark.more)])
def test_a_replica_trains_to_the_same_bits_in_any_company_and_order(objective):
    training = TrainingConfig(steps=40, batch_size=16, validation_size=64, validate_every=5, objective=objective)
    models = [
        model_config(name, width=width, normalize=False) for width in (2, 5) for name in ("direct", "exp", "softplus")
    ] * 3
    seeds = list(range(len(models)))
    (ensemble,), task_loss = stacked(models, seeds=seeds)
    (company,) = train([ensemble], task_loss, training)
    backwards, _ = stacked(models[::-1], seeds=seeds[::-1])
    (reverse,) = train(backwards, task_loss, training)
    for row in range(len(models)):
        alone, _ = stacked([models[row]], seeds=[seeds[row]])
        (single,) = train(alone, task_loss, training)
        for other, at in ((company, row), (reverse, len(models) - 1 - row)):
            assert torch.equal(single.best_weights[0], other.best_weights[at])
            assert torch.equal(single.best[0], other.best[at])


def test_training_follows_the_plain_recurrence():
    """Ten steps of the quadratic form against ten steps of autograd through the loop over time."""
    (ensemble,), task_loss = stacked([model_config(width=3)])
    training = TrainingConfig(
        steps=10,
        batch_size=8,
        validation_size=8,
        validate_every=1,
        schedule="constant",
        amplitude_penalty=1e-2,
        clip=0.5,
    )
    (fast,) = train([ensemble], task_loss, training)
    model_class, task = type(ensemble.model), task_loss.task
    model = model_class(model_config(width=3), ensemble.model.signature, Stream(0, "initial weights").generator())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
    for step in range(10):
        batch = task.draw(Stream(0, TRAIN), step, 8)
        size = model.encoder_weight.square().sum() + model.readout_weight.square().sum()
        loss = task.loss(model(batch.inputs), batch) + training.amplitude_penalty * size
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimizer.step()
    named = ensemble.layout.named(fast.weights[0])
    # 1e-6: the published clip adds 1e-6 to the norm that it divides by
    torch.testing.assert_close(named["recurrent_weight"][:3], model.recurrent_weight.detach(), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(named["readout_weight"][:, :3], model.readout_weight.detach(), rtol=1e-6, atol=1e-8)


def test_divergence_stays_in_its_replica():
    (ensemble,), task_loss = stacked([model_config("direct", width=2)] * 2, task=task_config(horizon=400))
    ensemble.initial[0, ensemble.layout.segments[0].start] = -30.0  # eigenvalue 31: 31^400 overflows
    (learner,) = train([ensemble], task_loss, TRAINING)
    assert learner.diverged[:2].tolist() == [True, False]
    assert torch.equal(learner.weights[0], ensemble.initial[0])
    assert math.isfinite(learner.best[1])
    alone, _ = stacked([model_config("direct", width=2)], task=task_config(horizon=400), seeds=[1])
    (single,) = train(alone, task_loss, TRAINING)
    assert torch.equal(single.best_weights[0], learner.best_weights[1])


def test_early_stop_is_per_replica():
    training = TrainingConfig(steps=200, batch_size=16, validation_size=64, validate_every=5, patience=1)
    (ensemble,), task_loss = stacked([model_config(width=width) for width in (2, 3, 4, 5)])
    (learner,) = train([ensemble], task_loss, training)
    steps = learner.steps[:4].tolist()
    assert min(steps) < 200
    assert len(set(steps)) > 1
    assert (learner.best_step[:4] <= learner.steps[:4]).all()


def test_margin_counts_every_mode_and_no_padding():
    (ensemble,), _ = stacked([model_config("direct", width=3)])
    weights = ensemble.initial.clone()
    weights[0, :3] = torch.tensor([0.5, 0.01, 1.9])
    assert stability_margin(ensemble, weights)[0] == pytest.approx(0.01)
    weights[0, :3] = torch.tensor([0.5, 0.0, 1.0])  # a dead mode is an integrator: margin 0, not left out
    assert stability_margin(ensemble, weights)[0] == 0.0
    weights[0, :3] = torch.tensor([0.5, 0.4, 1.0])
    weights[0, 3:8] = -1.0  # padding
    assert stability_margin(ensemble, weights)[0] == pytest.approx(0.4)


@pytest.mark.parametrize("merge", [True, False])
def test_a_dead_mode_becomes_half_of_the_living_one(merge):
    """One mode does the work; a slow one of no amplitude would decide how far the weights may move."""
    (ensemble,), task_loss = stacked([model_config("direct", width=3), model_config("direct", width=2)])
    named = ensemble.layout.named(ensemble.initial)
    named["recurrent_weight"][:, :3] = torch.tensor([0.001, 0.63212, 0.6])
    named["encoder_weight"][:, :3, 0] = torch.tensor([1e-7, 1.0, 0.5])
    named["readout_weight"][:, 0, :3] = torch.tensor([1e-7, 0.7, 0.6])
    named["encoder_weight"][1, 2] = named["readout_weight"][1, 0, 2] = 0.0  # the second model has two modes
    ensemble.initial.copy_(torch.where(ensemble.exists, ensemble.layout.flat(named), ensemble.initial))
    before = ensemble.model.response(ensemble.layout.named(ensemble.initial), 20).kernel
    training = TrainingConfig(steps=0, validation_size=64, merge_redundant=merge)
    (learner,) = train([ensemble], task_loss, training)
    rates = ensemble.layout.named(learner.best_weights)["recurrent_weight"]
    assert rates[0, :3].tolist() == pytest.approx([0.63212 if merge else 0.001, 0.63212, 0.6])
    assert rates[1, :2].tolist() == pytest.approx([0.63212 if merge else 0.001, 0.63212])
    after = ensemble.model.response(ensemble.layout.named(learner.best_weights), 20).kernel
    torch.testing.assert_close(before[:2], after[:2], rtol=1e-9, atol=1e-12)
    margin = stability_margin(ensemble, learner.best_weights)[:2]
    assert (margin > 0.5).all() if merge else (margin < 0.01).all()


def test_the_sampled_loss_and_its_gradient_do_not_depend_on_the_chunks():
    (ensemble,), quadratic = stacked([model_config(width=3)])
    replicas = ensemble.replicas * 2
    (plain,) = build(type(ensemble.model), replicas, ensemble.model.signature, torch.float64, None)
    task_loss = SampledLoss(quadratic.task, torch.float64, chunk=3)
    batch = task_loss.data(Stream(0, TRAIN), 0, 8)
    weights = plain.layout.named(plain.initial)
    whole, parts = ({name: w.clone().requires_grad_() for name, w in weights.items()} for _ in range(2))
    expected = task_loss.task.loss(plain.model.outputs(whole, batch.inputs), batch)
    found = task_loss.loss(plain.model, parts, batch, torch.zeros(()))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    scale = torch.tensor([1.0, -2.0], dtype=torch.float64)
    (expected * scale).sum().backward()
    (found * scale).sum().backward()
    for name in weights:
        torch.testing.assert_close(parts[name].grad, whole[name].grad, rtol=1e-10, atol=1e-14)
