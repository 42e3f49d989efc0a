"""The loss of an ensemble on a task: exactly, through the impulse response, or over sampled sequences.

A problem turns a stream's batch into data once, and the data into losses for every ensemble of a pack.

Letters: N leading dimensions (replicas, then copies).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from memsweep.learning.objectives import Batch, LinearFunctionalTask, Stream, Task
from memsweep.models.base import LinearModel, Model, Weights
from memsweep.recurrence.gram import Gram


class Problem(ABC):
    """Losses of models of one program; ``targets`` is what differs between the replicas' tasks."""

    @abstractmethod
    def data(self, stream: Stream, index: int, size: int) -> Any:
        """What ``loss`` needs of a batch."""

    @abstractmethod
    def population(self) -> Any:
        """Data that stands for all sequences at once (raises TypeError where no closed form exists)."""

    @abstractmethod
    def target(self, trial: int) -> Tensor:
        """What tells the task of this trial of the pack from the others."""

    @abstractmethod
    def loss(self, model: Model, weights: Weights, data: Any, targets: Tensor) -> Tensor:
        """Losses ``[N]`` of stacked weights ``[N, ...]``; targets ``[N, ...]``, broadcast over the copies."""


class QuadraticProblem(Problem):
    """Linear models on linear functionals: the loss is a quadratic form of the kernel error. Exact and cheap."""

    def __init__(self, tasks: Sequence[LinearFunctionalTask], dtype: torch.dtype) -> None:
        self.task = tasks[0]
        self.dtype = dtype
        self.kernels = [task.kernel().to(dtype) for task in tasks]
        self.weights = self.task.weights().to(dtype)

    def data(self, stream: Stream, index: int, size: int) -> Gram:
        return Gram.of_batch(self.task.white_noise(stream, index, size).to(self.dtype), self.weights)

    def population(self) -> Gram:
        return Gram.population(self.weights, self.task.variance)

    def target(self, trial: int) -> Tensor:
        return self.kernels[trial]

    def loss(self, model: Model, weights: Weights, data: Gram, targets: Tensor) -> Tensor:
        assert isinstance(model, LinearModel), "please report this: a nonlinear model reached the linear path"
        response = model.response(weights, self.task.horizon)
        error = response.kernel[..., 0, 0, :] - targets
        return data.loss(error, response.drift[..., 0, :])


class SampledProblem(Problem):
    """Any model on any task: the model runs over the sequences. The plain and general path; one trial a pack."""

    def __init__(self, task: Task, dtype: torch.dtype, chunk: int = 512) -> None:
        self.task = task
        self.dtype = dtype
        self.chunk = chunk

    def data(self, stream: Stream, index: int, size: int) -> Batch:
        batch = self.task.draw(stream, index, size)
        targets = batch.targets.to(self.dtype) if batch.targets.is_floating_point() else batch.targets
        return replace(batch, inputs=batch.inputs.to(self.dtype), targets=targets)

    def population(self) -> Batch:
        raise TypeError(f"the task {self.task.config.name!r} with this model has no closed form of its expected loss")

    def target(self, trial: int) -> Tensor:
        return torch.zeros(())

    def loss(self, model: Model, weights: Weights, data: Batch, targets: Tensor) -> Tensor:
        size = data.inputs.shape[0]
        name, tensor = next(iter(weights.items()))
        leading = tensor.shape[: tensor.ndim - len(model.roles[name].axes)]
        stacked = {key: value.flatten(0, len(leading) - 1) for key, value in weights.items()}
        parts = [
            self.task.loss(model.outputs(stacked, inputs), Batch(inputs, answers)) * (inputs.shape[0] / size)
            for inputs, answers in zip(data.inputs.split(self.chunk), data.targets.split(self.chunk), strict=True)
        ]
        return torch.stack(parts).sum(0).unflatten(0, leading)


def has_closed_form(task: type[Task], model: type[Model]) -> bool:
    """Whether a model on a task has an exact expected loss (and so exact training and perturbation errors)."""
    return task.knows_population and model.linear


def problem_for(tasks: Sequence[Task], model: type[Model], dtype: torch.dtype) -> Problem:
    """The exact problem where it exists, the sampled one otherwise (then the tasks are all one)."""
    if has_closed_form(type(tasks[0]), model):
        return QuadraticProblem([task for task in tasks if isinstance(task, LinearFunctionalTask)], dtype)
    return SampledProblem(tasks[0], dtype)
