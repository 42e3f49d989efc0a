"""Batch norm in a stack: statistics that training data decide, kept as weights that nothing else moves."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from stack_reference import BatchNorm, Reference
from test_checkpoints import Held
from torch import Tensor

from engine import noise, task_config, trial
from memsweep import registry
from memsweep.config.schema.study import ResourcesConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.learning.ensemble.replicas import Ensemble, Replica, build
from memsweep.learning.loop import train
from memsweep.learning.loss.base import TaskLoss
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.state.checkpoint import Checkpoint
from memsweep.models.base import Part, Signature
from memsweep.models.deep.around_unit import Norm, norm_initial
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.stability.perturbation.ball import ALL, RECURRENT, WEIGHTS, Ball
from memsweep.streams import TRAIN, VALIDATION, Stream
from memsweep.trial import RunOptions, run_pack

HORIZON = 6
TRAINING: dict[str, Any] = {
    "steps": 6,
    "batch_size": 8,
    "validation_size": 16,
    "validate_every": 2,
    "learning_rate": 0.02,
    "weight_decay": 0.5,
    "schedule": "constant",
    "amplitude_penalty": 0.0,
    "clip": 0.0,
}


def config(**fields: Any) -> ResidualStack.Config:
    return ResidualStack.Config(**{"width": 3, "features": 4, "layers": 2, "norm": "batch"} | fields)


def started(seeds: int = 2, **fields: Any) -> tuple[Ensemble, TaskLoss]:
    task = registry.get(registry.TASK, "linear_functional")(task_config(horizon=HORIZON))
    replicas = [Replica(0, config(**fields), seed, 0.02) for seed in range(seeds)]
    (ensemble,) = build(ResidualStack, replicas, Signature(1, 1, HORIZON), torch.float64, None)
    return ensemble, task_loss_for([task], False, torch.float64)


def training_of(**fields: Any) -> Any:
    return trial(training=TRAINING | fields).training


def statistics_of(ensemble: Ensemble, weights: Tensor) -> Tensor:
    return weights[:, ensemble.select(Part.STATISTIC)]


def test_running_statistics_are_torchs() -> None:
    """Over batches of changing sizes, training and evaluation by turns."""
    norm, reference = Norm("batch"), BatchNorm(4).double()
    initial = norm_initial("batch", 4)
    weights = {name: torch.from_numpy(value).unsqueeze(0) for name, value in initial.items()}
    assert not norm.updated_statistics(weights)
    for step in range(5):
        x_BTF = (step + 1.0) + 2.0 * noise(step + 1, 3, 4, seed=step)
        ours = norm(weights, x_BTF.unsqueeze(0), training=True)
        torch.testing.assert_close(ours[0], reference.train()(x_BTF), rtol=1e-12, atol=1e-13)
        weights |= norm.updated_statistics(weights)
        torch.testing.assert_close(weights["norm_mean"][0], reference.running_mean, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(weights["norm_variance"][0], reference.running_var, rtol=1e-12, atol=1e-13)
        ours = norm(weights, x_BTF.unsqueeze(0), training=False)
        torch.testing.assert_close(ours[0], reference.eval()(x_BTF), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("optimizer", ["adamw", "rmsprop"])
def test_a_training_is_torchs(optimizer: str) -> None:
    """The whole loop: gradients through a batch's statistics, weight decay on all weights, and on no statistic."""
    ensemble, task_loss = started()
    training = training_of(optimizer=optimizer)
    (learner,) = train([ensemble], task_loss, training)
    initial, found = (ensemble.layout.named(weights) for weights in (ensemble.initial, learner.weights))
    assert isinstance(ensemble.model, ResidualStack)
    valid = task_loss.data(Stream(0, VALIDATION), 0, training.validation_size)
    kind = {"rmsprop": torch.optim.RMSprop, "adamw": torch.optim.AdamW}[optimizer]
    for row in range(2):
        model = Reference(ensemble.model.config, {name: value[row] for name, value in initial.items()})
        descent = kind(model.parameters(), lr=0.02, weight_decay=0.5)
        losses = [math.nan] * (training.steps + 1)
        for step in range(training.steps):
            batch = task_loss.task.draw(Stream(0, TRAIN), step, training.batch_size)
            descent.zero_grad()
            task_loss.task.loss(model.train()(batch.inputs), batch).backward()
            descent.step()
            losses[step + 1] = task_loss.task.loss(model.eval()(valid.inputs), valid).item()
        for name, value in model.by_names().items():
            torch.testing.assert_close(found[name][row], value.detach(), rtol=1e-8, atol=1e-10)
        for step, _, validated in learner.history[1:]:
            assert float(validated[row]) == pytest.approx(losses[step], rel=1e-9)


class _PowerCut(Exception):
    pass


def test_an_interrupted_training_ends_with_the_same_bits() -> None:
    ensemble, task_loss = started()
    training = training_of(checkpoint_every=2)
    (whole,) = train([ensemble], task_loss, training)
    file = Checkpoint(Held(), "these configs")

    def cut(fraction: float) -> None:
        if fraction > 0.6:
            raise _PowerCut

    with pytest.raises(_PowerCut):
        train([ensemble], task_loss, training, checkpoint=file, progress=cut)
    again, _ = started()
    (resumed,) = train([again], task_loss, training, checkpoint=file)
    for name in ("weights", "best_weights", "best_loss"):
        assert torch.equal(getattr(resumed, name), getattr(whole, name))
    assert not torch.equal(statistics_of(ensemble, whole.weights), statistics_of(ensemble, ensemble.initial))


@pytest.mark.parametrize("ball", [RECURRENT, WEIGHTS, ALL])
@pytest.mark.parametrize("norm", ["spectral", "entrywise"])
def test_no_ball_moves_a_statistic(ball: str, norm: str) -> None:
    ensemble, _ = started()
    moves, shift = Ball(ensemble, ball, norm), noise(2, 3, ensemble.layout.size)
    chosen = ensemble.select(Part.STATISTIC)
    assert int(chosen.sum()) == 2 * 2 * 4
    for found in (moves.steepest(shift), moves.project(shift, torch.ones(3).double()), moves.sphere(shift)):
        assert not found[..., chosen].any()
        assert found[..., ~chosen].any()


def sharing(model: Any) -> list[str]:
    resources = ResourcesConfig(workers=2, strategy="data")
    return resources.sharing_problems([of(model)])


def of(model: Any) -> TrialConfig:
    return dataclasses.replace(trial(task={"horizon": HORIZON}, training=TRAINING | {"batch_size": 8}), model=model)


def test_statistics_of_a_batch_are_not_shared_out() -> None:
    (found,) = sharing(config())
    assert "it takes statistics of the whole batch (batch norm)" in found
    assert not sharing(config(norm="layer"))
    with pytest.raises(ValueError, match="must see a training batch at once"):
        run_pack([of(config())], RunOptions(shards=2))
