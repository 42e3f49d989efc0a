"""The training loop: all ensembles of a pack, step by step over shared batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from memsweep.config.schema.trial import TrainingConfig
from memsweep.learning.ensemble.replicas import Ensemble, stability_margin
from memsweep.learning.loss.problem import Problem
from memsweep.learning.state.checkpoints import Checkpoint
from memsweep.learning.state.warm_start import WarmStart
from memsweep.learning.training import history, pruning
from memsweep.learning.training.batches import TrainingData
from memsweep.learning.training.learner import BPTT, Learner
from memsweep.learning.training.lr_schedule import scheduled
from memsweep.learning.training.optimizer import clipped
from memsweep.learning.training.settings_schedule import Settings, rates_at, settings_at
from memsweep.models.base import Model, Part
from memsweep.streams import VALIDATION, Stream


def train(
    ensembles: list[Ensemble],
    problem: Problem,
    training: TrainingConfig,
    *,
    checkpoint: Checkpoint | None = None,
    handover: WarmStart | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Learner]:
    """Train every replica up to ``training.end``; the best validated state of each is kept.

    A replica whose loss becomes infinite or NaN has diverged: it stops where it was, and the others go on. What is
    true of a training that ends before all its steps is true of the whole one at that step, bit for bit.

    Args:
        ensembles: of one program; they see the same batches.
        problem: losses on the task.
        training: of the pack; per-replica learning rates come from the replicas.
        checkpoint: place to continue from, if it holds a state of this pack, and to write to on the way.
            A continued run ends with the very same numbers.
        handover: states of the trials to begin from, where they are further than the checkpoint, and places for the
            trials' states at the end. One that begins from them, too, ends with the very same numbers.
        progress: called with the fraction done.
    """
    learners = [Learner.start(ensemble, problem, training) for ensemble in ensembles]
    population = training.objective == "population"
    validation = (
        problem.population()
        if population
        else problem.data(Stream(training.data_seed, VALIDATION), 0, training.validation_size)
    )
    batches = TrainingData(problem, training)
    first = checkpoint.load(learners, training) if checkpoint else 0
    if handover:
        first = handover.load(learners, training, first)
    if first == 0:
        _validate(learners, problem, validation, 0, training)
    for step in range(first, training.end):
        _turn(learners, step, training)
        if not any(bool(learner.live.any()) for learner in learners):
            for later in range(step + 1, training.end):  # those who ended are judged as beside others who train on
                _turn(learners, later, training)
            break
        data = validation if population else batches.batch(step)
        for learner in learners:
            _step(learner, problem, data, step, training)
        done = step + 1
        if done % training.validate_every == 0 or done == training.steps:
            _validate(learners, problem, validation, done, training)
            if progress:
                progress(done / training.end)
        if checkpoint and done % training.checkpoint_every == 0 and done < training.end:
            checkpoint.save(learners, done)
    if handover:
        handover.save(learners, training)  # before modes are merged: a training that goes on does not know of it
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
        objective = _selected(learner, weights, loss, training.select, training)
        redundant = pruning.removable(ensemble, mode, strongest) & ~learner.diverged & (objective <= allowed)
        learner.best = torch.where(redundant, objective, learner.best)
        learner.best_loss = torch.where(redundant, loss, learner.best_loss)
        learner.best_weights = torch.where(redundant.unsqueeze(-1), weights, learner.best_weights)


@torch.no_grad()
def _turn(learners: list[Learner], step: int, training: TrainingConfig) -> None:
    """Where the penalties turn, what was best so far is judged anew: values under different penalties are no match."""
    before, now = settings_at(training, step - 1), settings_at(training, step)
    if training.select == "loss" or _penalties(before) == _penalties(now):
        return
    for learner in learners:
        learner.best = learner.best_loss + _penalty(learner, learner.best_weights, now)


def _penalties(settings: Settings) -> tuple[float | None, float]:
    return settings.amplitude_penalty, settings.margin_penalty


def _step(learner: Learner, problem: Problem, data: Any, step: int, training: TrainingConfig) -> None:
    settings = settings_at(training, step)
    weights = learner.weights
    with learner.in_training(step):
        loss, gradient = learner.descent(problem, data)
    if learner.alignment.is_due(step):
        with learner.in_training(step):  # with the same random numbers once more
            _, true = learner.descent(problem, data, BPTT)
        learner.alignment.observe(gradient, true)
    _add_penalty_gradient(learner, gradient, settings)
    learner.criterion.observe(weights, gradient, learner.running, keep=step % training.validate_every == 0)
    # the largest entry is finite where all are: one pass, and nothing but a number a row to write
    healthy = torch.isfinite(loss) & torch.isfinite(torch.linalg.vector_norm(gradient, math.inf, dim=-1))
    learner.diverged |= learner.running & ~healthy
    learner.running &= healthy
    moving = learner.running.unsqueeze(-1) & learner.ensemble.exists
    gradient = clipped(torch.where(moving, gradient, 0.0), settings.clip)
    factor = scheduled(step, training.steps, training.schedule, training.warmup)
    rates = learner.groups.rates(rates_at(learner.rates, settings)) * factor * learner.plateau.factor.unsqueeze(-1)
    learner.weights = learner.optimizer.update(
        weights,
        gradient,
        learner.groups.spread(rates),
        learner.groups.decay(settings.weight_decay, weights),
        moving,
    )
    _settle(learner, weights)
    learner.steps += learner.running
    learner.loss = loss


def _settle(learner: Learner, before: Tensor) -> None:
    """Put in what a step at weights ``[rows, size]`` has made of statistics, of which the optimizer has no say."""
    layout, model = learner.ensemble.layout, learner.ensemble.model
    if all(segment.role.part is not Part.STATISTIC for segment in layout.segments):
        return
    named = layout.named(before)
    after = torch.where(learner.running.unsqueeze(-1), layout.flat({**named, **model.settled(named)}), before)
    learner.weights = torch.where(learner.ensemble.select(Part.STATISTIC), after, learner.weights)


def _penalty(learner: Learner, weights: Tensor, settings: Settings) -> Tensor:
    """What the objective has beside the loss, ``[rows]``."""
    penalty = torch.zeros_like(weights[:, 0])
    if settings.amplitude_penalty:
        squares = torch.where(learner.amplitudes, weights, 0.0).square().sum(-1)
        penalty = penalty + settings.amplitude_penalty * squares
    if settings.margin_penalty:
        penalty = penalty + _margin_penalty(learner, weights, settings)
    if _adds_its_own(learner.ensemble.model):
        own = learner.ensemble.model.penalty(learner.ensemble.layout.named(weights))
        penalty = penalty if own is None else penalty + own
    return penalty


def _margin_penalty(learner: Learner, weights: Tensor, settings: Settings) -> Tensor:
    margin = stability_margin(learner.ensemble, weights, alive=True)
    return settings.margin_penalty * torch.relu(1.0 - margin)


def _adds_its_own(model: Model) -> bool:
    """Whether the model's class says what it adds to its objective: of others, no weights are unpacked for it."""
    return type(model).penalty is not Model.penalty


def _add_penalty_gradient(learner: Learner, gradient: Tensor, settings: Settings) -> None:
    """Add the gradient of ``_penalty`` at the learner's weights to ``gradient``, ``[rows, size]``, in its place."""
    weights = learner.weights
    if settings.amplitude_penalty:
        gradient.add_(torch.where(learner.amplitudes, weights, 0.0), alpha=2.0 * settings.amplitude_penalty)
    if settings.margin_penalty:
        leaf = weights.detach().requires_grad_(True)
        penalty = _margin_penalty(learner, leaf, settings)
        if penalty.requires_grad:  # not of a model without eigenvalues
            gradient += torch.autograd.grad(penalty.sum(), leaf)[0]
    if _adds_its_own(learner.ensemble.model):
        _add_own_gradient(learner, gradient)


def _add_own_gradient(learner: Learner, gradient: Tensor) -> None:
    layout = learner.ensemble.layout
    named = {name: value.requires_grad_(True) for name, value in layout.named(learner.weights).items()}
    penalty = learner.ensemble.model.penalty(named)
    if penalty is not None and penalty.requires_grad:
        found = torch.autograd.grad(penalty.sum(), list(named.values()), allow_unused=True, materialize_grads=True)
        gradient += layout.flat(dict(zip(named, found, strict=True)))


def _selected(learner: Learner, weights: Tensor, loss: Tensor, select: str, settings: Settings) -> Tensor:
    """What the kept state is the least of, ``[rows]``."""
    return loss if select == "loss" else loss + _penalty(learner, weights, settings)


@torch.no_grad()
def _validate(learners: list[Learner], problem: Problem, data: Any, step: int, training: TrainingConfig) -> None:
    settings = settings_at(training, step - 1)  # those of the stretch that ends here, if one does
    for learner in learners:
        loss = learner.losses(problem, data, learner.weights, learner.live)
        learner.diverged |= learner.running & ~torch.isfinite(loss)
        learner.running &= torch.isfinite(loss)
        objective = _selected(learner, learner.weights, loss, training.select, settings)
        better = learner.running & (objective < learner.best)
        learner.best = torch.where(better, objective, learner.best)
        learner.best_loss = torch.where(better, loss, learner.best_loss)
        learner.best_step = torch.where(better, step, learner.best_step)
        learner.best_weights = torch.where(better.unsqueeze(-1), learner.weights, learner.best_weights)
        learner.stale = torch.where(better, 0, learner.stale + 1)
        if training.patience:
            learner.running &= learner.stale < training.patience
        if step:  # the loss of the initial weights is no epoch of training
            _reduce_and_stop(learner, loss, step, training, settings)
        if history.keeps(training, step, learner.history[-1][0] if learner.history else None):
            learner.history.append((step, learner.loss, loss))


def _reduce_and_stop(learner: Learner, loss: Tensor, step: int, training: TrainingConfig, settings: Settings) -> None:
    if training.schedule == "plateau":
        learner.plateau.observe(loss, training.plateau_factor, training.plateau_patience)
        rates = rates_at(learner.rates, settings) * learner.plateau.factor
        learner.running &= rates >= training.smallest_rate
    if step >= training.smallest_steps:
        learner.running &= ~(loss < training.stop_below)
