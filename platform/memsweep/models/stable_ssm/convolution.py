"""Causal convolution over time, one kernel per channel, without a Fourier transform.

y_t = sum_{s <= t} K_{t-s} x_s is a product with a lower triangular Toeplitz matrix. Time is cut into chunks of equal
size: the blocks at one distance d between chunks are equal, so that there is one matrix product for each distance.
A Fourier transform takes fewer operations from some hundred steps on, but spreads rounding errors of the future over
the past; with gradients the products are about as fast up to a thousand steps.

Letters: P rows (replicas, copies and channels), T time, B batch, L steps of a chunk, D chunks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

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
            # with its columns reversed, the lags of a block lie on antidiagonals; read with rows shorter by one than
            # they are stored, these are columns
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
    result: Tensor = _CausalConvolution.apply(x_PTB, kernel_PT, most)
    return result
