"""The other side: packs of our models in training, and their data, set up as a sweep's worker sets them up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from benchmarks import harness
from memsweep import registry, trial
from memsweep.config.schema.batch_loss import trains_by_convolution
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.data.api import LinearFunctionalTask
from memsweep.learning import loop
from memsweep.learning.loss.base import TaskLoss
from memsweep.learning.loss.batch_sharding import ShardedBatch
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.loss.convolved import ConvolvedLoss
from memsweep.learning.training.learner import Learner
from memsweep.models.base import Model, Signature
from memsweep.recurrence.freed_memory import keep_freed_memory
from memsweep.streams import TEST, TRAIN, Stream

ENDLESS = 1_000_000
"""Steps of a training that is only timed: the learning rate stays where it starts."""


@cache
def _discovered() -> None:
    registry.discover(harness.ROOT)


def trial_config(
    model: str,
    *,
    horizon: int,
    seeds: int = 1,
    batch_size: int = 512,
    dtype: str = "float64",
    objective: str = "minibatch",
    task: dict[str, Any] | None = None,
    **fields: Any,
) -> TrialConfig:
    """A trial of the model that the published code trains: parameterization relu, Euler's step.

    Args:
        model: its registered name.
        horizon: T.
        seeds: replicas, the models of the pack.
        batch_size: B.
        dtype: of weights and data.
        objective: minibatch or population.
        task: more fields of the task.
        fields: more fields of the model.
    """
    _discovered()
    relu = registry.get(registry.PARAMETERIZATION, "relu").Config()
    published = {"parameterization": relu, "discretization": "euler"}
    return TrialConfig(
        task=registry.get(registry.TASK, "linear_functional").Config(horizon=horizon, **task or {}),
        model=registry.get(registry.MODEL, model).Config(**published | fields),
        training=TrainingConfig(seeds=seeds, steps=ENDLESS, batch_size=batch_size, dtype=dtype, objective=objective),
    )


@dataclass
class Pack:
    """The models of one trial in training.

    Attributes:
        config: of the trial; its seeds are the models.
        task: what they learn.
        task_loss: their losses.
        learners: their weights and optimizers.
        drawn: the sequences of a batch, as they were drawn; every step makes of them what it needs.
        population: what stands for all sequences at once, where the objective is that; no batches are drawn then.
        done: steps so far.
    """

    config: TrialConfig
    task: LinearFunctionalTask
    task_loss: TaskLoss
    learners: list[Learner]
    drawn: Any
    population: Any = None
    done: int = 0

    @staticmethod
    def of(config: TrialConfig) -> Pack:
        keep_freed_memory()
        (task,), groups = trial._tasks_and_ensembles([config], padded=True)
        assert isinstance(task, LinearFunctionalTask)
        dtype = getattr(torch, config.training.dtype)
        task_loss = task_loss_for([task], config.trains_in_closed_form, dtype)
        if trains_by_convolution(config):
            task_loss = ConvolvedLoss([task], dtype, groups)
        population = task_loss.population() if config.training.objective == "population" else None
        learners = [Learner.start(group, task_loss, config.training) for group in groups]
        drawn = task_loss.draw(Stream(config.training.data_seed, TRAIN), 0, config.training.batch_size)
        return Pack(config, task, task_loss, learners, drawn, population)

    def draw(self) -> Any:
        """The sequences of a fresh batch, which all models of a pack share."""
        return self.task_loss.draw(Stream(self.config.training.data_seed, TRAIN), 1, self.config.training.batch_size)

    def step(self) -> None:
        """One full optimizer step of every model: statistics of the batch, loss, penalty, gradient, clip, optimizer."""
        data = self.task_loss.prepare(self.drawn) if self.population is None else self.population
        batch = ShardedBatch([(1.0, data)])
        for learner in self.learners:
            loop._step(learner, self.task_loss, batch, self.done, self.config.training)
        self.done += 1

    def check(self) -> None:
        """Models that have diverged are passed over by the kernels, and their time would say nothing."""
        for learner in self.learners:
            assert bool(learner.running[learner.ensemble.real].all()), f"a model diverged: {self.config.model}"


def model_class(config: TrialConfig) -> type[Model]:
    found: type[Model] = registry.get(registry.MODEL, config.model.name)
    return found


def signature(config: TrialConfig) -> Signature:
    return Signature(1, 1, config.task.horizon)  # type: ignore[attr-defined]  # its task has one


def first_model(config: TrialConfig) -> Model:
    """The model of the trial's first seed, with its initial weights."""
    generator = Stream(0, "initial weights").generator()
    return model_class(config)(config.model, signature(config), generator).to(getattr(torch, config.training.dtype))


def sequences(config: TrialConfig, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Test sequences of the trial's task: inputs ``[B, T, 1]``, targets ``[B, T, 1]``, weights of the loss ``[T]``."""
    dtype = getattr(torch, config.training.dtype)
    task = registry.get(registry.TASK, config.task.name)(config.task)
    batch = task.draw(Stream(0, TEST), 0, size)
    return batch.inputs.to(dtype), batch.targets.to(dtype), task.weights().to(dtype)
