"""Losses of linear models on linear functionals: a quadratic form of the kernel error, exact and cheap."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from memsweep.data.functionals import LinearFunctionalTask
from memsweep.data.task import Batch
from memsweep.learning.loss.base import TaskLoss
from memsweep.models.base import Model, Weights, as_layer, as_linear
from memsweep.recurrence.linear.gram import Gram, Growth
from memsweep.recurrence.linear.modal_loss import flat_modal_loss, modal_loss
from memsweep.recurrence.linear.modes_of_difference import modes_of_difference
from memsweep.recurrence.padding import aligned
from memsweep.streams import Stream


class ExactLoss(TaskLoss[Gram]):
    """The loss from the models' impulse responses and the statistics of the white noise.

    The time axis is padded to an aligned length with steps of weight zero. The loss is a mean over time, so the other
    weights grow by the square root of the change of length.
    """

    def __init__(self, tasks: Sequence[LinearFunctionalTask], dtype: torch.dtype) -> None:
        self.task = tasks[0]
        self.dtype = dtype
        self.steps = aligned(self.task.horizon)
        self.kernels = [self._padded(task.kernel()) for task in tasks]
        self.weights = self._padded(self.task.weights()) * math.sqrt(self.steps / self.task.horizon)
        self.growth = Growth.of(self.weights) if self.weights.is_cpu else None  # for the kernel, which is there alone

    def _padded(self, values: Tensor) -> Tensor:
        return pad(values, (0, self.steps - values.shape[-1])).to(torch.get_default_device(), self.dtype)

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """White noise ``[B, T]`` without targets: the kernels stand for them."""
        noise = self.task.white_noise(stream, index, size)
        return Batch(noise, noise.new_empty(len(noise), 0))

    def prepare(self, batch: Batch) -> Gram:
        return Gram.of_batch(self._padded(batch.inputs), self.weights, growth=self.growth)

    def population(self) -> Gram:
        return Gram.population(self.weights, self.task.variance)

    def target(self, trial: int) -> Tensor:
        return self.kernels[trial]

    def loss(self, model: Model, weights: Weights, data: Gram, targets: Tensor, live: Tensor | None = None) -> Tensor:
        linear = as_linear(model)
        modes = None if linear is None else linear.as_modes(weights)
        loss = None if modes is None else modal_loss(modes, data, targets, live)
        return data.loss(*self._errors(model, weights, targets)) if loss is None else loss

    def flat_gradient(
        self, model: Model, weights: Tensor, data: Gram, targets: Tensor, live: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        layer = as_layer(model) if isinstance(data, Gram) and weights.is_cpu else None
        flat = None if layer is None else layer.flat_diagonal(weights)
        return None if flat is None else flat_modal_loss(flat, data, targets, live)

    @property
    def has_distance(self) -> bool:
        return True

    def distance(
        self, model: Model, weights: Weights, start: Weights, data: Gram, live: Tensor | None = None
    ) -> Tensor:
        """The difference of two sums of modes is a sum of the modes of both, whose target is zero."""
        linear, none = as_linear(model), self.kernels[0].new_zeros(())
        modes = None if linear is None or not isinstance(data, Gram) else linear.as_modes(weights)
        if linear is not None and modes is not None:
            own = linear.as_modes(start)
            assert own is not None, "please report this: a model has modes at some weights alone"
            targets = self.kernels[0].new_zeros(modes.eigenvalues.shape[0], 1, self.steps)
            loss = modal_loss(modes_of_difference(modes, own), data, targets, live)
            if loss is not None:
                return loss
        (kernel, drift), (own_kernel, own_drift) = (self._errors(model, at, none) for at in (weights, start))
        return data.loss(kernel - own_kernel, drift - own_drift)

    @torch.no_grad()
    def own_variance(self, model: Model, weights: Weights, data: Gram) -> Tensor:
        """Variance of the outputs, ``[N]``, weighted over time as the loss is: the noise has a mean of zero."""
        kernel, drift = self._errors(model, weights, self.kernels[0].new_zeros(()))
        return data.loss(kernel, torch.zeros_like(drift))

    @torch.no_grad()
    def squared_change(self, model: Model, weights: Weights, start: Weights, data: Gram) -> Tensor:
        """Weighted over time as the loss is."""
        none = self.kernels[0].new_zeros(())
        (kernel, drift), (kernel_before, drift_before) = (self._errors(model, at, none) for at in (weights, start))
        return data.loss(kernel - kernel_before, drift - drift_before)

    def _errors(self, model: Model, weights: Weights, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Kernel errors and drifts, ``[N..., T]`` each."""
        linear = as_linear(model)
        assert linear is not None, "please report this: a nonlinear model reached the linear path"
        response = linear.response(weights, self.steps)
        error = response.kernel[..., 0, 0, :] - targets  # of kernels [N, O, I, T] with one input, one output
        return error, response.drift[..., 0, :]
