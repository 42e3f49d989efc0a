"""Losses of linear models over long sequences: the kernel error is convolved with every sequence of a batch.

The error at time t is r_t = sum_{s<=t} e_s x_{t-s} + d_t, with input x, kernel error e and drift d, and the loss is the
mean over the sequences of (1/T) sum_t w_t^2 r_t^2: the number of ``Gram.loss``, at a cost of B T log T for each model
instead of T^2 (B + T) for all of them.

Letters: N replicas and copies, B sequences, T time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.data.task import Batch
from memsweep.learning.loss.exact import ExactLoss
from memsweep.models.base import Model, Weights, leading_shape, repeated
from memsweep.models.spectrum import one_thread

_BLOCK = 100_000
"""Numbers of the sequences that are transformed together: they stay in the cache."""


@dataclass(frozen=True)
class Noise:
    """The sequences of a batch.

    Attributes:
        inputs: x, ``[B, T]``.
        squares: w_t^2 / (B T), ``[T]``.
        live: ``[N]``, bool: models whose losses are wanted; None: all.
    """

    inputs: Tensor
    squares: Tensor
    live: Tensor | None = None

    def loss(self, error_NT: Tensor, drift_NT: Tensor) -> Tensor:
        """As ``Gram.loss``, for any leading dimensions; zeros for models that are not live."""
        leading = error_NT.shape[:-1]
        error, drift = error_NT.flatten(0, -2), drift_NT.flatten(0, -2)
        wanted = torch.is_grad_enabled() and (error.requires_grad or drift.requires_grad)
        loss: Tensor = _Convolved.apply(error, drift, self, wanted)
        return loss.unflatten(0, leading)


class ConvolvedLoss(ExactLoss):
    """``ExactLoss`` whose batches are sequences; the expected loss stays what it is."""

    def prepare(self, batch: Batch) -> Any:
        inputs = self._padded(batch.inputs)
        return Noise(inputs, self.weights.square() / inputs.numel())

    def loss(self, model: Model, weights: Weights, data: Any, targets: Tensor, live: Tensor | None = None) -> Tensor:
        if isinstance(data, Noise):
            data = replace(data, live=repeated(live, leading_shape(model, weights)))
        return super().loss(model, weights, data, targets)


class _Convolved(torch.autograd.Function):
    """Every model by itself, in transforms of the same shapes, on one thread.

    So its bits depend neither on the others nor on threads, which would share out a long transform, or a sum.
    """

    @staticmethod
    def forward(ctx: Any, error_NT: Tensor, drift_NT: Tensor, data: Noise, gradient: bool) -> Tensor:
        with one_thread():
            loss_N, of_error_NT, of_drift_NT = _loss_and_gradients(error_NT, drift_NT, data, gradient)
        ctx.save_for_backward(of_error_NT, of_drift_NT)
        return loss_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        scale_N1 = 2.0 * grads[0].unsqueeze(-1)
        of_error_NT, of_drift_NT = ctx.saved_tensors
        return scale_N1 * of_error_NT, scale_N1 * of_drift_NT, None, None


def _loss_and_gradients(
    error_NT: Tensor, drift_NT: Tensor, data: Noise, gradient: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, and half of their gradients by errors and drifts; zeros where these are not wanted."""
    models, steps = error_NT.shape
    length = fast_length(2 * steps - 1)
    live = range(models) if data.live is None else data.live.nonzero().flatten().tolist()
    answers = {n: torch.fft.rfft(error_NT[n], length) for n in live}
    of_answers = {n: torch.zeros_like(answers[n]) for n in live}
    loss_N, of_error_NT, of_drift_NT = (
        error_NT.new_zeros(models),
        torch.zeros_like(error_NT),
        torch.zeros_like(drift_NT),
    )
    for block in data.inputs.split(max(1, _BLOCK // length)):
        spectra = torch.fft.rfft(block, length)
        mirrored = spectra.conj().resolve_conj()
        for n, answer in answers.items():
            error = torch.fft.irfft(spectra * answer, length)[:, :steps] + drift_NT[n]
            weighted = error * data.squares
            loss_N[n] += torch.dot(error.flatten(), weighted.flatten())
            if gradient:
                of_drift_NT[n] += weighted.sum(0)
                of_answers[n] += (torch.fft.rfft(weighted, length) * mirrored).sum(0)
    if gradient:
        for n, spectrum in of_answers.items():
            of_error_NT[n] = torch.fft.irfft(spectrum, length)[:steps]
    return loss_N, of_error_NT, of_drift_NT


def fast_length(least: int) -> int:
    """The smallest length of at least so many numbers that transforms fast: 1, 3, 5, 9 or 15 times a power of two."""
    return min(odd << (-(-least // odd) - 1).bit_length() for odd in (1, 3, 5, 9, 15))
