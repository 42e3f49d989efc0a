"""The training loop: all ensembles of a pack, step by step over shared batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from memsweep.config.schema import TrainingConfig
from memsweep.learning import pruning
from memsweep.learning.checkpoints import Checkpoint
from memsweep.learning.ensemble import Ensemble, stability_margin
from memsweep.learning.learner import Learner
from memsweep.learning.optimizer import clipped, scheduled
from memsweep.learning.problem import Problem
from memsweep.learning.training_data import TrainingData
from memsweep.streams import VALIDATION, Stream

HISTORY_ROWS = 100
"""Most history rows of one replica: enough for a curve, small enough for a tracking server."""


def train(
    ensembles: list[Ensemble],
    problem: Problem,
    training: TrainingConfig,
    *,
    checkpoint: Checkpoint | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Learner]:
    """Train every replica; the best validated state of each is kept.

    A replica whose loss becomes infinite or NaN has diverged: it stops where it was, and the others go on.

    Args:
        ensembles: of one program; they see the same batches.
        problem: losses on the task.
        training: of the pack; per-replica learning rates come from the replicas.
        checkpoint: place to continue from, if it holds a state of this pack, and to write to on the way.
            A continued run ends with the very same numbers.
        progress: called with the fraction done.
    """
    learners = [Learner.start(ensemble, problem) for ensemble in ensembles]
    population = training.objective == "population"
    validation = (
        problem.population()
        if population
        else problem.data(Stream(training.data_seed, VALIDATION), 0, training.validation_size)
    )
    batches = TrainingData(problem, training)
    first = checkpoint.load(learners, training) if checkpoint else 0
    if first == 0:
        _validate(learners, problem, validation, 0, training)
    for step in range(first, training.steps):
        if not any(bool(learner.live.any()) for learner in learners):
            break
        data = validation if population else batches.batch(step)
        for learner in learners:
            _step(learner, problem, data, step, training)
        done = step + 1
        if done % training.validate_every == 0 or done == training.steps:
            _validate(learners, problem, validation, done, training)
            if progress:
                progress(done / training.steps)
        if checkpoint and done % training.checkpoint_every == 0 and done < training.steps:
            checkpoint.save(learners, done)
    if training.merge_redundant:
        for learner in learners:
            _merge_redundant(learner, problem, validation, training)
    return learners


@torch.no_grad()
def _merge_redundant(learner: Learner, problem: Problem, data: Any, training: TrainingConfig) -> None:
    """Merge modes of the best state, from the weakest up, while the objective stays within the tolerance."""
    ensemble = learner.ensemble
    if pruning.modes(ensemble) == 0:
        return
    allowed = learner.best * (1.0 + training.merge_tolerance)
    order = pruning.by_amplitude(ensemble, learner.best_weights)
    strongest = order[:, -1]
    for mode in order[:, :-1].unbind(1):
        weights = pruning.merged(ensemble, learner.best_weights, mode, strongest)
        loss = learner.losses(problem, data, weights, ensemble.real & ~learner.diverged)
        objective = _selected(learner, weights, loss, training)
        redundant = pruning.removable(ensemble, mode, strongest) & ~learner.diverged & (objective <= allowed)
        learner.best = torch.where(redundant, objective, learner.best)
        learner.best_loss = torch.where(redundant, loss, learner.best_loss)
        learner.best_weights = torch.where(redundant.unsqueeze(-1), weights, learner.best_weights)


def _step(learner: Learner, problem: Problem, data: Any, step: int, training: TrainingConfig) -> None:
    weights, model = learner.weights, learner.ensemble.model
    model.train()
    model.stir(learner.seeds, step)
    loss, gradient = learner.descent(problem, data)
    model.eval()
    _add_penalty_gradient(learner, gradient, training)
    learner.criterion.observe(weights, gradient, learner.running, keep=step % training.validate_every == 0)
    # the largest entry is finite where all are: one pass, and nothing but a number a row to write
    healthy = torch.isfinite(loss) & torch.isfinite(torch.linalg.vector_norm(gradient, math.inf, dim=-1))
    learner.diverged |= learner.running & ~healthy
    learner.running &= healthy
    moving = learner.running.unsqueeze(-1) & learner.ensemble.exists
    gradient = clipped(torch.where(moving, gradient, 0.0), training.clip)
    rate = learner.rates * scheduled(step, training.steps, training.schedule) * learner.plateau.factor
    learner.weights = learner.optimizer.update(weights, gradient, rate, training.weight_decay, moving)
    learner.steps += learner.running
    learner.loss = loss


def _penalty(learner: Learner, weights: Tensor, training: TrainingConfig) -> Tensor:
    penalty = torch.zeros_like(weights[:, 0])
    if training.amplitude_penalty:
        squares = torch.where(learner.amplitudes, weights, 0.0).square().sum(-1)
        penalty = penalty + training.amplitude_penalty * squares
    if training.margin_penalty:
        penalty = penalty + _margin_penalty(learner, weights, training)
    return penalty


def _margin_penalty(learner: Learner, weights: Tensor, training: TrainingConfig) -> Tensor:
    margin = stability_margin(learner.ensemble, weights, alive=True)
    return training.margin_penalty * torch.relu(1.0 - margin)


def _add_penalty_gradient(learner: Learner, gradient: Tensor, training: TrainingConfig) -> None:
    """Add the gradient of ``_penalty`` at the learner's weights to ``gradient``, ``[rows, size]``, in its place."""
    weights = learner.weights
    if training.amplitude_penalty:
        gradient.add_(torch.where(learner.amplitudes, weights, 0.0), alpha=2.0 * training.amplitude_penalty)
    if training.margin_penalty:
        leaf = weights.detach().requires_grad_(True)
        penalty = _margin_penalty(learner, leaf, training)
        if penalty.requires_grad:  # not of a model without eigenvalues
            gradient += torch.autograd.grad(penalty.sum(), leaf)[0]


def _selected(learner: Learner, weights: Tensor, loss: Tensor, training: TrainingConfig) -> Tensor:
    """What the kept state is the least of, ``[rows]``."""
    return loss if training.select == "loss" else loss + _penalty(learner, weights, training)


@torch.no_grad()
def _validate(learners: list[Learner], problem: Problem, data: Any, step: int, training: TrainingConfig) -> None:
    every = max(1, math.ceil(training.steps / HISTORY_ROWS))
    for learner in learners:
        loss = learner.losses(problem, data, learner.weights, learner.live)
        learner.diverged |= learner.running & ~torch.isfinite(loss)
        learner.running &= torch.isfinite(loss)
        objective = _selected(learner, learner.weights, loss, training)
        better = learner.running & (objective < learner.best)
        learner.best = torch.where(better, objective, learner.best)
        learner.best_loss = torch.where(better, loss, learner.best_loss)
        learner.best_step = torch.where(better, step, learner.best_step)
        learner.best_weights = torch.where(better.unsqueeze(-1), learner.weights, learner.best_weights)
        learner.stale = torch.where(better, 0, learner.stale + 1)
        if training.patience:
            learner.running &= learner.stale < training.patience
        if step:  # the loss of the initial weights is no epoch of training
            _reduce_and_stop(learner, loss, step, training)
        if not learner.history or step - learner.history[-1][0] >= every or step == training.steps:
            learner.history.append((step, learner.loss, loss))


def _reduce_and_stop(learner: Learner, loss: Tensor, step: int, training: TrainingConfig) -> None:
    if training.schedule == "plateau":
        learner.plateau.observe(loss, training.plateau_factor, training.plateau_patience)
        learner.running &= learner.rates * learner.plateau.factor >= training.smallest_rate
    if step >= training.smallest_steps:
        learner.running &= ~(loss < training.stop_below)
