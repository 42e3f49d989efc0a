"""The layout of a recurrence in plain torch: a flat row per time step, and the matrix between two steps, in place.

One step of all replicas and sequences is one contiguous row, so that an elementwise operation of a step is a single
pass. Rows are padded to a size that every thread's share divides into whole vector registers: complex products round
differently in the scalar code that handles a remainder, and a model's bits must not depend on where in a row it lies.

Letters: N leading dimension (replicas and copies), B batch, T time, M width, F flat (N B M, padded).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from memsweep.recurrence.padding import ALIGNMENT

GRAIN = 32768
"""Elements from which torch hands a share of an elementwise operation to another thread."""


def room_for(size: int, threads: int) -> int:
    """The smallest padded size of at least ``size`` elements that torch's threads divide into aligned shares."""
    while True:
        unit = ALIGNMENT * max(1, min(threads, -(-size // GRAIN)))
        room = -(-size // unit) * unit
        if room == size:
            return room
        size = room


@dataclass(frozen=True)
class Steps:
    """A series, time first.

    Attributes:
        flat: ``[T, F]``, a row per time step; the padding is zero.
        shape: (N, B, M), what a row holds.
    """

    flat: Tensor
    shape: tuple[int, int, int]

    @staticmethod
    def of(series_NBTM: Tensor, like: Steps | None = None) -> Steps:
        """A series ``[N, B, T, M]`` as steps, in rows as long as those of ``like``; always a copy."""
        leading, batch, horizon, width = series_NBTM.shape
        size = leading * batch * width
        room = room_for(size, torch.get_num_threads()) if like is None else like.flat.shape[1]
        flat_TF = series_NBTM.new_empty(horizon, room)
        flat_TF[:, size:] = 0.0
        steps = Steps(flat_TF, (leading, batch, width))
        steps._unpadded.copy_(series_NBTM.permute(2, 0, 1, 3))
        return steps

    def blank(self) -> Steps:
        """Steps of the same size, with nothing in them yet."""
        return Steps(torch.empty_like(self.flat), self.shape)

    @property
    def _unpadded(self) -> Tensor:
        leading, batch, width = self.shape
        return self.flat[:, : leading * batch * width].view(-1, *self.shape)

    @cached_property
    def rows(self) -> tuple[Tensor, ...]:
        """A row ``[F]`` per step: for what is done element by element."""
        return self.flat.unbind()

    @cached_property
    def blocks(self) -> tuple[Tensor, ...]:
        """The same memory as ``rows``, without the padding, as ``[N, B, M]`` per step: for matrix products."""
        return self._unpadded.unbind()

    def series(self) -> Tensor:
        """The series again, ``[N, B, T, M]``, contiguous."""
        return self._unpadded.permute(1, 2, 0, 3).contiguous()


class Diagonal:
    """The matrix between the states of one step and the next, of independent units: ``[N, M]``, one value per unit."""

    def __init__(self, matrix_NM: Tensor, states: Steps) -> None:
        _, batch, _ = states.shape
        # once for every sequence: a step is then one elementwise pass over two rows of equal length
        self.repeated = Steps.of(matrix_NM[:, None, None].expand(-1, batch, -1, -1), states)
        self.collected = Steps(torch.zeros_like(self.repeated.flat), self.repeated.shape)

    def add_image(self, target: Steps, at: int, source: Steps, before: int) -> None:
        """Add A h to step ``at`` of the target, h from step ``before`` of the source."""
        target.rows[at].addcmul_(self.repeated.rows[0], source.rows[before])

    def add_adjoint(self, grads: Steps, at: int, after: int) -> None:
        """Add A' d to step ``at``, d from step ``after``; of complex numbers: the transpose, not conjugated."""
        self.add_image(grads, at, grads, after)

    def collect(self, grads: Steps, at: int, states: Steps, before: int) -> None:
        """Add to the gradient the product of d at one step and h of the step before."""
        self.collected.rows[0].addcmul_(grads.rows[at], states.rows[before])

    def gradient(self) -> Tensor:
        """The collected gradient, in the matrix's shape."""
        return self.collected.blocks[0].sum(1)


class Dense:
    """The same for all units on all units: ``[N, M, M]``, applied as A h."""

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


def coupling(matrix: Tensor, states: Steps) -> Diagonal | Dense:
    """The coupling of such states by a diagonal ``[N, M]`` or a matrix ``[N, M, M]``."""
    return Diagonal(matrix, states) if matrix.ndim == 2 else Dense(matrix)
