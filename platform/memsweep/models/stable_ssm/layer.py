"""The parts of a state-space layer with one kernel per channel: discretization, kernel, convolution, normalization.

A mode of a channel obeys dh/dt = A h + x, A = -rate + i frequency, with the input held over steps of length dt
(zero-order hold). Over one step h is multiplied by e^{dt A}, and the input enters with the weight (e^{dt A} - 1)/A.

The convolution y_t = sum_{s <= t} K_{t-s} x_s is a product with a lower triangular Toeplitz matrix. Time is cut into
chunks of equal size: the blocks at one distance d between chunks are equal, so that there is one matrix product for
each distance. A Fourier transform takes fewer operations from some hundred steps on, but spreads rounding errors of the
future over the past; with gradients the products are about as fast up to a thousand steps. From 4,000 steps on,
transforms lead from blocks to later blocks alone, and products stay inside of the blocks.

Letters: N replicas and copies, M channels (width), S modes of a channel, B batch, T time; P rows (N M), L steps of a
chunk, D chunks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from memsweep.config.schema.batch_loss import transforms_blocks
from memsweep.recurrence.linear.impulse import diagonal_response

_SMALL = 1e-4  # below, four terms of the series are exact in float64
_NORM_EPSILON = 1e-5  # torch.nn.LayerNorm's


def discretized(rate_NMS: Tensor, frequency_NMS: Tensor, log_dt_NM: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues e^{dt A} per step, and input weights (e^{dt A} - 1)/A: complex, ``[N, M, S]`` each.

    Args:
        rate_NMS: -Re A.
        frequency_NMS: Im A, radians per unit of time.
        log_dt_NM: logarithm of the step of each channel.
    """
    dt = torch.exp(log_dt_NM).unsqueeze(-1)
    exponent = torch.complex(-rate_NMS * dt, frequency_NMS * dt)
    return torch.exp(exponent), dt * _mean_growth(exponent)


def _mean_growth(exponent: Tensor) -> Tensor:
    """(e^z - 1)/z, which is 1 at z = 0: a mode that neither decays nor turns integrates its input."""
    small = exponent.abs() < _SMALL
    # each branch gets harmless values where the other is taken: a NaN there would reach the gradient as 0 * NaN
    near, far = torch.where(small, exponent, 0.0), torch.where(small, 1.0, exponent)
    series = 1.0 + near * (0.5 + near * (1.0 / 6.0 + near / 24.0))
    return torch.where(small, series, torch.expm1(far) / far)


def kernel(output_NMS: Tensor, eigenvalues_NMS: Tensor, gain_NMS: Tensor, horizon: int) -> Tensor:
    """K_l = 2 Re sum_s C_s gain_s eigenvalue_s^l of every channel: real, ``[N, M, T]``, lags 0 ... horizon-1.

    The modes stand for conjugate pairs, hence twice the real part. All other arguments are complex.
    """
    amplitudes = (output_NMS * gain_NMS).unsqueeze(-2)
    return 2.0 * diagonal_response(amplitudes, eigenvalues_NMS, horizon).squeeze(-2).real


def layer_norm(x_NMTB: Tensor, weight_NM: Tensor, bias_NM: Tensor) -> Tensor:
    """torch.nn.LayerNorm over the channels, with channels in the second place."""
    centered = x_NMTB - x_NMTB.mean(1, keepdim=True)
    deviation = (centered.square().mean(1, keepdim=True) + _NORM_EPSILON).sqrt()
    return centered / deviation * weight_NM[..., None, None] + bias_NM[..., None, None]


CHUNK = 64
"""Most steps of a chunk."""


class _CausalConvolution(torch.autograd.Function):
    """Written by hand, because every slice of the products would cost a full tensor in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x_PTB: Tensor, kernel_PT: Tensor, most: int) -> Tensor:
        steps, batch = x_PTB.shape[1:]
        chunks = -(-steps // most)
        size = -(-steps // chunks)
        room = chunks * size - steps
        # row t, column s of the block at distance d is the lag d size + t - s
        blocks = pad(kernel_PT, (size - 1, room)).unfold(-1, size, 1).flip(-1).unflatten(1, (chunks, size))
        columns = _columns(x_PTB, chunks, size)
        result = blocks[:, 0] @ columns
        for distance in range(1, chunks):
            # chunks stand side by side, so that all pairs at one distance are one product of shifted columns
            shift = distance * batch
            result[..., shift:].baddbmm_(blocks[:, distance], columns[..., : result.shape[-1] - shift])
        ctx.save_for_backward(columns, blocks)
        ctx.sizes = steps, batch
        return _over_time(result, batch, steps)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (grad_PTB,) = grads
        columns, blocks = ctx.saved_tensors
        steps, batch = ctx.sizes
        chunks, size = blocks.shape[1:3]
        grad = _columns(grad_PTB, chunks, size)
        grad_columns = blocks[:, 0].mT @ grad
        grad_kernel = grad.new_zeros(len(grad), size - 1 + chunks * size)  # lags from 1 - size on
        room = grad.new_zeros(len(grad), size, 2 * size)
        for distance in range(chunks):
            shift = distance * batch
            later, earlier = grad[..., shift:], columns[..., : grad.shape[-1] - shift]
            if distance:
                grad_columns[..., : grad.shape[-1] - shift].baddbmm_(blocks[:, distance].mT, later)
            # the lags of a block are its diagonals: with reversed columns, and rows read one place shorter than they
            # are stored, every diagonal becomes a column, and one sum gives all lags
            room[..., :size] = (later @ earlier.mT).flip(-1)
            by_lag = room.flatten(1)[:, : size * (2 * size - 1)].unflatten(1, (size, 2 * size - 1))
            grad_kernel[:, distance * size :][:, : 2 * size - 1] += by_lag.sum(1)
        return _over_time(grad_columns, batch, steps), grad_kernel[:, size - 1 :][:, :steps], None


def _columns(x_PTB: Tensor, chunks: int, size: int) -> Tensor:
    """Chunks side by side, each as one column per sequence: ``[P, L, D B]``."""
    padded = pad(x_PTB, (0, 0, 0, chunks * size - x_PTB.shape[1]))
    return padded.unflatten(1, (chunks, size)).transpose(1, 2).flatten(2)


def _over_time(columns: Tensor, batch: int, steps: int) -> Tensor:
    """Inverse of ``_columns``."""
    return columns.unflatten(-1, (-1, batch)).transpose(1, 2).flatten(1, 2)[:, :steps]


def causal_convolution(x_PTB: Tensor, kernel_PT: Tensor, most: int = CHUNK) -> Tensor:
    """y_t = sum_{s <= t} K_{t-s} x_s of every row, differentiable once; the future does not touch a bit of the past.

    Args:
        x_PTB: sequences.
        kernel_PT: K at lags 0 ... T-1.
        most: steps of a chunk, at most.

    Returns:
        Tensor ``[P, T, B]``.
    """
    if transforms_blocks(x_PTB.shape[1]):
        return _by_blocks(x_PTB, kernel_PT)
    result: Tensor = _CausalConvolution.apply(x_PTB, kernel_PT, most)
    return result


_LONGEST = 1024
"""Steps of a block."""


def _by_blocks(x_PTB: Tensor, kernel_PT: Tensor) -> Tensor:
    """``causal_convolution`` of long sequences: products inside of blocks, Fourier transforms to later blocks.

    So the rounding errors of a transform stay within one block's answer to blocks before it.
    """
    steps, batch = x_PTB.shape[1:]
    blocks = -(-steps // _LONGEST)
    columns = _columns(x_PTB, blocks, _LONGEST)
    kernel = pad(kernel_PT, (0, blocks * _LONGEST - steps))
    inside = _CausalConvolution.apply(columns, kernel[:, :_LONGEST], CHUNK)
    earlier: Tensor = _FromEarlier.apply(columns.unflatten(-1, (blocks, batch)), kernel)
    return _over_time(inside + earlier.flatten(2), batch, steps)


class _FromEarlier(torch.autograd.Function):
    """The response of blocks of L steps to the blocks before them, from inputs ``[P, L, D, B]`` and K ``[P, D L]``."""

    @staticmethod
    def forward(ctx: Any, x_PLDB: Tensor, kernel_PT: Tensor) -> Tensor:
        size, blocks = x_PLDB.shape[1:3]
        # overlap-save: of a circular convolution with 2 L lags, the last L answers hold nothing that wrapped around
        spectra = torch.fft.rfft(x_PLDB, 2 * size, dim=1)
        # lags (d - 1) L ... (d + 1) L - 1 lead from a block to the one d blocks later
        kernels = torch.fft.rfft(kernel_PT.unfold(-1, 2 * size, size), dim=-1)
        answers = torch.zeros_like(spectra)
        for distance in range(1, blocks):
            later, earlier = answers[:, :, distance:], spectra[:, :, : blocks - distance]
            later.addcmul_(earlier, kernels[:, distance - 1, :, None, None])
        ctx.save_for_backward(spectra, kernels)
        return torch.fft.irfft(answers, 2 * size, dim=1)[:, size:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor]:
        (grad_PLDB,) = grads
        spectra, kernels = ctx.saved_tensors
        size, blocks = grad_PLDB.shape[1:3]
        # forward drops the first half of each transform, so that nothing arrives there
        grads_of_answers = torch.fft.rfft(pad(grad_PLDB, (0, 0, 0, 0, size, 0)), dim=1)
        of_spectra, of_kernels = torch.zeros_like(spectra), torch.zeros_like(kernels)
        mirrored = spectra.conj().resolve_conj()
        for distance in range(1, blocks):
            later, kept = grads_of_answers[:, :, distance:], blocks - distance
            of_spectra[:, :, :kept].addcmul_(later, kernels[:, distance - 1, :, None, None].conj().resolve_conj())
            of_kernels[:, distance - 1] = (later * mirrored[:, :, :kept]).sum((2, 3))
        of_x = torch.fft.irfft(of_spectra, 2 * size, dim=1)[:, :size]
        of_lags = torch.fft.irfft(of_kernels, 2 * size, dim=-1)
        of_kernel = pad(of_lags[..., :size].flatten(1), (0, size)) + pad(of_lags[..., size:].flatten(1), (size, 0))
        return of_x, of_kernel
