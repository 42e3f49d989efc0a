"""Impulse responses of dense linear recurrences.

A recurrence h_t = A h_{t-1} + u x_t with readout c answers a unit impulse with K_s = c A^s u. The lags s = i + k j are
the product of k vectors A^i u and of T/k rows c A^{k j}; either set is built by doubling, [V, A^n V], so that all of
it takes log2(T) squarings of A and, beside them, products with about 2 sqrt(T) vectors instead of T.

Letters: N leading dimensions (replicas, copies), O outputs, C channels (inputs), M width, T time (horizon), J blocks
of lags, K lags of a block.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from memsweep.recurrence.align import aligned
from memsweep.recurrence.widths import missing


def dense_response(readout_NOM: Tensor, matrix_NMM: Tensor, encoder_NMC: Tensor, horizon: int) -> Tensor:
    """Impulse response K_s = c A^s u of a dense linear recurrence, differentiable.

    Args:
        readout_NOM: c, with any leading dimensions.
        matrix_NMM: A, real or complex, as the others.
        encoder_NMC: u.
        horizon: number of lags, at least 1.

    Returns:
        Tensor ``[..., O, C, T]``, lags 0 ... horizon-1.
    """
    outputs, channels = readout_NOM.shape[-2], encoder_NMC.shape[-1]
    extra = missing(matrix_NMM.shape[-1])
    if extra:
        readout_NOM, encoder_NMC = pad(readout_NOM, (0, extra)), pad(encoder_NMC, (0, 0, 0, extra))
        matrix_NMM = pad(matrix_NMM, (0, extra, 0, extra))
    lags = aligned(horizon)
    inner = 1 << round(math.log2(lags) / 2)
    outer = -(-lags // inner)
    vectors, step_NMM = _doubled(encoder_NMC, matrix_NMM, inner)
    covectors, _ = _doubled(readout_NOM.mT, step_NMM.mT, outer)
    products = covectors.mT @ vectors
    by_lag_NJOKC = products.unflatten(-1, (inner, channels)).unflatten(-3, (outer, outputs))
    by_lag_NOCJK = by_lag_NJOKC.movedim((-4, -3, -2, -1), (-2, -4, -1, -3))
    return by_lag_NOCJK.flatten(-2)[..., :horizon].contiguous()


def _doubled(start_NMC: Tensor, matrix_NMM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The columns of V, A V, A^2 V, ... (``count`` blocks side by side), and A to the last power that was needed.

    That power is A^count where ``count`` is a power of two.
    """
    channels = start_NMC.shape[-1]
    known, vectors, power = 1, start_NMC, matrix_NMM
    while known < count:
        fresh = min(known, count - known)
        vectors = torch.cat([vectors, power @ vectors[..., : fresh * channels]], -1)
        known += fresh
        if known < count or fresh == known - fresh:
            power = power @ power
    return vectors, power
