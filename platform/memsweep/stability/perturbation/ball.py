"""Balls of weight perturbations: per-tensor norms, steepest directions, projections.

|theta|_2 is the largest over the weight tensors of their spectral norm (matrices) or Euclidean norm (vectors):
arXiv 2305.19190, Definition 3.4. A diagonal recurrent matrix is stored as a vector; its spectral norm is its
largest entry. The ``entrywise`` norm, the largest entry of any tensor, is the published code's. A complex tensor of a
user's module has the spectral norm of complex numbers (``complex_ball``); entrywise, its parts are entries.

Letters: P rows (replicas and dummies), K copies, S size of the flat weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from memsweep.learning.ensemble.flat_layout import Segment
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.models.base import Part
from memsweep.stability.perturbation.complex_ball import complex_clipped, complex_size, complex_steepest, takes_modulus

RECURRENT, WEIGHTS, ALL = "recurrent", "weights", "all"
SPECTRAL, ENTRYWISE = "spectral", "entrywise"
_PARTS = {
    RECURRENT: (Part.RECURRENT,),
    WEIGHTS: tuple(part for part in Part if part not in (Part.BIAS, Part.STATISTIC)),
    ALL: tuple(part for part in Part if part is not Part.STATISTIC),
}


class Ball:
    """The unit ball of perturbations of an ensemble's weights, as a product of one ball per weight tensor.

    Args:
        ensemble: whose weights move.
        name: ``recurrent`` (recurrent weights alone), ``weights`` (all but the biases) or ``all``.
        norm: ``spectral`` or ``entrywise``.
    """

    def __init__(self, ensemble: Ensemble, name: str, norm: str) -> None:
        parts = _PARTS[name]
        self.norm = norm
        self.segments = [s for s in ensemble.layout.segments if s.role.part in parts]
        self.moving = (ensemble.exists & ensemble.select(*parts)).unsqueeze(1)
        self.rows = ensemble.real.nonzero().squeeze(-1)

    def steepest(self, gradient: Tensor) -> Tensor:
        """The point of the unit ball that maximizes the linear function with this gradient: ``[P, K, S]``."""
        result = torch.zeros_like(gradient)
        gradient = torch.where(self.moving & torch.isfinite(gradient), gradient, 0.0)
        for segment in self.segments:
            part = gradient[..., segment.start : segment.stop]
            result[..., segment.start : segment.stop] = self._dual(segment, part)
        return result

    def project(self, shift: Tensor, radius: Tensor) -> Tensor:
        """The nearest point of the ball of each copy's radius, ``[P, K]`` or ``[K]``, tensor by tensor."""
        result = torch.zeros_like(shift)
        radius = radius.expand(shift.shape[:2])
        shift = torch.where(self.moving, shift, 0.0)
        for segment in self.segments:
            part = shift[..., segment.start : segment.stop]
            result[..., segment.start : segment.stop] = self._clip(segment, part, radius.unsqueeze(-1))
        return result

    def sphere(self, shift: Tensor) -> Tensor:
        """Every moving tensor scaled to norm 1 (zero tensors stay zero)."""
        result = torch.zeros_like(shift)
        shift = torch.where(self.moving, shift, 0.0)
        for segment in self.segments:
            part = shift[..., segment.start : segment.stop]
            size = self._size(segment, part)
            result[..., segment.start : segment.stop] = part / torch.where(size > 0, size, 1.0)
        return result

    def _kind(self, segment: Segment) -> str:
        if self.norm == ENTRYWISE or segment.role.diagonal:
            return "largest entry"
        return "euclidean" if min(_matrix(segment)) == 1 else "spectral"

    def _dual(self, segment: Segment, part: Tensor) -> Tensor:
        if takes_modulus(self.norm, segment.role):
            return complex_steepest(segment, part, self.rows, _polar)
        kind = self._kind(segment)
        if kind == "largest entry":
            return part.sign()
        if kind == "euclidean":
            size = part.norm(dim=-1, keepdim=True)
            return part / torch.where(size > 0, size, 1.0)
        return self._matrices(segment, part, _polar)

    def _clip(self, segment: Segment, part: Tensor, radius: Tensor) -> Tensor:
        if takes_modulus(self.norm, segment.role):
            return complex_clipped(segment, part, self.rows, radius)
        kind = self._kind(segment)
        if kind == "largest entry":
            return torch.minimum(torch.maximum(part, -radius), radius)
        if kind == "euclidean":
            size = part.norm(dim=-1, keepdim=True)
            return part * (radius / torch.where(size > 0, size, radius)).clamp(max=1.0)
        largest = radius[self.rows].unsqueeze(-1)
        return self._matrices(segment, part, lambda matrices: _clipped(matrices, largest))

    def _matrices(self, segment: Segment, part: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """A segment with its matrices changed; those of dummies stay, which saves their time."""
        changed = change(part[self.rows].unflatten(-1, _matrix(segment))).flatten(-2)
        return part.index_copy(0, self.rows, changed)

    def _size(self, segment: Segment, part: Tensor) -> Tensor:
        if takes_modulus(self.norm, segment.role):
            return complex_size(segment, part)
        kind = self._kind(segment)
        if kind == "largest entry":
            return part.abs().amax(-1, keepdim=True)
        if kind == "euclidean":
            return part.norm(dim=-1, keepdim=True)
        return torch.linalg.matrix_norm(part.unflatten(-1, _matrix(segment)), 2).unsqueeze(-1)


def _matrix(segment: Segment) -> tuple[int, int]:
    rows = segment.shape[0]
    return rows, (segment.stop - segment.start) // rows


def _polar(matrices: Tensor) -> Tensor:
    """The matrices with all nonzero singular values set to 1.

    In float32 also those that rounding makes of zeros: such a direction has full size and gains nothing.
    """
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    used = (values > values[..., :1] * 1e-12).to(matrices.dtype)
    return (left * used.unsqueeze(-2)) @ right


def _clipped(matrices: Tensor, largest: Tensor) -> Tensor:
    """The matrices with singular values clipped at ``largest``, ``[P, K, 1, 1]``.

    Computed as A V min(1, largest / s) V', where A'A = V s^2 V'. An eigendecomposition costs half of a singular value
    decomposition; it is inaccurate for singular values far below the largest one, which stay as they are.
    """
    if matrices.shape[-2] < matrices.shape[-1]:
        return _clipped(matrices.mT, largest).mT
    squares, vectors = torch.linalg.eigh(matrices.mT @ matrices)
    sizes = squares.unsqueeze(-2).clamp(min=0.0).sqrt()
    shares = largest / torch.maximum(sizes, largest)
    return matrices @ ((vectors * shares) @ vectors.mT)
