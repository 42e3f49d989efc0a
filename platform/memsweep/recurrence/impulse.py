"""Impulse responses of diagonal linear recurrences.

A diagonal linear recurrence with eigenvalues lambda_i, driven through amplitudes a_i, answers a unit impulse
with K_s = sum_i a_i lambda_i^s: a product with the Vandermonde matrix of the eigenvalues. The gradient needs
the same matrix once more, so forward and backward together cost two passes over it.

Letters: N leading dimensions (replicas, copies), C channels, M modes (width), T time (horizon).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from memsweep.recurrence.align import aligned


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
        powers_NMT = vandermonde(eigenvalues_NM, aligned(horizon))
        ctx.save_for_backward(amplitudes_NCM, powers_NMT)
        return (amplitudes_NCM @ powers_NMT)[..., :horizon].contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, Tensor | None, None]:
        (grad_NCT,) = grads
        amplitudes_NCM, powers_NMT = ctx.saved_tensors
        horizon, room = grad_NCT.shape[-1], powers_NMT.shape[-1]
        powers_NTM = powers_NMT.conj().transpose(-1, -2)
        grad_amplitudes = pad(grad_NCT, (0, room - horizon)) @ powers_NTM
        # d(lambda^s)/d(lambda) = s lambda^(s-1): shift by one, so that lambda = 0 needs no special case
        lags = torch.arange(1, horizon, dtype=grad_NCT.real.dtype, device=grad_NCT.device)
        slopes_NCM = pad(grad_NCT[..., 1:] * lags, (0, room - horizon + 1)) @ powers_NTM
        grad_eigenvalues = (amplitudes_NCM.conj() * slopes_NCM).sum(-2)
        return grad_amplitudes, grad_eigenvalues, None


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
