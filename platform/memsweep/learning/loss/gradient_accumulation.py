"""A loss whose gradient is computed with it, piece by piece, so that memory is bounded by one piece.

Letters: N leading dimensions (replicas, then copies).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from memsweep.models.base import Model, Weights, leading_shape


class AccumulatedLoss:
    """The sum of the losses of pieces of data, with the sum of their gradients if the weights require them.

    Args:
        model: of all replicas.
        weights: ``[N, *shape]``, at which the losses are computed.

    Attributes:
        own: copies of the weights; every piece's loss must be computed from them.
    """

    def __init__(self, model: Model, weights: Weights) -> None:
        self.weights = weights
        self.required = torch.is_grad_enabled() and any(value.requires_grad for value in weights.values())
        self.own = {name: value.detach().requires_grad_(self.required) for name, value in weights.items()}
        self.total = next(iter(weights.values())).new_zeros(leading_shape(model, weights))
        self.gradients = [torch.zeros_like(value) for value in self.own.values()] if self.required else []

    def add(self, loss: Tensor) -> None:
        """Add the loss of a piece, ``[N]``, and its gradient; the piece's graph is freed."""
        self.total += loss.detach()
        if not self.required:
            return
        # a model may leave a weight out of its output; its gradient is zero
        gradients = torch.autograd.grad(loss.sum(), list(self.own.values()), allow_unused=True)
        for total, gradient in zip(self.gradients, gradients, strict=True):
            if gradient is not None:
                total += gradient

    def loss(self) -> Tensor:
        """The sum, ``[N]``; differentiable once by the weights if they require gradients."""
        if not self.required:
            return self.total
        loss: Tensor = _KnownGradient.apply(self.total, *self.gradients, *self.weights.values())
        return loss


class _KnownGradient(torch.autograd.Function):
    """A loss ``[N, ...]`` whose gradient by stacked weights was computed with it.

    ``forward`` takes the loss, then the gradients, then as many weights, through which autograd reaches ``backward``.
    """

    @staticmethod
    def forward(ctx: Any, loss: Tensor, *gradients_and_weights: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients_and_weights[: len(gradients_and_weights) // 2])
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (grad_N,) = grads
        scaled = [
            # grad_N with a dimension of 1 for each dimension of the weight: [N, 1, ..., 1] * [N, *shape]
            gradient * grad_N.view(*grad_N.shape, *[1] * (gradient.ndim - grad_N.ndim))
            for gradient in ctx.saved_tensors
        ]
        return None, *[None] * len(scaled), *scaled
