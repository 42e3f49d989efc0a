"""Calls of the compiled gated recurrence.

Letters: see memsweep.recurrence.gated.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from memsweep.recurrence.compiled.library import library, pointers, run

_NUMBERS = ("backward", "models", "batch", "horizon", "width")
_TENSORS = ("matrix", "bias", "drive", "given", "found", "of_matrix", "of_bias")


class _Call(ctypes.Structure):
    """The structure ``GatedCall`` of gated.h."""

    _fields_ = (*((name, ctypes.c_int64) for name in _NUMBERS), *((name, ctypes.c_void_p) for name in _TENSORS))


class CompiledGated:
    """The states and their gradient; backward runs forward once more, and keeps the drive alone until then.

    The numbers of one leading index do not depend on the others, nor on the number of threads.
    """

    def __init__(self, loaded: Any) -> None:
        self._function = loaded.memsweep_gated

    def states(self, drive_NBTG: Tensor, matrix_NGM: Tensor, bias_NM: Tensor) -> Tensor:
        """``[N, B, T, M]``, a new tensor."""
        found_NBTM = drive_NBTG.new_empty(*drive_NBTG.shape[:3], bias_NM.shape[1])
        self._run({"drive": drive_NBTG, "matrix": matrix_NGM, "bias": bias_NM, "found": found_NBTM})
        return found_NBTM

    def pulled(
        self, grad_NBTM: Tensor, drive_NBTG: Tensor, matrix_NGM: Tensor, bias_NM: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients by drive, matrix and bias."""
        found = torch.empty_like(drive_NBTG, memory_format=torch.contiguous_format)
        sums = [torch.zeros_like(weight, memory_format=torch.contiguous_format) for weight in (matrix_NGM, bias_NM)]
        given = {"drive": drive_NBTG, "matrix": matrix_NGM, "bias": bias_NM, "given": grad_NBTM}
        self._run({**given, "found": found, "of_matrix": sums[0], "of_bias": sums[1]})
        return found, sums[0], sums[1]

    def _run(self, named: dict[str, Tensor]) -> None:
        # what is written to is contiguous already, and stays itself
        tensors = {name: tensor.detach().contiguous() for name, tensor in named.items()}
        models, batch, horizon, _ = tensors["drive"].shape
        addresses = pointers(tensors, tensors["drive"].dtype)
        threads = min(torch.get_num_threads(), models)
        calls = []
        for rows in torch.arange(models).tensor_split(threads) if threads else ():
            first = int(rows[0])
            calls.append(
                _Call(
                    backward="given" in named,
                    models=len(rows),
                    batch=batch,
                    horizon=horizon,
                    width=tensors["bias"].shape[1],
                    **{
                        name: address + first * tensors[name].stride(0) * tensors[name].element_size()
                        for name, address in addresses.items()
                    },
                )
            )
        run(self._function, calls)


def compiled_gated(drive: Tensor) -> CompiledGated | None:
    """The compiled recurrence for such a drive; None where plain torch is to run (raises as ``library``)."""
    found = library(drive.dtype) if drive.device.type == "cpu" and not drive.is_complex() else None
    return CompiledGated(found) if found is not None else None
