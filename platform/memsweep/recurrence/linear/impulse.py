"""Impulse responses of diagonal linear recurrences.

A diagonal linear recurrence with eigenvalues lambda_i, driven through amplitudes a_i, answers a unit impulse
with K_s = sum_i a_i lambda_i^s: a product with the Vandermonde matrix of the eigenvalues. The gradient needs
the same matrix once more, so forward and backward together cost two passes over it.

Letters: N leading dimensions (replicas, copies), C channels, M modes (width), T time (horizon), D the two kinds of
gradient, by amplitudes and by eigenvalues.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.padding import aligned


def vandermonde(eigenvalues_NM: Tensor, horizon: int) -> Tensor:
    """Powers 0 ... horizon-1 of every eigenvalue, by doubling.

    Doubling takes log2(horizon) products, works for negative, zero and complex eigenvalues (unlike
    exp(s log lambda)), and its rounding error grows with log2(horizon) instead of horizon.

    Args:
        eigenvalues_NM: any leading dimensions, then modes.
        horizon: number of powers, at least 1.

    Returns:
        Tensor ``[..., M, T]``.
    """
    powers = eigenvalues_NM.new_empty(*eigenvalues_NM.shape, horizon)
    powers[..., 0] = 1.0
    # step is lambda^known: the powers known so far, times it, are as many new ones
    known, step = 1, eigenvalues_NM
    while known < horizon:
        fresh = min(known, horizon - known)
        torch.mul(powers[..., :fresh], step.unsqueeze(-1), out=powers[..., known : known + fresh])
        known += fresh
        step = step * step
    return powers


class _DiagonalResponse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, amplitudes_NCM: Tensor, eigenvalues_NM: Tensor, horizon: int) -> Tensor:
        # padded, so that the last lags are summed in the same order as the others (see padding)
        powers_NMT = vandermonde(eigenvalues_NM, aligned(horizon))
        ctx.save_for_backward(amplitudes_NCM, powers_NMT)
        return (amplitudes_NCM @ powers_NMT)[..., :horizon].contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, Tensor | None, None]:
        (grad_NCT,) = grads
        amplitudes_NCM, powers_NMT = ctx.saved_tensors
        *leading, channels, horizon = grad_NCT.shape
        # room for both kinds of gradient side by side: one pass over the powers, the largest tensor, gives both
        room_NDCT = grad_NCT.new_empty(*leading, 2, channels, powers_NMT.shape[-1])
        room_NDCT[..., 0, :, :horizon] = grad_NCT
        room_NDCT[..., 0, :, horizon:] = 0.0
        by_amplitude_NCM, by_eigenvalue_NCM = pulled_back(room_NDCT, powers_NMT)
        return by_amplitude_NCM, (amplitudes_NCM.conj() * by_eigenvalue_NCM).sum(-2), None


def pulled_back(room_NDCT: Tensor, powers_NMT: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients by amplitudes, and by eigenvalues per unit of amplitude, in one product with the powers.

    Args:
        room_NDCT: the gradient by the answers, ``[..., 2, C, T]``, in the first of two places; the second is free.
        powers_NMT: Vandermonde matrix.

    Returns:
        Two tensors ``[..., C, M]``.
    """
    # d(lambda^s)/d(lambda) = s lambda^(s-1): shift by one, so that lambda = 0 needs no special case
    lags = _lags(room_NDCT.shape[-1], room_NDCT.real.dtype, room_NDCT.device)
    torch.mul(room_NDCT[..., 0, :, 1:], lags, out=room_NDCT[..., 1, :, :-1])
    room_NDCT[..., 1, :, -1] = 0.0
    channels = room_NDCT.shape[-2]
    # torch's convention for complex numbers: what arrives, times the conjugate of the derivative
    both = room_NDCT.flatten(-3, -2) @ powers_NMT.conj().transpose(-1, -2)
    return both[..., :channels, :], both[..., channels:, :]


@functools.lru_cache(maxsize=16)
def _lags(horizon: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.arange(1, horizon, dtype=dtype, device=device)


def diagonal_response(amplitudes_NCM: Tensor, eigenvalues_NM: Tensor, horizon: int) -> Tensor:
    """Impulse response K_s = sum_i a_i lambda_i^s of a diagonal linear recurrence, differentiable.

    Args:
        amplitudes_NCM: product of input and readout weights of each mode, per channel.
        eigenvalues_NM: one eigenvalue per mode (real, or complex with complex amplitudes).
        horizon: number of lags.

    Returns:
        Tensor ``[..., C, T]``, lags 0 ... horizon-1.
    """
    response: Tensor = _DiagonalResponse.apply(amplitudes_NCM, eigenvalues_NM, horizon)
    return response
