"""Plateaus, fixed training sets, stopping below a loss, and the gradient-over-weight criterion."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine import model_config, stacked, whole
from memsweep import registry
from memsweep.config.schema.training import TrainingConfig
from memsweep.data.task import Batch
from memsweep.learning.ensemble.replicas import stability_margin
from memsweep.learning.loop import TrainingBatches, train
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.learning.state.checkpoint import Checkpoint
from memsweep.learning.training.learner import Learner
from memsweep.learning.training.optimizer import Plateau
from memsweep.models.base import Part
from memsweep.streams import TRAIN, Stream
from memsweep.sweep.store.filesystem import Location

TRAINING = {"steps": 40, "batch_size": 16, "validation_size": 64, "validate_every": 5}


def test_a_plateau_is_torchs():
    rng = np.random.default_rng(0)
    losses = np.exp(np.cumsum(rng.normal(-0.02, 0.05, (200, 3)), 0))
    losses[60:, 1] = losses[60, 1]
    plateau = Plateau.start(3, torch.float64)
    optimizers = [torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0) for _ in range(3)]
    theirs = [torch.optim.lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=4, eps=0.0) for o in optimizers]
    for row in losses:
        plateau.observe(torch.from_numpy(row), 0.5, 4)
        for scheduler, loss in zip(theirs, row, strict=True):
            scheduler.step(loss)
        assert plateau.factor.tolist() == pytest.approx([o.param_groups[0]["lr"] for o in optimizers])
    assert plateau.factor[1] < 1e-3


def test_a_fixed_training_set_is_shuffled_every_epoch():
    _, task_loss = stacked([model_config()])
    data = TrainingBatches(task_loss, TrainingConfig(**TRAINING | {"train_size": 40}))
    rows: list[torch.Tensor] = []
    data.task_loss = _Rows(rows)  # type: ignore[assignment]
    for step in range(4):
        data.batch(step)
    first, second = (set(torch.cat(rows[at : at + 2]).tolist()) for at in (0, 2))
    assert len(first) == len(second) == 32  # two batches of 16 of the 40, no sequence twice
    assert first != second
    assert max(first | second) < 40
    again: list[torch.Tensor] = []
    data.task_loss = _Rows(again)  # type: ignore[assignment]
    data.batch(1)  # any step can be made on its own: a resumed run sees what an uninterrupted one would have seen
    assert torch.equal(again[0], rows[1])


class _Rows:
    """Stands in for a task loss's preparation, to see which sequences a batch is made of."""

    def __init__(self, seen: list[torch.Tensor]) -> None:
        self.seen = seen

    def select(self, batch: Batch, rows: torch.Tensor) -> torch.Tensor:
        assert batch.inputs.shape[0] == 40
        return rows

    def prepare(self, rows: torch.Tensor) -> None:
        self.seen.append(rows)


def test_a_fixed_set_larger_than_what_the_task_has_is_refused():
    digits = registry.get(registry.TASK, "digits")
    task_loss = SampledLoss(digits(digits.Config()), torch.float64)
    with pytest.raises(ValueError, match="train_size is 5000, but the task has only 1197 training sequences"):
        TrainingBatches(task_loss, TrainingConfig(**TRAINING | {"train_size": 5000}))


def test_a_replica_stops_below_the_loss_but_not_before_the_smallest_number_of_steps():
    reached = {}
    for smallest in (0, 30):
        (ensemble,), task_loss = stacked([model_config(width=2)])
        options = TRAINING | {"stop_below": 1e6, "smallest_steps": smallest}
        (learner,) = train([ensemble], task_loss, TrainingConfig(**options))
        reached[smallest] = int(learner.steps[0])
    assert reached == {0: 5, 30: 30}
    (ensemble,), task_loss = stacked([model_config(width=2)])
    (learner,) = train([ensemble], task_loss, TrainingConfig(**TRAINING | {"stop_below": 1e-30}))
    assert int(learner.steps[0]) == 40


def test_plateaus_slow_training_down_and_end_it():
    options = TRAINING | {"steps": 200, "schedule": "plateau", "plateau_patience": 0, "learning_rate": 1e-9}
    (ensemble,), task_loss = stacked([model_config(width=2)], learning_rate=1e-9)
    # with such a rate nothing improves: every validation is a plateau
    (learner,) = train([ensemble], task_loss, TrainingConfig(**options | {"smallest_rate": 1e-11}))
    assert int(learner.steps[0]) < 40
    assert float(learner.plateau.factor[0]) < 1e-2


def test_an_interrupted_run_with_plateaus_and_a_fixed_set_ends_with_the_same_bits(tmp_path):
    options = TrainingConfig(
        **TRAINING | {"train_size": 48, "schedule": "plateau", "plateau_patience": 0, "checkpoint_every": 15}
    )

    def learn(checkpoint=None, interrupt=False):
        (ensemble,), task_loss = stacked([model_config(width=3)])

        def stop(fraction):
            if interrupt and fraction >= 0.5:
                raise KeyboardInterrupt

        return train([ensemble], task_loss, options, checkpoint=checkpoint, progress=stop)[0]

    whole, place = learn(), Checkpoint(Location.at(tmp_path).slot("pack.pt"), "same")
    with pytest.raises(KeyboardInterrupt):
        learn(place, interrupt=True)
    continued = learn(place)
    assert torch.equal(whole.weights, continued.weights)
    assert torch.equal(whole.plateau.factor, continued.plateau.factor)
    for name, value in whole.criterion.summary().items():
        assert torch.equal(value, continued.criterion.summary()[name]), name


def test_the_gradient_over_weight_criterion_is_the_ratio_that_it_says():
    (ensemble,), task_loss = stacked([model_config("exp", width=2)])
    options = TrainingConfig(**TRAINING | {"steps": 1, "validate_every": 1, "amplitude_penalty": 0.0})
    (learner,) = train([ensemble], task_loss, options)
    weights = ensemble.initial.clone().requires_grad_()
    loss = learner.losses(task_loss, whole(task_loss.data(Stream(0, TRAIN), 0, 16)), weights, ensemble.real)
    (gradient,) = torch.autograd.grad(loss.sum(), weights)
    at = slice(0, 2)  # the recurrent weights come first; two of the eight places exist
    expected = (gradient[0, at] / weights[0, at]).abs().detach()
    summary = learner.criterion.summary()
    assert float(summary["max"][0]) == pytest.approx(float(expected.max()))
    assert float(summary["median"][0]) == pytest.approx(float(expected.mean()))  # of two: their middle


def test_a_step_descends_the_loss_and_both_penalties():
    """The gradient that a step takes, of each name and each penalty by itself, is that of the objective as a whole."""
    (ensemble,), task_loss = stacked([model_config("direct", width=2), model_config("exp", width=3)])
    options = TrainingConfig(
        **TRAINING
        | {"steps": 1, "amplitude_penalty": 0.1, "margin_penalty": 0.3, "clip": 1e6, "merge_redundant": False}
    )
    (trained,) = train([ensemble], task_loss, options)
    taken = trained.optimizer.mean / (1.0 - trained.optimizer.beta1)  # the running mean after one step from zero
    weights = ensemble.initial.clone().requires_grad_()
    learner = Learner.start(ensemble, task_loss, options)
    loss = learner.losses(task_loss, whole(task_loss.data(Stream(0, TRAIN), 0, 16)), weights, ensemble.real)
    amplitudes = ensemble.layout.select(Part.ENCODER, Part.READOUT)
    squares = (weights * amplitudes).square().sum(-1)
    largest = 1.0 - stability_margin(ensemble, weights)
    (expected,) = torch.autograd.grad((loss + 0.1 * squares + 0.3 * largest).sum(), weights)
    torch.testing.assert_close(taken[:2], (expected * ensemble.exists)[:2], rtol=1e-12, atol=1e-14)
