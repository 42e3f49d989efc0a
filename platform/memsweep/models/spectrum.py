"""Eigenvalues and norms of stacked matrices, some of which may hold weights that diverged.

Letters: N leading dimensions (replicas, copies), M width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside the context torch computes on one thread: the last bits of a decomposition depend on their number."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def eigenvalues(matrix_NMM: Tensor) -> Tensor:
    """Eigenvalues ``[N..., M]``, complex; NaN where the matrix is not finite."""
    known_N, finite_NMM = _finite(matrix_NMM)
    return torch.where(known_N.unsqueeze(-1), torch.linalg.eigvals(finite_NMM), torch.nan)


def symmetric_eigenvalues(matrix_NMM: Tensor) -> Tensor:
    """Eigenvalues of symmetric matrices, ascending, ``[N..., M]``, real; NaN where the matrix is not finite."""
    known_N, finite_NMM = _finite(matrix_NMM)
    return torch.where(known_N.unsqueeze(-1), torch.linalg.eigvalsh(finite_NMM), torch.nan)


def spectral_norm(matrix_NMM: Tensor) -> Tensor:
    """The largest singular value ``[N...]``, differentiable; NaN where the matrix is not finite.

    Where several singular values are largest, as in an orthogonal matrix, the gradient is the mean over all of them.
    The gradient of a single one would depend on the rounding that made it the largest.
    """
    known_N, finite_NMM = _finite(matrix_NMM)
    with one_thread():
        left_NMM, values_NM, right_NMM = torch.linalg.svd(finite_NMM.detach())
    near = 1.0 - 8 * matrix_NMM.shape[-1] * torch.finfo(values_NM.dtype).eps  # closer values differ by rounding alone
    largest_NM = (values_NM >= near * values_NM[..., :1]).to(values_NM)
    share_NM = largest_NM / largest_NM.sum(-1, keepdim=True)
    gradient_NMM = (left_NMM * share_NM.unsqueeze(-2)) @ right_NMM
    # <G, A> lends its derivative G to the norm; its own value is subtracted again
    linear_N = (gradient_NMM * finite_NMM).sum((-2, -1))
    return torch.where(known_N, values_NM[..., 0] + (linear_N - linear_N.detach()), torch.nan)


def _finite(matrix_NMM: Tensor) -> tuple[Tensor, Tensor]:
    """Which matrices are finite, ``[N...]``, and all matrices with zeros in place of the others."""
    # a decomposition raises where one matrix of the stack is not finite: a diverged model would cost the others theirs
    known_N = torch.isfinite(matrix_NMM).all(-1).all(-1)
    return known_N, torch.where(known_N[..., None, None], matrix_NMM, 0.0)
