"""Spectral balls of complex weights, which are stored as pairs: the last dimension is the real and the imaginary part.

The norm of a complex matrix is its spectral norm, that of a vector its Euclidean norm, and that of a diagonal the
largest modulus of an entry. The gradient by a pair of real numbers, read as a complex number, points where a loss grows
fastest.

Letters: P rows (replicas and dummies), K copies, S real numbers of the weight.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from memsweep.learning.ensemble.flat_layout import Segment
from memsweep.models.base import Role


def takes_modulus(norm: str, role: Role) -> bool:
    """Whether the ball of a weight is one of complex numbers."""
    return norm == "spectral" and role.complex_entries


def complex_steepest(segment: Segment, part: Tensor, rows: Tensor, polar: Callable[[Tensor], Tensor]) -> Tensor:
    """The point of the unit ball that maximizes the linear function with this gradient: ``[P, K, S]``.

    Args:
        segment: of the weight.
        part: ``[P, K, S]``.
        rows: of the replicas; matrices of dummies stay, which saves their time.
        polar: sets all nonzero singular values of matrices to 1.
    """
    if _is_matrix(segment):
        return _changed(segment, part, rows, polar)
    groups = _groups(segment, part)
    sizes = groups.norm(dim=-1, keepdim=True)
    return (groups / torch.where(sizes > 0, sizes, 1.0)).flatten(-2)


def complex_clipped(segment: Segment, part: Tensor, rows: Tensor, radius: Tensor) -> Tensor:
    """The nearest point of the ball of each copy's radius, ``[P, K, 1]``; the other arguments as of the steepest."""
    if _is_matrix(segment):
        largest = radius[rows].unsqueeze(-1)
        return _changed(segment, part, rows, lambda matrices: _with_values_up_to(matrices, largest))
    groups = _groups(segment, part)
    largest = radius.unsqueeze(-1)
    sizes = groups.norm(dim=-1, keepdim=True)
    return (groups * (largest / torch.maximum(sizes, largest))).flatten(-2)


def complex_size(segment: Segment, part: Tensor) -> Tensor:
    """The norm: ``[P, K, 1]``."""
    if _is_matrix(segment):
        return torch.linalg.matrix_norm(_complex(segment, part), 2).unsqueeze(-1)
    return _groups(segment, part).norm(dim=-1).amax(-1, keepdim=True)


def _shape(segment: Segment) -> tuple[int, int]:
    """Rows and columns of a tensor of complex numbers; a number and a vector have one column."""
    count, rows = (segment.stop - segment.start) // 2, segment.shape[0] if len(segment.shape) > 1 else 1
    return rows, count // rows


def _is_matrix(segment: Segment) -> bool:
    return not segment.role.diagonal and min(_shape(segment)) > 1


def _groups(segment: Segment, part: Tensor) -> Tensor:
    """The real numbers of which the Euclidean norm counts, ``[P, K, groups, numbers]``: of an entry, or of a vector."""
    return part.unflatten(-1, (-1, 2)) if segment.role.diagonal else part.unsqueeze(-2)


def _complex(segment: Segment, part: Tensor) -> Tensor:
    return torch.view_as_complex(part.unflatten(-1, (*_shape(segment), 2)).contiguous())


def _changed(segment: Segment, part: Tensor, rows: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    matrices = change(_complex(segment, part[rows]))
    return part.index_copy(0, rows, torch.view_as_real(matrices.resolve_conj()).flatten(-3))


def _with_values_up_to(matrices: Tensor, largest: Tensor) -> Tensor:
    """The matrices with singular values clipped at ``largest``, ``[P, K, 1, 1]``, by an eigendecomposition, which costs
    half of a singular value decomposition.
    """
    if matrices.shape[-2] < matrices.shape[-1]:
        return _with_values_up_to(matrices.mH, largest).mH
    squares, vectors = torch.linalg.eigh(matrices.mH @ matrices)
    sizes = squares.unsqueeze(-2).clamp(min=0.0).sqrt()
    return matrices @ ((vectors * (largest / torch.maximum(sizes, largest))) @ vectors.mH)
