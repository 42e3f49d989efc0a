"""Orthogonal matrices: the exponential of skew ones, for training, and random ones, to start from.

exp(S) of a skew-symmetric S is a rotation, and every rotation is one (Lezcano-Casado and Martinez-Rubio,
arXiv 1901.08428). It is computed by scaling and squaring, exp(S) = exp(S / 2^k)^(2^k), with a Taylor polynomial whose
rest is far below rounding. Each matrix takes its own k, and its bits do not depend on the others of the batch;
differentiated, this costs a fraction of torch.linalg.matrix_exp, whose derivative exponentiates matrices of twice the
size.

Letters: N leading dimensions (replicas, copies), M width.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_ORDER = 4  # of a block of the Taylor polynomial, which has _ORDER^2 + 1 terms
_MOST_SQUARINGS = 50  # beyond, rounding leaves no digit of the angles


def rotation(generator_NMM: Tensor) -> Tensor:
    """exp((A - A^T) / 2), orthogonal with determinant 1, differentiable.

    Args:
        generator_NMM: A, any square matrices; zero rows and columns leave their axes where they are.

    Returns:
        Tensor ``[..., M, M]``; NaN where A is not finite.
    """
    skew_NMM = (generator_NMM - generator_NMM.mT) / 2.0
    norm_N11 = skew_NMM.detach().abs().sum(-1).amax(-1)[..., None, None]
    _, exponent = torch.frexp(norm_N11)
    squarings = (exponent + 1).clamp(0, _MOST_SQUARINGS)
    # the scaled norm is below 1/2: the first term that is left out is below 1e-19
    power_NMM = _taylor(skew_NMM * torch.ldexp(torch.ones_like(norm_N11), -squarings))
    result_NMM: Tensor = _Squared.apply(power_NMM, squarings)
    return result_NMM


class _Squared(torch.autograd.Function):
    """P^(2^k), k of each matrix's own.

    Written by hand, because the layout in which autograd passes gradients on, and with it their last bits, would
    depend on how often the others of the batch are squared.
    """

    @staticmethod
    def forward(ctx: Any, power_NMM: Tensor, squarings_N11: Tensor) -> Tensor:
        powers = [power_NMM]
        for done in range(int(squarings_N11.max())):
            powers.append(torch.where(squarings_N11 > done, powers[-1] @ powers[-1], powers[-1]))
        ctx.save_for_backward(squarings_N11, *powers[:-1])
        return powers[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None]:
        squarings_N11, *powers = ctx.saved_tensors
        grad_NMM = grads[0].contiguous()
        for done in range(len(powers) - 1, -1, -1):
            turned_NMM = powers[done].mT.contiguous()
            through_NMM = grad_NMM @ turned_NMM + turned_NMM @ grad_NMM
            grad_NMM = torch.where(squarings_N11 > done, through_NMM, grad_NMM)
        return grad_NMM, None


def _taylor(matrix_NMM: Tensor) -> Tensor:
    """sum_k A^k / k!, k = 0 ... 16, by blocks of four terms: six products instead of fifteen."""
    identity_MM = torch.eye(matrix_NMM.shape[-1], dtype=matrix_NMM.dtype, device=matrix_NMM.device)
    powers = [matrix_NMM]
    while len(powers) < _ORDER:
        powers.append(powers[-1] @ matrix_NMM)
    total = powers[-1] / math.factorial(_ORDER**2)
    for block in range(_ORDER - 1, -1, -1):
        total = total + identity_MM / math.factorial(_ORDER * block)
        for index in range(1, _ORDER):
            total = total.add(powers[index - 1], alpha=1.0 / math.factorial(_ORDER * block + index))
        if block:
            total = total @ powers[-1]
    return total


def random_orthogonal(size: int, rng: np.random.Generator) -> np.ndarray:
    """An orthogonal matrix from the uniform (Haar) distribution: ``[size, size]``.

    The QR factor of a Gaussian matrix is uniform once the signs of R's diagonal are taken into it (Mezzadri,
    arXiv math-ph/0609050).
    """
    factor, triangle = np.linalg.qr(rng.standard_normal((size, size)))
    return np.asarray(factor * np.sign(np.diagonal(triangle)))


def random_symmetric(eigenvalues: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A symmetric matrix of given eigenvalues in a random orthogonal basis: ``[M, M]`` from ``[M]``."""
    basis = random_orthogonal(len(eigenvalues), rng)
    return np.asarray((basis.T * eigenvalues) @ basis)
