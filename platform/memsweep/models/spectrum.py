"""Eigenvalues and norms of stacked matrices, of which some may hold weights that diverged.

Letters: N leading dimensions (replicas, copies), M width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.models.single_thread import one_thread


def eigenvalues(matrix_NMM: Tensor) -> Tensor:
    """Eigenvalues ``[N..., M]``, complex; NaN where the matrix is not finite."""
    known_N, finite_NMM = _finite(matrix_NMM)
    return torch.where(known_N.unsqueeze(-1), torch.linalg.eigvals(finite_NMM), torch.nan)


def spectral_norm(matrix_NMM: Tensor) -> Tensor:
    """The largest singular value ``[N...]``, differentiable; NaN where the matrix is not finite.

    Where several are largest, as of an orthogonal matrix, there is no one gradient: the mean over all of them is taken,
    which unlike any one of them does not hang on the rounding that made it the largest.
    """
    known_N, finite_NMM = _finite(matrix_NMM)
    with one_thread():
        left_NMM, values_NM, right_NMM = torch.linalg.svd(finite_NMM.detach())
    near = 1.0 - 8 * matrix_NMM.shape[-1] * torch.finfo(values_NM.dtype).eps  # differences that are rounding's own
    largest_NM = (values_NM >= near * values_NM[..., :1]).to(values_NM)
    share_NM = largest_NM / largest_NM.sum(-1, keepdim=True)
    gradient_NMM = (left_NMM * share_NM.unsqueeze(-2)) @ right_NMM
    linear_N = (gradient_NMM * finite_NMM).sum((-2, -1))
    return torch.where(known_N, values_NM[..., 0] + (linear_N - linear_N.detach()), torch.nan)


def _finite(matrix_NMM: Tensor) -> tuple[Tensor, Tensor]:
    """Which matrices are finite, and all of them with zeros in the place of those that are not."""
    known_N = torch.isfinite(matrix_NMM).all(-1).all(-1)
    return known_N, torch.where(known_N[..., None, None], matrix_NMM, 0.0)
