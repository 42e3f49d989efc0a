"""A causal convolution over a few steps, each channel by itself.

    y_t = sum over l < L of k_l x_{t + l},   where x begins L - 1 steps before y

Letters: N leading dimension (replicas and copies), B batch, T time of the answers, M channels, L lags.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.compiled.library import Kernel, readable, shares_of_rows


class CompiledShortConvolution(Kernel):
    """Computes each model by itself: its numbers depend neither on the others nor on the number of threads."""

    function = "short_convolution"  # ShortConvolutionCall of short_convolution.cpp
    numbers = ("backward", "models", "batch", "horizon", "lags", "width")
    tensors = ("known", "kernel", "given", "answers", "of_known", "of_kernel")

    def __call__(self, backward: bool, **named: Tensor) -> None:
        """Fills ``answers``, or the gradients ``of_known`` and ``of_kernel`` of what is ``given``."""
        tensors = readable(named, named["known"].dtype)
        batch, longer, width = tensors["known"].shape[1:]
        lags = tensors["kernel"].shape[2]
        self.run(
            tensors,
            shares_of_rows(tensors, "models"),
            backward=backward,
            batch=batch,
            horizon=longer - lags + 1,
            lags=lags,
            width=width,
        )


def short_convolution(known_NBTM: Tensor, kernel_NML: Tensor) -> Tensor:
    """The answers, ``[N, B, T, M]``; differentiable once.

    Args:
        known_NBTM: x of all steps, L - 1 more than the answers have.
        kernel_NML: k; the last of a channel is that of the latest step.
    """
    compiled = CompiledShortConvolution.load(known_NBTM.dtype) if known_NBTM.device.type == "cpu" else None
    if compiled is None:
        lags = kernel_NML.shape[2]
        steps = known_NBTM.shape[2] - lags + 1
        shifted = [known_NBTM[:, :, lag : lag + steps] * kernel_NML[:, None, None, :, lag] for lag in range(lags)]
        return torch.stack(shifted).sum(0)
    answers: Tensor = _ShortConvolution.apply(compiled, known_NBTM, kernel_NML)
    return answers


class _ShortConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compiled: CompiledShortConvolution, known_NBTM: Tensor, kernel_NML: Tensor) -> Tensor:
        ctx.compiled = compiled
        ctx.save_for_backward(known_NBTM, kernel_NML)
        models, batch, longer, width = known_NBTM.shape
        answers_NBTM = known_NBTM.new_empty(models, batch, longer - kernel_NML.shape[2] + 1, width)
        compiled(False, known=known_NBTM, kernel=kernel_NML, answers=answers_NBTM)
        return answers_NBTM

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        known_NBTM, kernel_NML = ctx.saved_tensors
        of_known, of_kernel = (
            torch.empty_like(each, memory_format=torch.contiguous_format) for each in (known_NBTM, kernel_NML)
        )
        ctx.compiled(True, known=known_NBTM, kernel=kernel_NML, given=outer[0], of_known=of_known, of_kernel=of_kernel)
        return None, of_known, of_kernel
