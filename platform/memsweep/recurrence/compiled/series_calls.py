"""Calls of the compiled scan: states of a recurrence that is driven unit by unit.

Letters: see memsweep.recurrence.scan.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from memsweep.recurrence.compiled.library import CODES, library, pointers, run

_DIAGONAL, _DENSE, _COMPLEX = range(3)
_NUMBERS = ("backward", "kind", "sigma", "carried", "models", "batch", "horizon", "width")
_TENSORS = ("matrix", "given", "states", "found", "of_matrix")


class _Call(ctypes.Structure):
    """The structure ``SeriesCall`` of kernels.cpp."""

    _fields_ = (*((name, ctypes.c_int64) for name in _NUMBERS), *((name, ctypes.c_void_p) for name in _TENSORS))


class CompiledScan:
    """h_t = leak h_{t-1} + sigma(x_t + A h_{t-1}) and its gradient, with a leak of 0 or 1 (0 where sigma is linear).

    The numbers of one leading index do not depend on the others, nor on the number of threads.
    """

    def __init__(self, loaded: Any) -> None:
        self._function = loaded.memsweep_series

    def states(self, drive_NBTM: Tensor, matrix: Tensor, activation: str, leak: float) -> Tensor:
        """``[N, B, T, M]``, a new tensor."""
        found = torch.empty_like(drive_NBTM, memory_format=torch.contiguous_format)
        self._run({"given": drive_NBTM, "matrix": matrix, "found": found}, activation, leak)
        return found

    def pulled(
        self, grad_NBTM: Tensor, states_NBTM: Tensor, matrix: Tensor, activation: str, leak: float
    ) -> tuple[Tensor, Tensor]:
        """Gradients by the drive and by the matrix; those of complex numbers are conjugated, as torch's are."""
        found = torch.empty_like(grad_NBTM, memory_format=torch.contiguous_format)
        of_matrix = torch.zeros_like(matrix, memory_format=torch.contiguous_format)
        tensors = {"given": grad_NBTM, "states": states_NBTM, "matrix": matrix, "found": found, "of_matrix": of_matrix}
        self._run(tensors, activation, leak)
        return found, of_matrix

    def _run(self, named: dict[str, Tensor], activation: str, leak: float) -> None:
        models, batch, horizon, width = named["given"].shape
        tensors = {name: tensor.detach().resolve_conj().contiguous() for name, tensor in named.items()}
        matrix, is_complex = tensors["matrix"], tensors["matrix"].is_complex()
        addresses = pointers(tensors, tensors["found"].dtype)
        threads = min(torch.get_num_threads(), models)
        calls = []
        for rows in torch.arange(models).tensor_split(threads) if threads else ():
            first = int(rows[0])
            calls.append(
                _Call(
                    backward="states" in named,
                    kind=_DENSE if matrix.ndim == 3 else _COMPLEX if is_complex else _DIAGONAL,
                    sigma=CODES[activation],
                    carried=leak == 1.0,
                    models=len(rows),
                    batch=batch,
                    horizon=horizon,
                    width=2 * width if is_complex else width,
                    **{
                        name: address + first * tensors[name].stride(0) * tensors[name].element_size()
                        for name, address in addresses.items()
                    },
                )
            )
        run(self._function, calls)


def scan_refusal(drive: Tensor, matrix: Tensor, activation: str, leak: float) -> str:
    """Why the compiled code cannot compute this recurrence; empty if it can."""
    if drive.device.type != "cpu":
        return f"the numbers are on {drive.device}"
    if leak not in (0.0, 1.0) or (activation == "linear" and leak):
        return "it wants a leak of 0 or 1 (0 where the recurrence is linear)"
    if drive.is_complex() and matrix.ndim == 3:
        return "it knows no dense complex matrix"
    return ""


def compiled_scan(dtype: torch.dtype) -> CompiledScan | None:
    """The compiled scan for numbers of this type; None where plain torch is to run (raises as ``library``)."""
    found = library(dtype)
    return CompiledScan(found) if found is not None else None
