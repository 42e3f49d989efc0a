"""The weighted squared error of a linear model as a quadratic form of its impulse response.

With input x, target kernel rho, model kernel K, error e = K - rho and the model's answer to its biases d
(the drift), the prediction error at time t is sum_{s<=t} e_s x_{t-s} + d_t. Its weighted mean square over a
batch is

    loss = e' G e + 2 d' C e + (1/T) sum_t w_t^2 d_t^2 ,

where G (lag x lag) and C (time x lag) depend on the batch alone: every model of a pack shares them. This is the
same number as running the recurrence over the batch, at a cost that does not depend on the batch size. It is
always formed in e: expanding the square would cancel.

For white noise of variance v the expectation has a diagonal G (``Gram.population``).

Letters: B sequences, T time or lag (horizon), N leading dimensions (replicas, copies).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from memsweep.recurrence.compiled.library import Kernel, readable
from memsweep.recurrence.padding import ALIGNMENT

_LARGEST_POWER = 8
"""Of weights that have moments; a default weight has the power 4."""
_BLOCK = 48
"""Rows of a triangular product that are computed together: few calls for short horizons, few vain sums for long."""


class Growth(NamedTuple):
    """Weights whose square is proportional to t^power for t = 1 ... steps, and zero behind."""

    steps: int
    power: int

    @staticmethod
    def of(weights_T: Tensor) -> Growth | None:
        """The growth of these weights; None where their square grows by no whole power up to ``_LARGEST_POWER``."""
        squares = weights_T.cpu().square()
        steps = int(squares.count_nonzero())
        time = torch.arange(1, steps + 1, dtype=squares.dtype, device="cpu") / max(1, steps)
        room = 100 * torch.finfo(squares.dtype).eps
        for power in range(_LARGEST_POWER + 1):
            law = torch.nn.functional.pad(time**power, (0, len(squares) - steps))
            if steps and torch.allclose(squares / squares[steps - 1], law, rtol=room, atol=0.0):
                return Growth(steps, power)
        return None


@dataclass(frozen=True)
class Gram:
    """Statistics of a batch, or of the input's law, that turn responses into losses.

    Attributes:
        lags: ``[T, T]`` for a batch, or ``[T]``, the diagonal, for the population.
        mean: ``[T]``, of the batch's inputs, or None for the population, where it is zero.
        drift: ``[T]``, w_t^2 / T.
    """

    lags: Tensor
    mean: Tensor | None
    drift: Tensor

    @staticmethod
    def of_batch(x_BT: Tensor, weights_T: Tensor, chunk: int = 1024, growth: Growth | None = None) -> Gram:
        """Statistics of a batch of scalar input sequences.

        Args:
            x_BT, weights_T: the inputs x, and w.
            chunk: sequences that torch multiplies at a time, which bounds the memory of large batches.
            growth: ``Growth.of(weights_T)``, with which the kernel needs no product of T^3 operations.
        """
        batch, horizon = x_BT.shape
        squares, drift = _scaled(weights_T, batch)
        compiled = CompiledGram.load(x_BT.dtype) if x_BT.device.type == "cpu" and horizon % ALIGNMENT == 0 else None
        if compiled is not None:
            return Gram(*compiled(x_BT, squares, growth), drift)
        zeros = torch.zeros_like(squares)
        products = _lower_products(x_BT, chunk)
        # by_lag[d, j] = sum_b x[j + d] x[j]: the diagonals of x'x as rows
        by_lag = products.as_strided((horizon, horizon), (horizon, horizon + 1))
        hankel = torch.cat([squares, zeros]).as_strided((horizon, horizon), (1, 1))
        # sums[s, d] = sum_j w^2[s + j] by_lag[d, j], d <= s: the Gram entry of lags s and s - d
        sums = x_BT.new_empty(horizon, horizon)
        for rows in _blocks(horizon):
            rest = horizon - rows.start  # w^2[s + j] = 0 from there on
            torch.mm(hankel[rows, :rest], by_lag[: rows.stop, :rest].T, out=sums[rows, : rows.stop])
        return Gram(sums.take(_places(horizon, x_BT.device)), x_BT.mean(0), drift)

    @staticmethod
    def population(weights_T: Tensor, variance: float) -> Gram:
        """Expectation over independent inputs of zero mean and the given variance."""
        drift = weights_T.square() / weights_T.shape[0]
        return Gram(variance * drift.flip(0).cumsum(0).flip(0), None, drift)

    def loss(self, error_NT: Tensor, drift_NT: Tensor) -> Tensor:
        """Weighted mean squared error of models with these kernel errors and drifts; shape ``[N]``."""
        if self.mean is None:
            return (error_NT.square() * self.lags).sum(-1) + (drift_NT.square() * self.drift).sum(-1)
        loss: Tensor = _QuadraticForm.apply(error_NT, drift_NT, self.lags, self.cross, self.drift)
        return loss

    @functools.cached_property
    def cross(self) -> Tensor:
        """C of a batch, ``[T, T]`` (time x lag): w_t^2 / T mean[t - s], 0 for s > t."""
        assert self.mean is not None, "please report this: the mean of a population"
        horizon = len(self.mean)
        mean = torch.cat([torch.zeros_like(self.mean), self.mean])
        return self.drift[:, None] * mean.flip(0).as_strided((horizon, horizon), (1, 1)).flip(0)


class CompiledGram(Kernel):
    """The statistics of a batch, in one thread: their bits depend on the batch alone."""

    function = "gram"  # GramCall of statistics.cpp
    numbers = ("sequences", "horizon", "steps", "power")
    tensors = ("x", "squares", "lags", "mean")

    def __call__(self, x_BT: Tensor, squares_T: Tensor, growth: Growth | None = None) -> tuple[Tensor, Tensor]:
        """``lags`` and ``mean`` of a ``Gram``; ``squares_T`` is w_t^2 / (B T)."""
        sequences, horizon = x_BT.shape
        lags, mean = x_BT.new_empty(horizon, horizon), x_BT.new_empty(horizon)
        named = {"x": x_BT, "squares": squares_T, "lags": lags, "mean": mean}
        steps, power = growth or (horizon, -1)
        self.run(readable(named, x_BT.dtype), [{}], sequences=sequences, horizon=horizon, steps=steps, power=power)
        return lags, mean


@functools.lru_cache(maxsize=16)
def _scaled(weights_T: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """w_t^2 / (B T) and w_t^2 / T: the same at every step of a training, whose weights are one tensor."""
    squares_T, horizon = weights_T.square(), len(weights_T)
    return squares_T / (batch * horizon), squares_T / horizon


def _blocks(horizon: int) -> list[slice]:
    """Blocks of rows; of a triangle, no more is computed than its blocks hold."""
    return [slice(start, min(start + _BLOCK, horizon)) for start in range(0, horizon, _BLOCK)]


def _lower_products(x_BT: Tensor, chunk: int) -> Tensor:
    """x'x on and below the diagonal, and below it a block of zeros, for reads beyond the horizon: ``[2 T, T]``.

    The rest is memory that nobody wrote to.
    """
    horizon = x_BT.shape[1]
    products = x_BT.new_empty(2 * horizon, horizon)
    products[horizon : horizon + _BLOCK] = 0.0
    for index, part in enumerate(x_BT.split(chunk)):
        for rows in _blocks(horizon):
            block, kept = products[rows, : rows.stop], float(index > 0)
            block.addmm_(part[:, rows].T, part[:, : rows.stop], beta=kept)  # 0: what was there is not read
    return products


@functools.lru_cache(maxsize=16)
def _places(horizon: int, device: torch.device) -> Tensor:
    """Where the Gram entry of lags s and s' stands among the sums by lag and difference: ``[T, T]``."""
    rows = torch.arange(horizon, device=device)
    larger, smaller = torch.maximum(rows[:, None], rows), torch.minimum(rows[:, None], rows)
    return larger * horizon + larger - smaller


class _QuadraticForm(torch.autograd.Function):
    """Saves the two products that the loss and its gradient share."""

    @staticmethod
    def forward(ctx: Any, error_NT: Tensor, drift_NT: Tensor, lags: Tensor, cross: Tensor, weight: Tensor) -> Tensor:
        lagged = error_NT @ lags
        crossed = error_NT @ cross.T
        weighted = drift_NT * weight
        ctx.save_for_backward(lagged, crossed, weighted, drift_NT, cross)
        return (error_NT * lagged).sum(-1) + (drift_NT * (2.0 * crossed + weighted)).sum(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (grad_N,) = grads
        lagged, crossed, weighted, drift_NT, cross = ctx.saved_tensors
        scale = 2.0 * grad_N.unsqueeze(-1)
        return scale * (lagged + drift_NT @ cross), scale * (crossed + weighted), None, None, None
