"""Calls of the compiled recurrence with gains.

Letters: see memsweep.recurrence.gained.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from memsweep.recurrence.activations import CODES
from memsweep.recurrence.cell import MODRELU, Cell, CellGradients
from memsweep.recurrence.compiled.library import Kernel, readable

_CODES = CODES | {MODRELU: len(CODES)}
_PLAIN, _FACTOR, _EXPONENTIAL = range(3)
_FORWARD, _BACKWARD, _PRODUCTS = range(3)


class CompiledGained(Kernel):
    """See ``memsweep.recurrence.gained.Implementation``.

    Every sequence of a model is computed by itself, and every row of its matrix's gradient: no number depends on other
    models or on threads.
    """

    function = "gained"  # GainedCall of gained.cpp
    numbers = ("work", "sigma", "kind", "batch", "horizon", "width", "model", "models", "first", "last")
    tensors = (
        *("matrix", "threshold", "gains", "before", "given", "inner", "found"),
        *("of_threshold", "of_gains", "of_before"),
    )

    def states(
        self, drive_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, before_NBM: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        states_NBTM = torch.empty_like(drive_NBTM, memory_format=torch.contiguous_format)
        inner_NBTM = torch.empty_like(states_NBTM) if keep else None
        given = {"given": drive_NBTM, "matrix": matrix_NMM, "before": before_NBM}
        self._run(_FORWARD, cell, {**given, "inner": inner_NBTM, "found": states_NBTM})
        return states_NBTM, inner_NBTM

    def gradients(
        self, grad_NBTM: Tensor, inner_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, required: frozenset[str]
    ) -> CellGradients:
        leading, batch, horizon, width = grad_NBTM.shape
        of_drive = torch.empty_like(grad_NBTM, memory_format=torch.contiguous_format)
        # one sum per sequence, so that threads never add to the same number
        sizes = {"threshold": width, "gains": horizon, "before": width}
        sums = {name: of_drive.new_empty(leading, batch, size) for name, size in sizes.items() if name in required}
        given = {"given": grad_NBTM, "matrix": matrix_NMM, "inner": inner_NBTM, "found": of_drive}
        self._run(_BACKWARD, cell, {**given, **{f"of_{name}": tensor for name, tensor in sums.items()}})
        return CellGradients(
            of_drive,
            sums["threshold"].sum(1) if "threshold" in sums else None,
            sums["gains"].sum(1) if "gains" in sums else None,
            sums.get("before"),
        )

    def products(self, errors_NBTM: Tensor, states_NBTM: Tensor, before_NBM: Tensor | None) -> Tensor:
        leading, _, _, width = errors_NBTM.shape
        products_NMM = errors_NBTM.new_zeros(leading, width, width)
        named = {"given": errors_NBTM, "inner": states_NBTM, "before": before_NBM, "found": products_NMM}
        self._run(_PRODUCTS, Cell("linear"), named)
        return products_NMM

    def _run(self, work: int, cell: Cell, named: dict[str, Tensor | None]) -> None:
        given = named["given"]
        assert given is not None
        tensors = readable({**named, "threshold": cell.threshold, "gains": cell.gains}, given.dtype)
        models, batch, horizon, width = given.shape
        self.run(
            tensors,
            _shares(models, width if work == _PRODUCTS else batch),
            work=work,
            sigma=_CODES[cell.activation],
            kind=_PLAIN if cell.gains is None else _EXPONENTIAL if cell.exponential else _FACTOR,
            batch=batch,
            horizon=horizon,
            width=width,
        )


def _shares(models: int, rows: int) -> list[dict[str, int]]:
    """Divides the work among torch's threads: a range of models, and a range of rows of each of them."""
    threads = max(1, torch.get_num_threads())
    if threads <= models:
        edges = [part * models // threads for part in range(threads + 1)]
        return [{"model": model, "models": end, "first": 0, "last": rows} for model, end in pairwise(edges)]
    parts = max(1, min(-(-threads // max(1, models)), rows))
    edges = [part * rows // parts for part in range(parts + 1)]
    return [
        {"model": model, "models": model + 1, "first": first, "last": last}
        for model in range(models)
        for first, last in pairwise(edges)
    ]
