"""Calls of the compiled gated recurrence.

Letters: see memsweep.recurrence.gated.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.recurrence.compiled.library import Kernel, readable, shares_of_rows


class CompiledGated(Kernel):
    """The states and their gradient; backward runs forward once more, and keeps the drive alone until then.

    The numbers of one leading index do not depend on the others, nor on the number of threads.
    """

    function = "gated"  # GatedCall of gated.cpp
    numbers = ("backward", "models", "batch", "horizon", "width")
    tensors = ("matrix", "bias", "drive", "given", "found", "of_matrix", "of_bias")

    def states(self, drive_NBTG: Tensor, matrix_NGM: Tensor, bias_NM: Tensor) -> Tensor:
        """``[N, B, T, M]``, a new tensor."""
        states_NBTM = drive_NBTG.new_empty(*drive_NBTG.shape[:3], bias_NM.shape[1])
        self._run({"drive": drive_NBTG, "matrix": matrix_NGM, "bias": bias_NM, "found": states_NBTM})
        return states_NBTM

    def gradients(
        self, grad_NBTM: Tensor, drive_NBTG: Tensor, matrix_NGM: Tensor, bias_NM: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients by drive, matrix and bias."""
        of_drive = torch.empty_like(drive_NBTG, memory_format=torch.contiguous_format)
        of_matrix, of_bias = (
            torch.zeros_like(weight, memory_format=torch.contiguous_format) for weight in (matrix_NGM, bias_NM)
        )
        given = {"drive": drive_NBTG, "matrix": matrix_NGM, "bias": bias_NM, "given": grad_NBTM}
        self._run({**given, "found": of_drive, "of_matrix": of_matrix, "of_bias": of_bias})
        return of_drive, of_matrix, of_bias

    def _run(self, named: dict[str, Tensor]) -> None:
        tensors = readable(named, named["drive"].dtype)
        _, batch, horizon, _ = tensors["drive"].shape
        self.run(
            tensors,
            shares_of_rows(tensors, "models"),
            backward="given" in named,
            batch=batch,
            horizon=horizon,
            width=tensors["bias"].shape[1],
        )
