"""The training loop: all ensembles of a pack, step by step over shared batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

import torch
from torch import Tensor

from memsweep.config.schema.training import TrainingConfig
from memsweep.data.task import Batch
from memsweep.learning.ensemble.frozen import freezes_weights, frozen_entries
from memsweep.learning.ensemble.replicas import Ensemble, stability_margin
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.loss.batch_sharding import ONE_SHARD, BatchSharding, ShardedBatch
from memsweep.learning.state.checkpoint import Checkpoint
from memsweep.learning.state.warm_start import WarmStart
from memsweep.learning.training import pruning
from memsweep.learning.training.learner import Learner
from memsweep.learning.training.optimizer import Settings, keeps_history, rates_at, settings_at
from memsweep.learning.training.update import update
from memsweep.models.base import Model, Part
from memsweep.streams import TRAIN, VALIDATION, Stream


class TrainingBatches(Generic[Data]):
    """The batches of a training run; batch ``step`` is a function of the config and the step.

    Args:
        task_loss: draws and prepares the sequences.
        training: ``train_size`` 0 draws a new batch at every step. Otherwise an epoch is a permutation of
            ``train_size`` sequences, cut into batches; sequences that do not fill a batch are left out of that epoch.
        sharding: how each batch is cut.

    Raises:
        ValueError: ``train_size`` is larger than the task's own training set.
    """

    def __init__(
        self, task_loss: TaskLoss[Data], training: TrainingConfig, sharding: BatchSharding = ONE_SHARD
    ) -> None:
        self.task_loss, self.training, self.sharding = task_loss, training, sharding
        self.stream = Stream(training.data_seed, TRAIN)
        self.order = Stream(training.data_seed, "train order")
        self.fixed_set = self._fixed_set() if training.train_size else None
        self.epoch, self.permutation = -1, torch.empty(0, dtype=torch.long)

    def _fixed_set(self) -> Batch:
        size = self.training.train_size
        batch = self.task_loss.draw(self.stream, 0, size)
        if len(batch.inputs) < size:
            raise ValueError(
                f"training.train_size is {size}, but the task has only {len(batch.inputs)} training sequences: use at "
                "most that, or 0, with which a task that has a training set of its own shuffles it every epoch"
            )
        return batch

    def batch(self, step: int) -> ShardedBatch[Data]:
        """The prepared batch of a step."""
        size = self.training.batch_size
        if self.fixed_set is None:
            return self.sharding.prepare(self.task_loss, self.task_loss.draw(self.stream, step, size))
        epoch, index = divmod(step, max(1, self.training.train_size // size))
        if epoch != self.epoch:
            shuffled = self.order.generator(epoch).permutation(self.training.train_size)
            self.epoch, self.permutation = epoch, torch.from_numpy(shuffled)
        rows = self.permutation[index * size : (index + 1) * size]
        return self.sharding.prepare(self.task_loss, self.task_loss.select(self.fixed_set, rows))


def train(
    ensembles: list[Ensemble],
    task_loss: TaskLoss[Data],
    training: TrainingConfig,
    *,
    sharding: BatchSharding = ONE_SHARD,
    checkpoint: Checkpoint | None = None,
    warm_start: WarmStart | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Learner]:
    """Train every replica up to ``training.end``, and keep the best validated state of each.

    A replica whose loss becomes infinite or NaN has diverged: it stops there, and the others continue. A training that
    ends before all its steps has the bits of the whole one at that step.

    Args:
        ensembles: of one program; they see the same batches.
        task_loss: on which they train.
        training: of the pack; learning rates come from the replicas.
        sharding: how batches are cut, and which processes compute the shards.
        checkpoint: where training continues from if a state of this pack is there, and where states are written.
            A continued run ends with the very same numbers.
        warm_start: states of the trials to start from where they are further than the checkpoint, and slots for their
            states at the end. A run that starts from them, too, ends with the very same numbers.
        progress: called with the fraction done.
    """
    learners = [Learner.start(ensemble, task_loss, training) for ensemble in ensembles]
    population = training.objective == "population"
    if population:
        validation = observed = sharding.population(task_loss)
    else:
        batch = task_loss.draw(Stream(training.data_seed, VALIDATION), 0, training.validation_size)
        validation = observed = sharding.prepare(task_loss, batch)
        if any(learner.observers for learner in learners):
            size = min(training.batch_size, len(batch.inputs))
            observed = sharding.prepare(task_loss, task_loss.select(batch, torch.arange(size, device="cpu")))
    batches = TrainingBatches(task_loss, training, sharding)
    first = checkpoint.load(learners, training) if checkpoint else 0
    if warm_start:
        first = warm_start.load(learners, training, first)
    if first == 0:
        _validate(learners, task_loss, validation, 0, training)
        _observe(learners, task_loss, observed, 0, training)
    for step in range(first, training.end):
        _update_best_objective(learners, step, training)
        if not any(bool(learner.live.any()) for learner in learners):
            # replicas that ended must have the numbers that they would have beside others that train on
            for later in range(step + 1, training.end):
                _update_best_objective(learners, later, training)
            break
        data = validation if population else batches.batch(step)
        for learner in learners:
            _step(learner, task_loss, data, step, training)
        done = step + 1
        if done % training.validate_every == 0 or done == training.steps:
            _validate(learners, task_loss, validation, done, training)
            _observe(learners, task_loss, observed, done, training)
            if progress:
                progress(done / training.end)
        if checkpoint and done % training.checkpoint_every == 0 and done < training.end:
            checkpoint.save(learners, done, training)
    if warm_start:
        warm_start.save(learners, training)  # before modes are merged: a longer training starts from unmerged modes
    if training.merge_redundant:
        for learner in learners:
            _merge_redundant(learner, task_loss, validation, training)
    return learners


@torch.no_grad()
def _merge_redundant(
    learner: Learner, task_loss: TaskLoss[Data], data: ShardedBatch[Data], training: TrainingConfig
) -> None:
    """Merge modes of the best state, from the weakest up, while the objective stays within the tolerance."""
    ensemble = learner.ensemble
    if pruning.modes(ensemble) == 0:
        return
    allowed = learner.best * (1.0 + training.merge_tolerance)
    order = pruning.by_amplitude(ensemble, learner.best_weights)  # [rows, M], the weakest first
    strongest = order[:, -1]
    for mode in order[:, :-1].unbind(1):
        weights = pruning.merge(ensemble, learner.best_weights, mode, strongest)
        loss = learner.losses(task_loss, data, weights, ensemble.real & ~learner.diverged)
        objective = _selection_value(learner, weights, loss, training.select, training)
        redundant = pruning.removable(ensemble, mode, strongest) & ~learner.diverged & (objective <= allowed)
        learner.best = torch.where(redundant, objective, learner.best)
        learner.best_loss = torch.where(redundant, loss, learner.best_loss)
        learner.best_weights = torch.where(redundant.unsqueeze(-1), weights, learner.best_weights)


@torch.no_grad()
def _update_best_objective(learners: list[Learner], step: int, training: TrainingConfig) -> None:
    """Recompute the best objective when a penalty changes: objectives under different penalties cannot be compared."""
    before, now = settings_at(training, step - 1), settings_at(training, step)
    if training.select == "loss" or _penalties(before) == _penalties(now):
        return
    for learner in learners:
        learner.best = learner.best_loss + _penalty(learner, learner.best_weights, now)


def _penalties(settings: Settings) -> tuple[float | None, float]:
    return settings.amplitude_penalty, settings.margin_penalty


def _step(
    learner: Learner, task_loss: TaskLoss[Data], batch: ShardedBatch[Data], step: int, training: TrainingConfig
) -> None:
    weights = learner.weights  # [rows, size]
    with learner.in_training(step):
        loss, gradient = learner.gradients(task_loss, batch)
    for observer in learner.observers:
        observer.differentiated(learner, task_loss, batch, step, gradient)
    _add_penalty_gradient(learner, gradient, settings_at(training, step))
    update(learner, loss, gradient, step, training)
    _update_statistics(learner, weights)
    if freezes_weights(learner.ensemble.model):  # weight decay moved them
        learner.weights = torch.where(frozen_entries(learner.ensemble), weights, learner.weights)


def _update_statistics(learner: Learner, before: Tensor) -> None:
    """Set the running statistics to their values after a step at weights ``before``; the optimizer never moves them."""
    layout, model = learner.ensemble.layout, learner.ensemble.model
    if all(segment.role.part is not Part.STATISTIC for segment in layout.segments):
        return
    named = layout.named(before)
    after = torch.where(
        learner.running.unsqueeze(-1), layout.flat({**named, **model.updated_statistics(named)}), before
    )
    learner.weights = torch.where(learner.ensemble.select(Part.STATISTIC), after, learner.weights)


def _penalty(learner: Learner, weights: Tensor, settings: Settings) -> Tensor:
    """The penalties of the objective, ``[rows]``."""
    penalty = torch.zeros_like(weights[:, 0])
    if settings.amplitude_penalty:
        squares = torch.where(learner.amplitudes, weights, 0.0).square().sum(-1)
        penalty = penalty + settings.amplitude_penalty * squares
    if settings.margin_penalty:
        penalty = penalty + _margin_penalty(learner, weights, settings)
    if _has_own_penalty(learner.ensemble.model):
        own = learner.ensemble.model.penalty(learner.ensemble.layout.named(weights))
        penalty = penalty if own is None else penalty + own
    return penalty


def _margin_penalty(learner: Learner, weights: Tensor, settings: Settings) -> Tensor:
    margin = stability_margin(learner.ensemble, weights, alive=True)
    return settings.margin_penalty * torch.relu(1.0 - margin)


def _has_own_penalty(model: Model) -> bool:
    """Whether the model's class overrides ``penalty``; otherwise no weights are unpacked for it."""
    return type(model).penalty is not Model.penalty


def _add_penalty_gradient(learner: Learner, gradient: Tensor, settings: Settings) -> None:
    """Add the gradient of ``_penalty`` at the learner's weights to ``gradient``, ``[rows, size]``, in place.

    Without the penalty of the amplitudes, which ``update`` adds.
    """
    weights, model, layout = learner.weights, learner.ensemble.model, learner.ensemble.layout
    if settings.margin_penalty:
        leaf = weights.detach().requires_grad_(True)
        penalty = _margin_penalty(learner, leaf, settings)
        if penalty.requires_grad:  # a model without eigenvalues has a constant margin
            gradient += torch.autograd.grad(penalty.sum(), leaf)[0]
    if _has_own_penalty(model):
        named = {name: value.requires_grad_(True) for name, value in layout.named(weights).items()}
        own = model.penalty(named)
        if own is not None and own.requires_grad:
            leaves = list(named.values())
            gradients = torch.autograd.grad(own.sum(), leaves, allow_unused=True, materialize_grads=True)
            gradient += layout.flat(dict(zip(named, gradients, strict=True)))


def _selection_value(learner: Learner, weights: Tensor, loss: Tensor, select: str, settings: Settings) -> Tensor:
    """The value whose minimum selects the kept state, ``[rows]``: the loss, or the objective."""
    return loss if select == "loss" else loss + _penalty(learner, weights, settings)


@torch.no_grad()
def _validate(
    learners: list[Learner],
    task_loss: TaskLoss[Data],
    data: ShardedBatch[Data],
    step: int,
    training: TrainingConfig,
) -> None:
    settings = settings_at(training, step - 1)  # where the settings change here, those before the change
    for learner in learners:
        loss = learner.losses(task_loss, data, learner.weights, learner.live)
        learner.diverged |= learner.running & ~torch.isfinite(loss)
        learner.running &= torch.isfinite(loss)
        objective = _selection_value(learner, learner.weights, loss, training.select, settings)
        better = learner.running & (objective < learner.best)
        learner.best = torch.where(better, objective, learner.best)
        learner.best_loss = torch.where(better, loss, learner.best_loss)
        learner.best_step = torch.where(better, step, learner.best_step)
        learner.best_weights = torch.where(better.unsqueeze(-1), learner.weights, learner.best_weights)
        learner.stale = torch.where(better, 0, learner.stale + 1)
        if training.patience:
            learner.running &= learner.stale < training.patience
        if step:  # the validation of the initial weights ends no training, and is no step of a plateau
            _reduce_and_stop(learner, loss, step, training, settings)
        if keeps_history(training, step, learner.history[-1][0] if learner.history else None):
            learner.history.append((step, learner.loss, loss))


def _observe(
    learners: list[Learner], task_loss: TaskLoss[Data], data: ShardedBatch[Data], step: int, training: TrainingConfig
) -> None:
    for learner in learners:
        for observer in learner.observers:
            observer.validated(learner, task_loss, data, step, training)


def _reduce_and_stop(learner: Learner, loss: Tensor, step: int, training: TrainingConfig, settings: Settings) -> None:
    if training.schedule == "plateau":
        learner.plateau.observe(loss, training.plateau_factor, training.plateau_patience)
        rates = rates_at(learner.rates, settings) * learner.plateau.factor
        learner.running &= rates >= training.smallest_rate
    if step >= training.smallest_steps:
        learner.running &= ~(loss < training.stop_below)
