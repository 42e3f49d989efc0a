"""Maps from unconstrained weights to orthogonal matrices, for training, and random orthogonal matrices, for the start.

``exponential`` and ``cayley`` take skew-symmetric matrices S to rotations: every rotation is an exp(S) (Lezcano-Casado
and Martinez-Rubio, arXiv 1901.08428), and every one that turns no plane by 180 degrees a Cayley transform
(I + S)^-1 (I - S). ``polar`` takes any matrix to the orthogonal one nearest to it, of either determinant.

The exponential is computed by scaling and squaring, exp(S) = exp(S / 2^k)^(2^k), with a Taylor polynomial whose rest
is far below rounding. Each matrix takes its own k, and its bits do not depend on the others of the batch;
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

from memsweep.models.spectrum import one_thread

EXPONENTIAL, CAYLEY = "exponential", "cayley"
_ORDER = 4  # of a block of the Taylor polynomial, which has _ORDER^2 + 1 terms
_MOST_SQUARINGS = 50  # beyond, rounding leaves no digit of the angles


def triangle_skew(generator_NMM: Tensor) -> Tensor:
    """The skew matrix A = triu(G, 1) - triu(G, 1)^T of a generator G: ``[..., M, M]``.

    Entries on and below the diagonal of G have no effect, even if they are not finite.
    """
    upper_NMM = generator_NMM.triu(1)
    return upper_NMM - upper_NMM.mT


def rotation(generator_NMM: Tensor) -> Tensor:
    """exp((A - A^T) / 2) of any square A, orthogonal with determinant 1, differentiable: see ``exponential``."""
    return exponential((generator_NMM - generator_NMM.mT) / 2.0)


def exponential(skew_NMM: Tensor) -> Tensor:
    """exp(S), ``[..., M, M]``, orthogonal with determinant 1 where S is skew-symmetric, differentiable.

    Zero rows and columns of S leave their axes unchanged. NaN where S is not finite.
    """
    norm_N11 = skew_NMM.detach().abs().sum(-1).amax(-1)[..., None, None]
    # the power of two exactly, where a logarithm might round across it and change k
    _, exponent = torch.frexp(norm_N11)
    squarings = (exponent + 1).clamp(0, _MOST_SQUARINGS)
    # the scaled norm is below 1/2: the first term that is left out is below 1e-19
    power_NMM = _taylor(skew_NMM * torch.ldexp(torch.ones_like(norm_N11), -squarings))
    result_NMM: Tensor = _Squared.apply(power_NMM, squarings)
    return result_NMM


def cayley(skew_NMM: Tensor) -> Tensor:
    """(I + S)^-1 (I - S), ``[..., M, M]``, orthogonal with determinant 1 where S is skew-symmetric, differentiable.

    Zero rows and columns of S leave their axes unchanged. NaN where S is not finite.
    """
    identity_MM = torch.eye(skew_NMM.shape[-1], dtype=skew_NMM.dtype, device=skew_NMM.device)
    known_N11 = _finite(skew_NMM)
    with one_thread():
        inverse_NMM, _ = torch.linalg.inv_ex(identity_MM + torch.where(known_N11, skew_NMM, 0.0))
    # (I + S)^-1 (I - S) in another form, whose derivative takes two products instead of another inverse
    return torch.where(known_N11, 2.0 * inverse_NMM - identity_MM, torch.nan)


def polar(matrix_NMM: Tensor) -> Tensor:
    """The orthogonal matrix nearest to A, the factor Q of A = Q H with H symmetric and positive, differentiable.

    det Q has the sign of det A. A singular matrix has several nearest ones: the result is one of them, and where the
    rank is short by two or more the gradient is not finite. Returns ``[..., M, M]``; NaN where A is not finite.
    """
    factor_NMM: Tensor = _Polar.apply(matrix_NMM)
    return factor_NMM


class _Polar(torch.autograd.Function):
    """Q = U V^T of the decomposition A = U diag(s) V^T.

    dQ = U [ (U^T dA V - V^T dA^T U)_ij / (s_i + s_j) ] V^T. Written by hand: the derivatives of U and V alone divide
    by s_i - s_j, and at an orthogonal A, where training starts, all s are equal.
    """

    @staticmethod
    def forward(ctx: Any, matrix_NMM: Tensor) -> Tensor:
        known_N11 = _finite(matrix_NMM)
        with one_thread():
            left_NMM, values_NM, right_NMM = torch.linalg.svd(torch.where(known_N11, matrix_NMM, 0.0))
        ctx.save_for_backward(known_N11, left_NMM, values_NM, right_NMM)
        return torch.where(known_N11, left_NMM @ right_NMM, torch.nan)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Tensor:
        known_N11, left_NMM, values_NM, right_NMM = ctx.saved_tensors
        # in the bases U and V dQ is antisymmetric, so that the symmetric part of the gradient has no effect
        inner_NMM = left_NMM.mT @ grads[0].contiguous() @ right_NMM.mT
        turn_NMM = inner_NMM - inner_NMM.mT
        sums_NMM = values_NM.unsqueeze(-1) + values_NM.unsqueeze(-2)
        # the turn's diagonal is 0: divided by the sums of a singular A, it would be 0 / 0
        sums_NMM.diagonal(dim1=-2, dim2=-1).fill_(1.0)
        return torch.where(known_N11, left_NMM @ (turn_NMM / sums_NMM) @ right_NMM, torch.nan)


def _finite(matrix_NMM: Tensor) -> Tensor:
    """Which matrices are finite throughout: ``[..., 1, 1]``."""
    return matrix_NMM.detach().isfinite().all(-1).all(-1)[..., None, None]


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
            # d(P P) = dP P + P dP
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
    # Horner's scheme in A^4: each block adds four terms of the series
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
