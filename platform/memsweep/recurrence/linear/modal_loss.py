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
from memsweep.recurrence.layer import FlatDiagonal
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
    numbers = ("complex", "gradient", "models", "copies", "horizon", "width", "row")
    reals = ("least",)
    tensors = (
        *("live", "input", "bias", "readout", "eigenvalues", "offset", "target", "lags", "mean", "weight", "loss"),
        *("of_input", "of_bias", "of_readout", "of_eigenvalues", "of_offset"),
        *("raw", "of_raw"),
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

    def of_flat(self, flat: FlatDiagonal, gram: Gram, targets_NT: Tensor, live_N: Tensor) -> tuple[Tensor, Tensor]:
        """Losses ``[N]`` and gradients ``[N, S]`` of models whose modes lie in flat weights."""
        weights_NS = flat.weights
        loss_N, gradient_NS = targets_NT.new_zeros(len(live_N)), torch.zeros_like(weights_NS)
        named = {"target": targets_NT, "lags": gram.lags, "mean": gram.mean, "weight": gram.drift, "loss": loss_N}
        if flat.mapped:
            of_eigenvalues_NM = torch.zeros_like(flat.mapped[0])
            named |= {"eigenvalues": flat.mapped[0], "of_eigenvalues": of_eigenvalues_NM}
        places = flat.places(weights_NS) | flat.places(gradient_NS, "of_")
        places |= {"input": places.pop("encoder"), "of_input": places.pop("of_encoder")}
        masks = masks_of(live_N)  # held until the kernel has read them
        self.run(
            readable(named, weights_NS.dtype),
            [{"live": mask.data_ptr(), **places} for mask in masks],
            gradient=True,
            models=len(loss_N),
            copies=1,
            horizon=targets_NT.shape[-1],
            width=flat.width,
            row=weights_NS.shape[-1],
            least=flat.least,
        )
        if flat.mapped:
            flat.finish(gradient_NS, of_eigenvalues_NM)
        return loss_N, gradient_NS


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


def flat_modal_loss(flat: FlatDiagonal, gram: Gram, targets_NT: Tensor, live_N: Tensor) -> tuple[Tensor, Tensor] | None:
    """``modal_loss`` of linear models in flat weights, with its gradient: ``[N]`` and ``[N, S]``, without a graph.

    Args:
        flat: of one input and one output each, in the processor's memory.
        gram, targets_NT, live_N: as for ``modal_loss``.

    Returns:
        None where no kernel computes it.
    """
    kernel = CompiledModalLoss.load(targets_NT.dtype) if targets_NT.shape[-1] % ALIGNMENT == 0 else None
    return None if kernel is None else kernel.of_flat(flat, gram, targets_NT, live_N)


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
