"""Calls of the compiled recurrence with gains.

Letters: see memsweep.recurrence.gained.scan.
"""

from __future__ import annotations

import ctypes
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from memsweep.recurrence.compiled.library import CODES, library, pointers, run
from memsweep.recurrence.gained.step import MODRELU, Cell, Pulled

_CODES = CODES | {MODRELU: len(CODES)}
_PLAIN, _FACTOR, _EXPONENTIAL = range(3)
_FORWARD, _BACKWARD, _PRODUCTS = range(3)
_NUMBERS = ("work", "sigma", "kind", "batch", "horizon", "width", "model", "models", "first", "last")
_TENSORS = (
    *("matrix", "threshold", "gains", "before", "given", "inner", "found"),
    *("of_threshold", "of_gains", "of_before"),
)


class _Call(ctypes.Structure):
    """The structure ``GainedCall`` of gained.h."""

    _fields_ = (*((name, ctypes.c_int64) for name in _NUMBERS), *((name, ctypes.c_void_p) for name in _TENSORS))


class CompiledGained:
    """See ``memsweep.recurrence.gained.scan.Implementation``.

    Every sequence of a model is computed by itself, and every row of its matrix's gradient: no number depends on other
    models or on threads.
    """

    def __init__(self, loaded: Any) -> None:
        self._function = loaded.memsweep_gained

    def states(
        self, drive_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, before_NBM: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        found = torch.empty_like(drive_NBTM, memory_format=torch.contiguous_format)
        inner = torch.empty_like(found) if keep else None
        self._run(
            {"given": drive_NBTM, "matrix": matrix_NMM, "before": before_NBM, "inner": inner, "found": found}, cell
        )
        return found, inner

    def pulled(
        self, grad_NBTM: Tensor, inner_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, wanted: frozenset[str]
    ) -> Pulled:
        leading, batch, horizon, width = grad_NBTM.shape
        found = torch.empty_like(grad_NBTM, memory_format=torch.contiguous_format)
        sizes = {"threshold": width, "gains": horizon, "before": width}
        sums = {name: found.new_empty(leading, batch, size) for name, size in sizes.items() if name in wanted}
        named = {f"of_{name}": tensor for name, tensor in sums.items()}
        self._run(
            {"given": grad_NBTM, "matrix": matrix_NMM, "inner": inner_NBTM, "found": found, **named}, cell, _BACKWARD
        )
        return Pulled(
            found,
            sums["threshold"].sum(1) if "threshold" in sums else None,
            sums["gains"].sum(1) if "gains" in sums else None,
            sums.get("before"),
        )

    def products(self, errors_NBTM: Tensor, states_NBTM: Tensor, before_NBM: Tensor | None) -> Tensor:
        leading, _, _, width = errors_NBTM.shape
        found_NMM = errors_NBTM.new_zeros(leading, width, width)
        named = {"given": errors_NBTM, "inner": states_NBTM, "before": before_NBM, "found": found_NMM}
        self._run(named, Cell("linear"), _PRODUCTS)
        return found_NMM

    def _run(self, named: dict[str, Tensor | None], cell: Cell, work: int = _FORWARD) -> None:
        given = {**named, "threshold": cell.threshold, "gains": cell.gains}
        # what is written to is contiguous already, and stays itself
        tensors = {name: tensor.detach().contiguous() for name, tensor in given.items() if tensor is not None}
        models, batch, horizon, width = tensors["given"].shape
        call = _Call(
            work=work,
            sigma=_CODES[cell.activation],
            kind=_PLAIN if cell.gains is None else _EXPONENTIAL if cell.exponential else _FACTOR,
            batch=batch,
            horizon=horizon,
            width=width,
            **pointers(tensors, tensors["given"].dtype),
        )
        shares = _shares(models, width if work == _PRODUCTS else batch)
        run(self._function, [_of(call, *share) for share in shares])


def _shares(models: int, rows: int) -> list[tuple[int, int, int, int]]:
    """The work dealt out to torch's threads: from which to which model, and from which to which row of each of them."""
    threads = max(1, torch.get_num_threads())
    if threads <= models:
        edges = [part * models // threads for part in range(threads + 1)]
        return [(*pair, 0, rows) for pair in pairwise(edges)]
    parts = max(1, min(-(-threads // max(1, models)), rows))
    edges = [part * rows // parts for part in range(parts + 1)]
    return [(model, model + 1, *pair) for model in range(models) for pair in pairwise(edges)]


def _of(call: _Call, model: int, models: int, first: int, last: int) -> _Call:
    own = _Call.from_buffer_copy(call)
    own.model, own.models, own.first, own.last = model, models, first, last
    return own


def compiled_gained(dtype: torch.dtype) -> CompiledGained | None:
    """The compiled recurrence for numbers of this type; None where plain torch is to run (raises as ``library``)."""
    found = library(dtype)
    return CompiledGained(found) if found is not None else None
