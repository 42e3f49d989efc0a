"""What a recurrence's matrix does to the states of one step, forward and backward, in place.

Letters: see memsweep.recurrence.steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from memsweep.recurrence.steps import Steps


class Coupling(ABC):
    """A matrix between the states of one step and the next."""

    @abstractmethod
    def add_image(self, target: Steps, at: int, source: Steps, before: int) -> None:
        """Add A h to step ``at`` of the target, h from step ``before`` of the source."""

    @abstractmethod
    def add_adjoint(self, grads: Steps, at: int, after: int) -> None:
        """Add A' d to step ``at``, d from step ``after``; of complex numbers: the transpose, not conjugated."""

    @abstractmethod
    def collect(self, grads: Steps, at: int, states: Steps, before: int) -> None:
        """Add to the gradient the product of d at one step and h of the step before."""

    @abstractmethod
    def gradient(self) -> Tensor:
        """What was collected, in the matrix's shape."""


class Diagonal(Coupling):
    """Independent units: ``[N, M]``, one value per unit."""

    def __init__(self, matrix_NM: Tensor, states: Steps) -> None:
        _, batch, _ = states.shape
        self.repeated = Steps.of(matrix_NM[:, None, None].expand(-1, batch, -1, -1), states)
        self.collected = Steps(torch.zeros_like(self.repeated.flat), self.repeated.shape)

    def add_image(self, target: Steps, at: int, source: Steps, before: int) -> None:
        target.rows[at].addcmul_(self.repeated.rows[0], source.rows[before])

    def add_adjoint(self, grads: Steps, at: int, after: int) -> None:
        self.add_image(grads, at, grads, after)

    def collect(self, grads: Steps, at: int, states: Steps, before: int) -> None:
        self.collected.rows[0].addcmul_(grads.rows[at], states.rows[before])

    def gradient(self) -> Tensor:
        return self.collected.blocks[0].sum(1)


class Dense(Coupling):
    """All units on all units: ``[N, M, M]``, applied as A h."""

    def __init__(self, matrix_NMM: Tensor) -> None:
        self.matrix = matrix_NMM.contiguous()
        self.transposed = matrix_NMM.mT.contiguous()
        self.collected = torch.zeros_like(self.matrix)

    def add_image(self, target: Steps, at: int, source: Steps, before: int) -> None:
        target.blocks[at].baddbmm_(source.blocks[before], self.transposed)

    def add_adjoint(self, grads: Steps, at: int, after: int) -> None:
        grads.blocks[at].baddbmm_(grads.blocks[after], self.matrix)

    def collect(self, grads: Steps, at: int, states: Steps, before: int) -> None:
        self.collected.baddbmm_(grads.blocks[at].mT, states.blocks[before])

    def gradient(self) -> Tensor:
        return self.collected


def coupling(matrix: Tensor, states: Steps) -> Coupling:
    """The coupling of such states by a diagonal ``[N, M]`` or a matrix ``[N, M, M]``."""
    return Diagonal(matrix, states) if matrix.ndim == 2 else Dense(matrix)
