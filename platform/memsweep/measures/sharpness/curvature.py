"""Sharpness in training: the largest learning rate that the point where training stands would bear.

An optimizer that divides the gradient by D and averages it with the factor β is stable on a quadratic with Hessian H
up to the learning rate (2 + 2 β) / ((1 - β) λ), λ the largest eigenvalue of D^-1/2 H D^-1/2 (arXiv 2207.14484; 38 / λ
for β = 0.9). Training beyond it is not lost, because losses are no quadratics: it is the edge to which a training at a
constant rate rises. λ comes from Lanczos steps, whose value is never above λ, with products of H by central differences
of gradients. So the sharpness is a lower bound, within these differences, and the learning rate an upper one.

Letters: P rows (replicas and dummies), S size of the flat weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

STEPS = 16
"""Of the Lanczos iteration: they find an eigenvalue apart from the others to rounding, the end of a dense band to some
per cent (``tests/measures/sharpness/test_sharpness.py``)."""

Gradient = Callable[[Tensor], Tensor]
"""Gradients ``[P, S]`` of a fixed loss at weights ``[P, S]``."""


def largest_eigenvalue(gradient: Gradient, weights: Tensor, scale: Tensor, start: Tensor) -> Tensor:
    """The largest eigenvalue of S H S for each row, ``[P]`` float64, by ``STEPS`` Lanczos steps; never above it.

    Args:
        gradient: of the loss whose Hessian at ``weights`` is H.
        weights: ``[P, S]``.
        scale: ``[P, S]``, the diagonal of S; 0 leaves an entry out.
        start: ``[P, S]``, the first direction; one that has no part of an eigenvector does not find it.
    """
    step = torch.finfo(weights.dtype).eps ** (1 / 3) * weights.double().norm(dim=-1, keepdim=True).clamp(min=1e-3)

    def product(direction: Tensor) -> Tensor:
        moved = scale.double() * direction
        size = moved.norm(dim=-1, keepdim=True)
        push = (moved * torch.where(size > 0, step / size, 0.0)).to(weights.dtype)
        difference = gradient(weights + push).double() - gradient(weights - push).double()
        return scale.double() * difference * (size / (2.0 * step))

    vector = torch.where(scale > 0, start.double(), 0.0)
    vector = vector / vector.norm(dim=-1, keepdim=True).clamp(min=1e-300)
    before, beta = torch.zeros_like(vector), torch.zeros_like(vector[:, :1])
    diagonal: list[Tensor] = []
    beside: list[Tensor] = []
    for _ in range(STEPS):
        moved = product(vector) - beta * before
        alpha = (moved * vector).sum(-1, keepdim=True)
        moved = moved - alpha * vector
        # where the vectors span all that the start reaches, what remains is rounding: its value must not count
        ended = vector.norm(dim=-1, keepdim=True) == 0
        diagonal.append(torch.where(ended, torch.stack(diagonal).amin(0), alpha) if diagonal else alpha)
        beta = moved.norm(dim=-1, keepdim=True)
        largest = torch.stack(diagonal).abs().amax(0)
        beta = torch.where(beta > _ROUNDING[weights.dtype] * largest, beta, 0.0)
        beside.append(beta)
        before, vector = vector, torch.where(beta > 0, moved / torch.where(beta > 0, beta, 1.0), 0.0)
    tridiagonal = torch.diag_embed(torch.cat(diagonal, -1))
    tridiagonal = tridiagonal + torch.diag_embed(torch.cat(beside[:-1], -1), offset=-1)  # eigvalsh reads the lower half
    finite = torch.isfinite(tridiagonal).all(-1).all(-1)
    values = torch.linalg.eigvalsh(torch.where(finite[:, None, None], tridiagonal, 0.0))[:, -1]
    return torch.where(finite, values, torch.nan)


_ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-3}
"""Share of the largest entry below which a remainder is the error of the central differences."""
