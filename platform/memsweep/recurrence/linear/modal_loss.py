"""The loss of linear models that are sums of modes, by statistics of their inputs, without their impulse responses.

A kernel in C++ forms the powers of the eigenvalues in registers, passes over models that are not live, and gives loss
and gradient in one call. The same number in torch is ``Gram.loss`` of the model's response.

Letters: N leading dimensions (replicas, copies), T time, M modes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.compiled.library import Kernel, masks_of, readable
from memsweep.recurrence.linear.gram import Gram
from memsweep.recurrence.padding import ALIGNMENT


class Modes(NamedTuple):
    """Linear models of one input and one output whose states are independent: h_t = lambda h_{t-1} + u x_t + b.

    The output is the sum of the real parts of c h, plus d. Tensors may have more axes, of size 1, behind N.

    Attributes:
        input: u, ``[N, M]``.
        bias: b, ``[N, M]``.
        readout: c, ``[N, M]``.
        eigenvalues: lambda, ``[N, M]``; all four are real, or all complex.
        offset: d, ``[N]``, real.
    """

    input: Tensor
    bias: Tensor
    readout: Tensor
    eigenvalues: Tensor
    offset: Tensor


class CompiledModalLoss(Kernel):
    """Computes each model by itself, in the thread that has it; the numbers of models that are not live are zeros."""

    function = "modal_loss"  # ModalCall of statistics.cpp
    numbers = ("complex", "gradient", "models", "copies", "horizon", "width")
    tensors = (
        *("live", "input", "bias", "readout", "eigenvalues", "offset", "target", "lags", "mean", "weight", "loss"),
        *("of_input", "of_bias", "of_readout", "of_eigenvalues", "of_offset"),
    )

    def __call__(
        self, modes: Modes, gram: Gram, targets_PT: Tensor, live_N: Tensor, gradient: bool
    ) -> tuple[Tensor, ...]:
        """Losses ``[N]``, and on request their gradients by the fields of the modes."""
        loss_N = targets_PT.new_zeros(len(live_N))
        contiguous = torch.contiguous_format
        found = [torch.zeros_like(tensor, memory_format=contiguous) for tensor in modes] if gradient else []
        named = modes._asdict() | dict(zip((f"of_{name}" for name in Modes._fields), found, strict=False))
        named |= {"target": targets_PT, "lags": gram.lags, "mean": gram.mean, "weight": gram.drift, "loss": loss_N}
        masks = masks_of(live_N)  # held until the kernel has read them
        self.run(
            readable({name: _as_real(tensor) for name, tensor in named.items()}, loss_N.dtype),
            [{"live": mask.data_ptr()} for mask in masks],
            complex=modes.eigenvalues.is_complex(),
            gradient=gradient,
            models=len(loss_N),
            copies=len(loss_N) // len(targets_PT),
            horizon=targets_PT.shape[-1],
            width=modes.eigenvalues.shape[-1],
        )
        return loss_N, *found


def _as_real(tensor: Tensor | None) -> Tensor | None:
    if tensor is None or not tensor.is_complex():
        return tensor
    return torch.view_as_real(tensor.resolve_conj())


def modal_loss(modes: Modes, gram: Gram, targets: Tensor, live: Tensor | None = None) -> Tensor | None:
    """``Gram.loss`` of models whose target kernels are given, ``[N]``, differentiable once by the modes.

    Args:
        modes: of replicas, then of any number of copies of each.
        gram: of the inputs.
        targets: ``[N, T]``, one for each replica; 1 in place of the copies.
        live: bool, ``[replicas]``: whose losses are needed; those of the others are 0. None: all.

    Returns:
        None where no kernel computes it: use ``Gram.loss``.
    """
    dtype, device, horizon = targets.dtype, targets.device.type, targets.shape[-1]
    kernel = CompiledModalLoss.load(dtype) if device == "cpu" and horizon % ALIGNMENT == 0 else None
    if kernel is None:
        return None
    leading = modes.eigenvalues.shape[:-1]
    targets_PT = targets.flatten(0, -2)
    live_N = torch.ones(leading[0], dtype=torch.bool) if live is None else live
    if len(leading) > 1:
        # a copy matters where its replica does
        live_N = live_N.repeat_interleave(leading[1:].numel())
    tensors = [tensor.flatten(0, len(leading) - 1) for tensor in modes]
    gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    loss: Tensor = _ModalLoss.apply(kernel, gram, targets_PT, live_N, gradient, *tensors)
    return loss.unflatten(0, leading)


class _ModalLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        kernel: CompiledModalLoss,
        gram: Gram,
        targets_PT: Tensor,
        live_N: Tensor,
        gradient: bool,
        *tensors: Tensor,
    ) -> Tensor:
        loss_N, *gradients = kernel(Modes(*tensors), gram, targets_PT, live_N, gradient)
        ctx.save_for_backward(*gradients)
        return loss_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (grad_N,) = grads
        scaled = (tensor * grad_N.view(-1, *[1] * (tensor.ndim - 1)) for tensor in ctx.saved_tensors)
        return None, None, None, None, None, *scaled
