"""Calls of the compiled diagonal recurrence whose coefficients change.

Letters: see memsweep.recurrence.varying.
"""

from __future__ import annotations

import ctypes
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from memsweep.recurrence.compiled.library import library, pointers, run

_NUMBERS = ("backward", "complex", "sequences", "horizon", "width")
_TENSORS = ("slope", "given", "found")


class _Call(ctypes.Structure):
    """The structure ``VaryingCall`` of varying.cpp."""

    _fields_ = (*((name, ctypes.c_int64) for name in _NUMBERS), *((name, ctypes.c_void_p) for name in _TENSORS))


class CompiledVarying:
    """Each sequence by itself: its numbers depend neither on the others nor on the number of threads."""

    def __init__(self, loaded: Any) -> None:
        self._function = loaded.memsweep_varying

    def __call__(self, slope_NBTM: Tensor, given_NBTM: Tensor, backward: bool) -> Tensor:
        """Each step adds to what is given its neighbour, times the slope of the later one, conjugated if backward."""
        found_NBTM = torch.empty_like(given_NBTM, memory_format=torch.contiguous_format)
        named = {"slope": slope_NBTM, "given": given_NBTM, "found": found_NBTM}
        tensors = {name: tensor.detach().resolve_conj().contiguous() for name, tensor in named.items()}
        addresses = pointers(tensors, found_NBTM.dtype)
        leading, batch, horizon, width = found_NBTM.shape
        sequences, size = leading * batch, horizon * width * found_NBTM.element_size()
        threads = max(1, min(torch.get_num_threads(), sequences))
        calls = [
            _Call(
                backward=backward,
                complex=found_NBTM.is_complex(),
                sequences=last - first,
                horizon=horizon,
                width=2 * width if found_NBTM.is_complex() else width,
                **{name: address + first * size for name, address in addresses.items()},
            )
            for first, last in pairwise(part * sequences // threads for part in range(threads + 1))
        ]
        run(self._function, calls)
        return found_NBTM


def compiled_varying(drive: Tensor) -> CompiledVarying | None:
    """The compiled recurrence for such a drive; None where plain torch is to run (raises as ``library``)."""
    found = library(drive.dtype) if drive.device.type == "cpu" else None
    return CompiledVarying(found) if found is not None else None
