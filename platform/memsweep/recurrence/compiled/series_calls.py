"""Calls of the compiled scan: states of a recurrence that is driven unit by unit.

Letters: see memsweep.recurrence.scan.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.recurrence.activations import CODES
from memsweep.recurrence.compiled.library import Kernel, readable, shares_of_rows

_DIAGONAL, _DENSE, _COMPLEX = range(3)


class CompiledScan(Kernel):
    """h_t = leak h_{t-1} + sigma(x_t + A h_{t-1}) and its gradient, with a leak of 0 or 1 (0 where sigma is linear).

    The numbers of one leading index do not depend on the others, nor on the number of threads.
    """

    function = "series"  # SeriesCall of kernels.cpp
    numbers = ("backward", "kind", "sigma", "carried", "models", "batch", "horizon", "width")
    tensors = ("matrix", "given", "states", "found", "of_matrix")

    def states(self, drive_NBTM: Tensor, matrix: Tensor, activation: str, leak: float) -> Tensor:
        """``[N, B, T, M]``, a new tensor."""
        states_NBTM = torch.empty_like(drive_NBTM, memory_format=torch.contiguous_format)
        self._run({"given": drive_NBTM, "matrix": matrix, "found": states_NBTM}, activation, leak)
        return states_NBTM

    def gradients(
        self, grad_NBTM: Tensor, states_NBTM: Tensor, matrix: Tensor, activation: str, leak: float
    ) -> tuple[Tensor, Tensor]:
        """Gradients by the drive and by the matrix; those of complex numbers are conjugated, as torch's are."""
        of_drive = torch.empty_like(grad_NBTM, memory_format=torch.contiguous_format)
        of_matrix = torch.zeros_like(matrix, memory_format=torch.contiguous_format)  # the library adds to it
        given = {"given": grad_NBTM, "states": states_NBTM, "matrix": matrix}
        self._run({**given, "found": of_drive, "of_matrix": of_matrix}, activation, leak)
        return of_drive, of_matrix

    def _run(self, named: dict[str, Tensor], activation: str, leak: float) -> None:
        _, batch, horizon, width = named["given"].shape
        tensors = readable(named, named["found"].dtype)
        matrix, is_complex = tensors["matrix"], tensors["matrix"].is_complex()
        self.run(
            tensors,
            shares_of_rows(tensors, "models"),
            backward="states" in named,
            kind=_DENSE if matrix.ndim == 3 else _COMPLEX if is_complex else _DIAGONAL,
            sigma=CODES[activation],
            carried=leak == 1.0,
            batch=batch,
            horizon=horizon,
            width=2 * width if is_complex else width,  # in real numbers
        )
