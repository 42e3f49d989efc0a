"""The capacity of a linear recurrent layer in closed form, over an infinite horizon.

s_{t+1} = A s_t + B x_t, y_t = C s_t + D x_t, where s_t is what the layer keeps of the inputs before t. Its Hankel
operator takes past inputs to future outputs. The singular values of that operator follow from square roots F and G of
the two Gramians: F F' = sum_k A^k B B' A'^k and G G' = sum_k A'^k C' C A^k (Antoulas, Approximation of Large-Scale
Dynamical Systems, 2005, chapters 5 and 7).

Letters: M width, I inputs, O outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from memsweep.recurrence.layer import Layer

_DOUBLINGS = 60
"""Of the powers of A in a Gramian: 2^60 steps."""


@dataclass(frozen=True)
class LinearSystem:
    """A linear layer, in float64.

    Attributes:
        matrix: A, a diagonal ``[M]`` or a matrix ``[M, M]``.
        encoder: B, ``[M, I]``.
        readout: C, ``[O, M]``.
    """

    matrix: Tensor
    encoder: Tensor
    readout: Tensor

    @staticmethod
    def of(layer: Layer, row: int) -> LinearSystem:
        """One model of a stack of linear layers, which read out h_t = A h_{t-1} + B x_t by c: then C = c A."""
        folded = layer.folded()
        matrix, encoder, readout = (
            tensor[row].detach().double().cpu() for tensor in (folded.matrix, folded.encoder, folded.readout)
        )
        after = readout * matrix if matrix.ndim == 1 else readout @ matrix
        return LinearSystem(matrix, encoder, after)

    @cached_property
    def stable(self) -> bool:
        """Whether all eigenvalues are inside the unit circle; without that there are no Gramians."""
        if not all(bool(torch.isfinite(each).all()) for each in (self.matrix, self.encoder, self.readout)):
            return False
        modes = self.matrix if self.matrix.ndim == 1 else torch.linalg.eigvals(self.matrix)
        return bool((modes.abs() < 1.0).all())

    @cached_property
    def roots(self) -> tuple[Tensor, Tensor]:
        """F ``[M, ...]`` and G ``[M, ...]``, square roots of the Gramians of reachability and of observability."""
        if self.matrix.ndim == 1:
            orthonormal = _orthonormal(self.matrix)
            return tuple(  # type: ignore[return-value]
                torch.cat([weight.unsqueeze(1) * orthonormal for weight in side.unbind(1)], 1)
                for side in (self.encoder, self.readout.mT)
            )
        return _root(self.matrix, self.encoder), _root(self.matrix.mT, self.readout.mT)

    @cached_property
    def hankel(self) -> Tensor:
        """The singular values of the Hankel operator, decreasing, ``[M]`` or fewer."""
        reached, seen = self.roots
        # with several inputs and outputs the product has more than M, all zero
        return torch.linalg.svdvals(seen.mT @ reached)[: len(self.encoder)]


def _orthonormal(modes: Tensor) -> Tensor:
    """L with (L L')_mn = 1 / (1 - a_m a_n), lower triangular, ``[M, M]``, for a diagonal A.

    Column k holds the values at all modes of the k-th orthonormal function of Takenaka and Malmquist. Each entry is a
    product of differences, so it has all its digits where modes are close and the Gramian is singular but for them.
    """
    own, other = modes.unsqueeze(1), modes.unsqueeze(0)
    products = torch.cumprod((own - other) / (1.0 - own * other), 1)
    before = torch.cat([torch.ones_like(products[:, :1]), products[:, :-1]], 1)
    return before * (1.0 - other.square()).sqrt() / (1.0 - own * other)


def _root(matrix: Tensor, start: Tensor) -> Tensor:
    """F with F F' = sum_k A^k B B' A'^k, ``[M, M]`` or narrower: Smith's doubling, on the root and not on the sum."""
    root, power = start, matrix
    for _ in range(_DOUBLINGS):
        more = power @ root
        if float(more.norm()) <= torch.finfo(root.dtype).eps * float(root.norm()):
            break
        root = torch.cat([root, more], 1)
        if root.shape[1] > len(root):
            root = torch.linalg.qr(root.mT, mode="r").R.mT
        power = power @ power
    return root
