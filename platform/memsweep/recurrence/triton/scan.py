"""The scan on a GPU: states of a recurrence that is driven unit by unit, by Triton kernels.

What is sequential in a recurrence runs in one kernel, a program for each model and each few of its sequences, whose
states stay in registers from step to step; everything else is large products, which torch does. Triton comes with
torch's CUDA builds and is imported when it is needed.

Letters: see memsweep.recurrence.scan; J another unit, E elements of a program.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import torch
from torch import Tensor

from memsweep.recurrence.activations import CODES

_ELEMENTS = 1024
"""States that one program holds: eight for each of the 128 threads of Triton's four warps."""
_WIDEST = 1024


class TritonScan:
    """h_t = leak h_{t-1} + sigma(x_t + A h_{t-1}) and its gradient on a GPU, with a leak of 0 or 1.

    Prefer it wherever the tensors are on a GPU. A program computes one model: the states and the gradient by the drive
    of a leading index do not depend on the others. The gradient by the matrix is torch's sum over sequences and steps,
    whose order depends on the shape: a model alone may differ by rounding, so that packs have fixed shapes. No sum is
    taken in an order that chance decides.
    """

    def states(self, drive_NBTM: Tensor, matrix: Tensor, activation: str, leak: float) -> Tensor:
        """``[N, B, T, M]``, a new tensor."""
        drive, matrix = drive_NBTM.detach().resolve_conj().contiguous(), matrix.detach().resolve_conj().contiguous()
        out = torch.empty_like(drive)
        kernels, kind = _kernels(), _kind(matrix)
        arguments = (_real(drive), _real(matrix), _real(out), *drive.shape[1:])
        if kind == "complex":
            kernels.complex_states[_grid(drive)](*arguments, **_sizes(drive))
        else:
            kernels.states[_grid(drive)](*arguments, **_sizes(drive), **_constants(kind, activation, leak))
        return out

    def gradients(
        self, grad_NBTM: Tensor, states_NBTM: Tensor, matrix: Tensor, activation: str, leak: float
    ) -> tuple[Tensor, Tensor]:
        """Gradients by the drive and by the matrix; those of complex numbers are conjugated, as torch's are."""
        grad, states = grad_NBTM.detach().resolve_conj().contiguous(), states_NBTM.detach().contiguous()
        kernels, kind = _kernels(), _kind(matrix)
        # a step back multiplies by the adjoint: a transposed matrix, or conjugated eigenvalues
        back = (matrix.detach().mT if kind == "dense" else matrix.detach().conj().resolve_conj()).contiguous()
        out = torch.empty_like(grad)
        arguments = (_real(grad), _real(states), _real(back), _real(out), *grad.shape[1:])
        if kind == "complex":
            kernels.complex_errors[_grid(grad)](*arguments, **_sizes(grad))
        else:
            kernels.errors[_grid(grad)](*arguments, **_sizes(grad), **_constants(kind, activation, leak))
        errors, before = out[:, :, 1:], states[:, :, :-1]
        if kind == "dense":
            return out, errors.flatten(1, 2).mT @ before.flatten(1, 2)
        return out, (errors * before.conj()).sum((1, 2))


def triton_knows(drive: Tensor) -> bool:
    """Whether there is Triton, and a program holds so many units."""
    return drive.shape[-1] <= _WIDEST and importlib.util.find_spec("triton") is not None


def _kind(matrix: Tensor) -> str:
    return "dense" if matrix.ndim == 3 else "complex" if matrix.is_complex() else "diagonal"


def _real(values: Tensor) -> Tensor:
    return torch.view_as_real(values) if values.is_complex() else values


def _units(series_NBTM: Tensor) -> int:
    """Padded width: a power of two."""
    return max(1, 1 << (int(series_NBTM.shape[-1]) - 1).bit_length())


def _sizes(series_NBTM: Tensor) -> dict[str, int]:
    units = _units(series_NBTM)
    return {"UNITS": units, "SEQUENCES": max(1, _ELEMENTS // units)}


def _grid(series_NBTM: Tensor) -> tuple[int, int]:
    models, batch, _, _ = series_NBTM.shape
    return models, -(-batch // _sizes(series_NBTM)["SEQUENCES"])


def _constants(kind: str, activation: str, leak: float) -> dict[str, Any]:
    return {"DENSE": kind == "dense", "SIGMA": CODES[activation], "CARRIED": leak == 1.0}


@functools.cache
def _kernels() -> Any:
    from memsweep.recurrence.triton import scan_kernels

    return scan_kernels
