"""Tables that are read by position: whether their rows end, or begin again, inside of the horizon."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from memsweep.checks.finding import Finding, finding
from memsweep.checks.part import Check
from memsweep.checks.subject import Subject, first
from memsweep.models.contracts import default_dtype
from memsweep.models.training_mode import tensors_of

_READS = {"embedding": (0, 1), "index_select": (0, 2), "index": (0, 1)}
"""Operation -> places of its table and of its indices."""
_FEWEST = 3
"""Positions that are read before the last row is read again."""


class _Rows(TorchDispatchMode):
    """While it is active, the indices are kept by which tables are read, by the shape of the table."""

    def __init__(self, module: nn.Module, length: int) -> None:
        super().__init__()
        self.length = length
        self.tables = {each.untyped_storage().data_ptr() for each in tensors_of(module).values()}
        self.read: list[tuple[list[int], Tensor]] = []
        self.single: dict[int, tuple[list[int], list[int]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in _READS:
            table, indices = (args[place] for place in _READS[name])
            if isinstance(indices, list | tuple):
                indices = next((each for each in indices if each is not None), None)
            if isinstance(indices, Tensor) and indices.dtype in (torch.int64, torch.int32) and self._is_table(table):
                self.read.append((list(table.shape), indices))
        elif name == "select" and args[1] == 0 and args[0].ndim == 2 and self._is_table(args[0]):
            self.single.setdefault(args[0].data_ptr(), (list(args[0].shape), []))[1].append(int(args[2]))
        return func(*args, **(kwargs or {}))

    def _is_table(self, tensor: Tensor) -> bool:
        """It is a weight or a buffer, or a part of one."""
        return tensor.untyped_storage().data_ptr() in self.tables

    def positions(self) -> list[tuple[list[int], list[int]]]:
        """Shape of a table, and the rows that are read, step by step, where a row is read for each step."""
        found = [(shape, rows) for shape, rows in self.single.values() if len(rows) == self.length]
        for shape, indices in self.read:
            if self.length in indices.shape and list(indices.shape).count(self.length) == 1:
                along = indices.movedim(list(indices.shape).index(self.length), 0).reshape(self.length, -1)
                if bool((along == along[:, :1]).all()):
                    found.append((shape, along[:, 0].tolist()))
        return found


def tables(subject: Subject, seconds: float) -> Finding:
    """Whether two steps inside of the horizon get the same row of a table of positions."""
    dtype, length = subject.reference, subject.horizon
    rows = _Rows(subject.at(dtype), length)
    with torch.no_grad(), default_dtype(dtype), rows:
        first(subject.at(dtype)(subject.cast(subject.zeros(1, length), dtype)))
    faults, looked = [], 0
    for shape, read in rows.positions():
        if not _are_positions(read):
            continue
        looked += 1
        last = _distinct(read)
        if last < length:
            how = "the last row again" if read[last] == read[last - 1] else "its rows again from the first on"
            faults.append(
                f"A table of positions {shape} ends at step {last} of {length}: later steps read {how}. "
                "Make the table as long as the longest sequence."
            )
    well = (
        f"{looked} tables are read by position, and none ends before step {length}."
        if looked
        else (f"No table is read by position over {length} steps.")
    )
    return finding("tables", well, {"tables": looked, "length": length}, faults=list(dict.fromkeys(faults))[:3])


def _distinct(read: list[int]) -> int:
    """Steps before the first one that reads a row that was read before."""
    seen = set[int]()
    for step, row in enumerate(read):
        if row in seen:
            return step
        seen.add(row)
    return len(read)


def _are_positions(read: list[int]) -> bool:
    """Rows go up (or down) by one from step to step, from the first on."""
    start = read[: _distinct(read)]
    moves = {after - before for before, after in itertools.pairwise(start)}
    return len(start) >= _FEWEST and moves in ({1}, {-1})


CHECK = Check("tables", tables, place=45, share=0.03)
