"""Losses of linear models over long sequences: the kernel error is convolved with every sequence of a batch.

The error at time t is r_t = sum_{s<=t} e_s x_{t-s} + d_t, with input x, kernel error e and drift d, and the loss is the
mean over the sequences of (1/T) sum_t w_t^2 r_t^2: the number of ``Gram.loss``, at a cost of B T log T for each model
instead of T^2 (B + T) for all of them.

Letters: N replicas and copies, B sequences, T time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.data.functionals import LinearFunctionalTask
from memsweep.data.task import Batch
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.exact import ExactLoss
from memsweep.models.base import Model, Weights
from memsweep.models.spectrum import one_thread

_BLOCK = 100_000
"""Numbers of the sequences that are transformed together: they stay in the cache."""
_ROWS, _POWERS = 4, 1 << 17
"""Most rows of a group, and most powers of eigenvalues in it. A model alone pays for a group, a pack for each."""


@dataclass(frozen=True)
class Noise:
    """The sequences of a batch.

    Attributes:
        inputs: x, ``[B, T]``.
        squares: w_t^2 / (B T), ``[T]``.
    """

    inputs: Tensor
    squares: Tensor

    def loss(self, error_NT: Tensor, drift_NT: Tensor) -> Tensor:
        """As ``Gram.loss``, for any leading dimensions."""
        leading = error_NT.shape[:-1]
        error, drift = error_NT.flatten(0, -2), drift_NT.flatten(0, -2)
        wanted = torch.is_grad_enabled() and (error.requires_grad or drift.requires_grad)
        loss: Tensor = _Convolved.apply(error, drift, self, wanted)
        return loss.unflatten(0, leading)


class ConvolvedLoss(ExactLoss):
    """``ExactLoss`` whose batches are sequences; the expected loss stays what it is.

    Of the rows of a trained ensemble, few may be live. Where trials share it, its responses are computed in groups of
    rows, and those without a live row not at all. The groups are the same in every pack, and so are bits.

    Args:
        tasks, dtype: as of ``ExactLoss``.
        ensembles: that train on it.
    """

    def __init__(
        self, tasks: Sequence[LinearFunctionalTask], dtype: torch.dtype, ensembles: Sequence[Ensemble]
    ) -> None:
        super().__init__(tasks, dtype)
        packs = (each for each in ensembles if each.model.traits(each.model.config).pack_fields)
        self.groups = {ensemble.model: _groups(ensemble, self.steps) for ensemble in packs}

    def prepare(self, batch: Batch) -> Any:
        inputs = self._padded(batch.inputs)
        return Noise(inputs, self.weights.square() / inputs.numel())

    def loss(self, model: Model, weights: Weights, data: Any, targets: Tensor, live: Tensor | None = None) -> Tensor:
        if not isinstance(data, Noise) or live is None:
            return super().loss(model, weights, data, targets, live)
        rows = live.nonzero().flatten()
        if not len(rows):  # a gradient wants a loss, though nobody wants the gradient
            rows = rows.new_zeros(1)
        if groups := self.groups.get(model):
            kept = frozenset(rows.tolist())
            wanted = [group for group in groups if not kept.isdisjoint(group.rows)]
            computed = torch.tensor([row for group in wanted for row in group.rows])
            sizes = [len(group.rows) for group in wanted]
            parts = [value.index_select(0, computed).split(sizes) for value in (*weights.values(), targets)]
            found = [
                self._errors(group.model, dict(zip(weights, own[:-1], strict=True)), own[-1])
                for group, *own in zip(wanted, *parts, strict=True)
            ]
            error, drift = (torch.cat(each) for each in zip(*found, strict=True))
            places = torch.searchsorted(computed, rows)
        else:
            (error, drift), places = self._errors(model, weights, targets), rows
        losses = data.loss(error.index_select(0, places), drift.index_select(0, places))
        return losses.new_zeros(len(live), *losses.shape[1:]).index_copy(0, rows, losses)


@dataclass(frozen=True)
class _Group:
    """Neighbouring rows of an ensemble: their positions, and a model for them."""

    rows: range
    model: Model


def _groups(ensemble: Ensemble, steps: int) -> list[_Group]:
    """The rows of an ensemble in groups whose powers of eigenvalues stay in the cache; dummies alone are left out."""
    # two at least: torch multiplies a stack of one matrix in another way, with other last bits
    size = max(2, min(_ROWS, _POWERS // (ensemble.layout.width * steps)))
    replicas, model = ensemble.replicas, ensemble.model
    configs = [replica.model for replica in replicas] + [replicas[0].model] * (ensemble.rows - len(replicas))
    return [
        _Group(rows, type(model).ensemble_of([configs[row] for row in rows], model.signature))
        for start in range(0, len(replicas), size)
        for rows in [range(ensemble.rows)[start : start + size]]
    ]


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
    answers = [torch.fft.rfft(error_T, length) for error_T in error_NT]
    of_answers = [torch.zeros_like(answer) for answer in answers]
    loss_N, of_drift_NT = error_NT.new_zeros(models), torch.zeros_like(drift_NT)
    for block in data.inputs.split(max(1, _BLOCK // length)):
        spectra = torch.fft.rfft(block, length)
        mirrored = spectra.conj().resolve_conj()
        for n, answer in enumerate(answers):
            error = torch.fft.irfft(spectra * answer, length)[:, :steps] + drift_NT[n]
            weighted = error * data.squares
            loss_N[n] += torch.dot(error.flatten(), weighted.flatten())
            if gradient:
                of_drift_NT[n] += weighted.sum(0)
                of_answers[n] += (torch.fft.rfft(weighted, length) * mirrored).sum(0)
    if not gradient:
        return loss_N, torch.zeros_like(error_NT), of_drift_NT
    return loss_N, torch.stack([torch.fft.irfft(each, length)[:steps] for each in of_answers]), of_drift_NT


def fast_length(least: int) -> int:
    """The smallest length of at least so many numbers that transforms fast: 1, 3, 5, 9 or 15 times a power of two."""
    return min(odd << (-(-least // odd) - 1).bit_length() for odd in (1, 3, 5, 9, 15))
