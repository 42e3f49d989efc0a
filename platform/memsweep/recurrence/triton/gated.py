"""The gated recurrences, GRU and LSTM, on a GPU: states of all steps and their gradient, by Triton kernels.

What is sequential runs in one kernel, a program for each model and each few of its sequences, whose states stay in
registers from step to step. Torch's loop launches a dozen kernels a step. Products over all steps are torch's. Triton
comes with torch's CUDA builds and is imported when it is needed. That the kernels are faster was not measured yet; to
check them: ``pytest tests/recurrence/test_triton_gated.py``, see memsweep.recurrence.triton.layer.

Letters: see memsweep.recurrence.gated.gru.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_ELEMENTS = 512
"""States that one program holds: four for each of the 128 threads of Triton's four warps."""
_WIDEST = 512


def triton_knows(drive_NBTG: Tensor, width: int) -> bool:
    """Whether the kernels compute these numbers: some, on a GPU, with Triton, and not wider than a program holds."""
    there = drive_NBTG.device.type == "cuda" and drive_NBTG.dtype in (torch.float64, torch.float32)
    return there and drive_NBTG.numel() > 0 and width <= _WIDEST and importlib.util.find_spec("triton") is not None


def triton_states(drive_NBTG: Tensor, matrix_NGM: Tensor, recalled_NM: Tensor | None = None) -> Tensor:
    """h of all steps, ``[N, B, T, M]``, differentiable once.

    The states and the gradient by the drive of a model do not depend on the others. Those by its weights are torch's
    sums, whose order depends on the shape.

    Args:
        drive_NBTG: W x + b of all steps.
        matrix_NGM: U of all gates.
        recalled_NM: c of a GRU; None of an LSTM.
    """
    tensors = (drive_NBTG, matrix_NGM, recalled_NM)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        states_NBTM: Tensor = _Gated.apply(*tensors)
        return states_NBTM
    return _forward(*tensors, keep=False)[0]


def _forward(
    drive_NBTG: Tensor, matrix_NGM: Tensor, recalled_NM: Tensor | None, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """States, and gates and what stands beside them (q of a GRU, c of an LSTM), which are empty unless kept."""
    drive, turned = drive_NBTG.detach().contiguous(), matrix_NGM.detach().mT.contiguous()
    states = drive.new_empty(*drive.shape[:3], matrix_NGM.shape[-1])
    gates, beside = (torch.empty_like(tensor) if keep else tensor.new_empty(0) for tensor in (drive, states))
    series = (states, gates, beside, *states.shape[1:3])
    if recalled_NM is None:
        _kernels().lstm_forward[_grid(states)](drive, turned, *series, **_sizes(states), KEEP=keep)
    else:
        recalled = recalled_NM.detach().contiguous()
        _kernels().gru_forward[_grid(states)](drive, turned, recalled, *series, **_sizes(states), KEEP=keep)
    return states, gates, beside


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, drive_NBTG: Tensor, matrix_NGM: Tensor, recalled_NM: Tensor | None) -> Tensor:
        states, gates, beside = _forward(drive_NBTG, matrix_NGM, recalled_NM, keep=True)
        ctx.save_for_backward(matrix_NGM, states, gates, beside)
        ctx.recalls = recalled_NM is not None
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        matrix_NGM, states_NBTM, gates_NBTG, beside_NBTM = ctx.saved_tensors
        given = outer[0].contiguous(), matrix_NGM.detach().contiguous()
        of_sums, width, counts = torch.empty_like(gates_NBTG), states_NBTM.shape[-1], states_NBTM.shape[1:3]
        grid, sizes = _grid(states_NBTM), _sizes(states_NBTM)
        if ctx.recalls:
            of_candidate = torch.empty_like(states_NBTM)
            kept = states_NBTM, gates_NBTG, beside_NBTM
            _kernels().gru_backward[grid](*given, *kept, of_sums, of_candidate, *counts, **sizes)
            of_drive = torch.cat([of_sums[..., : 2 * width], of_candidate], -1)
            of_recalled = of_sums[..., 2 * width :].sum((1, 2))
        else:
            _kernels().lstm_backward[grid](*given, gates_NBTG, beside_NBTM, of_sums, *counts, **sizes)
            of_drive, of_recalled = of_sums, None
        # from step 1 on: the first step has no state before it for U to act on
        of_matrix = of_sums[:, :, 1:].flatten(1, 2).mT @ states_NBTM[:, :, :-1].flatten(1, 2)
        return of_drive, of_matrix, of_recalled


def _sizes(states_NBTM: Tensor) -> dict[str, int]:
    width = int(states_NBTM.shape[-1])
    units = 1 << (width - 1).bit_length()  # a power of two
    return {"WIDTH": width, "UNITS": units, "SEQUENCES": _ELEMENTS // units}


def _grid(states_NBTM: Tensor) -> tuple[int, int]:
    return states_NBTM.shape[0], -(-states_NBTM.shape[1] // _sizes(states_NBTM)["SEQUENCES"])


@functools.cache
def _kernels() -> Any:
    from memsweep.recurrence.triton import gated_kernels

    return gated_kernels
