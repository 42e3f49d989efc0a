"""Impulse responses of dense linear recurrences.

A recurrence h_t = A h_{t-1} + u x_t with readout c answers a unit impulse with K_s = c A^s u. The lags s = i + k j are
the product of k vectors A^i u and of T/k rows c A^{k j}; either set is built by doubling, [V, A^n V], so that all of
it takes log2(T) squarings of A and products with about 2 sqrt(T) vectors instead of T.

Differentiated by hand: what autograd would keep and clear for the pieces of these sets costs as much as the products.

Letters: N replicas and copies, O outputs, C channels (inputs), M width, T time (horizon), J blocks of lags, K lags of a
block, L any leading dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from memsweep.recurrence.padding import aligned, missing_units


def dense_response(readout_LOM: Tensor, matrix_LMM: Tensor, encoder_LMC: Tensor, horizon: int) -> Tensor:
    """Impulse response K_s = c A^s u of a dense linear recurrence, differentiable once.

    Args:
        readout_LOM: c, with any leading dimensions.
        matrix_LMM: A, real or complex, as the others.
        encoder_LMC: u.
        horizon: number of lags, at least 1.

    Returns:
        Tensor ``[..., O, C, T]``, lags 0 ... horizon-1.
    """
    # units of zero weight change no number, and give products a size whose sums all run in one order
    extra = missing_units(matrix_LMM.shape[-1])
    if extra:
        readout_LOM, encoder_LMC = pad(readout_LOM, (0, extra)), pad(encoder_LMC, (0, 0, 0, extra))
        matrix_LMM = pad(matrix_LMM, (0, extra, 0, extra))
    leading = matrix_LMM.shape[:-2]
    stacked = (tensor.reshape(-1, *tensor.shape[-2:]) for tensor in (readout_LOM, matrix_LMM, encoder_LMC))
    response_NOCT: Tensor = _DenseResponse.apply(*stacked, horizon)
    return response_NOCT.reshape(*leading, *response_NOCT.shape[1:])


class _DenseResponse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, readout_NOM: Tensor, matrix_NMM: Tensor, encoder_NMC: Tensor, horizon: int) -> Tensor:
        outputs, channels, lags = readout_NOM.shape[-2], encoder_NMC.shape[-1], aligned(horizon)
        # about sqrt(T) vectors on either side: with fewer on one, the other needs more than are saved
        inner = 1 << round(math.log2(lags) / 2)
        outer = -(-lags // inner)
        near = _doubled(encoder_NMC, matrix_NMM, inner)
        vectors, step = near[-1][..., : inner * channels], near[-1][..., inner * channels :]
        far = _doubled(readout_NOM.mT, step.mT, outer)
        covectors = far[-1][..., : outer * outputs]
        ctx.save_for_backward(*near, *far)
        ctx.sizes = (outputs, channels, inner, outer, len(near))
        # row j of the covectors times column i of the vectors is the lag i + K j
        by_lag_NJOKC = torch.bmm(covectors.mT, vectors).view(-1, outer, outputs, inner, channels)
        return by_lag_NJOKC.permute(0, 2, 4, 1, 3).flatten(-2)[..., :horizon].contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, Tensor, None]:
        outputs, channels, inner, outer, count = ctx.sizes
        near, far = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        grad_NOCT = pad(grads[0], (0, inner * outer - grads[0].shape[-1]))
        by_lag_NOCJK = grad_NOCT.unflatten(-1, (outer, inner))
        products = by_lag_NOCJK.permute(0, 3, 1, 4, 2).reshape(-1, outer * outputs, inner * channels)
        vectors, covectors = near[-1][..., : inner * channels], far[-1][..., : outer * outputs]
        by_covectors = torch.bmm(vectors.conj(), products.mT)
        by_far = pad(by_covectors, (0, far[-1].shape[-1] - outer * outputs))  # nobody read its power
        by_readout, by_step = _undoubled(by_far, far, outputs)
        by_near = torch.cat([torch.bmm(covectors.conj(), products), by_step.mT], -1)
        by_encoder, by_matrix = _undoubled(by_near, near, channels)
        return by_readout.mT, by_matrix, by_encoder, None


def _doubled(start_NMC: Tensor, matrix_NMM: Tensor, count: int) -> list[Tensor]:
    """[V, A], [V, A V, A^2], [V, A V, A^2 V, A^3 V, A^4] ... until there are ``count`` blocks of V.

    One product with A, A^2, A^4, ... gives the new blocks and the next power. The last matrix ends in A^count where
    ``count`` is a power of two; otherwise the blocks beyond ``count`` and the power are left out.
    """
    channels = start_NMC.shape[-1]
    stages, known = [torch.cat([start_NMC, matrix_NMM], -1)], 1
    while known < count:
        last = stages[-1]
        done = known * channels
        block = last if 2 * known <= count else last[..., : (count - known) * channels]
        stages.append(torch.cat([last[..., :done], torch.bmm(last[..., done:], block)], -1))
        known *= 2
    return stages


def _undoubled(grad: Tensor, stages: Sequence[Tensor], channels: int) -> tuple[Tensor, Tensor]:
    """Gradients by V and A of ``_doubled``, given the one by its last matrix."""
    for index in range(len(stages) - 2, -1, -1):
        done, before = channels << index, stages[index]
        fresh, power = grad[..., done:], before[..., done:]
        used = fresh.shape[-1]  # the columns that the product with the power took
        # the new blocks are C = P B: their gradient gives P^H dC to B, and dC B^H to P
        earlier = torch.bmm(power.mH, fresh)
        if used < before.shape[-1]:
            earlier = pad(earlier, (0, before.shape[-1] - used))
        earlier[..., :done].add_(grad[..., :done])
        earlier[..., done:].add_(torch.bmm(fresh, before[..., :used].mH))
        grad = earlier
    return grad[..., :channels], grad[..., channels:]
