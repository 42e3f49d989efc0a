"""The compiled gated recurrences, GRU and LSTM: states and their gradient.

Letters: N leading dimension (replicas and copies), B batch, T time, M width, G = 3 M (GRU) or 4 M (LSTM).
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.compiled.library import Kernel, readable, shares_of_rows


class CompiledGated(Kernel):
    """The states and their gradient; backward runs forward once more, and keeps the drive alone until then.

    The numbers of one leading index do not depend on the others, nor on the number of threads.
    """

    function = "gated"  # GatedCall of gated.cpp
    numbers = ("cells", "backward", "models", "batch", "horizon", "width")
    tensors = ("matrix", "bias", "drive", "given", "found", "of_matrix", "of_bias")

    @classmethod
    def fitting(cls, drive_NBTG: Tensor) -> Self | None:
        """The recurrence for numbers of this type and place; None where plain torch computes instead."""
        on_processor = drive_NBTG.device.type == "cpu" and not drive_NBTG.is_complex()
        return cls.load(drive_NBTG.dtype) if on_processor else None

    def scan(self, drive_NBTG: Tensor, matrix_NGM: Tensor, bias_NM: Tensor | None = None) -> Tensor:
        """States ``[N, B, T, M]``, differentiable once: of a GRU, or without a bias of an LSTM."""
        states: Tensor = _Scan.apply(self, drive_NBTG, matrix_NGM, bias_NM)
        return states

    def states(self, drive_NBTG: Tensor, matrix_NGM: Tensor, bias_NM: Tensor | None) -> Tensor:
        """``[N, B, T, M]``, a new tensor."""
        states_NBTM = drive_NBTG.new_empty(*drive_NBTG.shape[:3], matrix_NGM.shape[2])
        self._run({"drive": drive_NBTG, "matrix": matrix_NGM, "bias": bias_NM, "found": states_NBTM})
        return states_NBTM

    def gradients(
        self, grad_NBTM: Tensor, drive_NBTG: Tensor, matrix_NGM: Tensor, bias_NM: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Gradients by drive, matrix and bias."""
        of_drive = torch.empty_like(drive_NBTG, memory_format=torch.contiguous_format)
        of_matrix, of_bias = (
            None if weight is None else torch.zeros_like(weight, memory_format=torch.contiguous_format)
            for weight in (matrix_NGM, bias_NM)
        )
        given = {"drive": drive_NBTG, "matrix": matrix_NGM, "bias": bias_NM, "given": grad_NBTM}
        self._run({**given, "found": of_drive, "of_matrix": of_matrix, "of_bias": of_bias})
        return of_drive, of_matrix, of_bias

    def _run(self, named: dict[str, Tensor | None]) -> None:
        drive_NBTG = named["drive"]
        assert drive_NBTG is not None
        tensors = readable(named, drive_NBTG.dtype)
        _, batch, horizon, _ = drive_NBTG.shape
        self.run(
            tensors,
            shares_of_rows(tensors, "models"),
            cells="bias" not in tensors,
            backward="given" in named,
            batch=batch,
            horizon=horizon,
            width=tensors["matrix"].shape[2],
        )


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compiled: CompiledGated, *tensors: Tensor) -> Tensor:
        ctx.compiled = compiled
        ctx.save_for_backward(*tensors)
        return compiled.states(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        return None, *ctx.compiled.gradients(outer[0], *ctx.saved_tensors)
