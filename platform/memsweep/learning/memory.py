"""How much memory a computation takes, counted exactly, and how it grows with the number of its units.

Every storage that an operation creates counts until it is freed. The count depends on the computation alone, so it is
the same on every machine. Memory that an operation takes and frees within itself, such as the workspace of a
decomposition or the state of a compiled kernel, does not appear.

A unit is one copy of the models, or one sequence of a batch. Bytes are counted after every operation on a few units,
and a straight line is drawn through each count: exact where every tensor has at most one dimension that counts units.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_FEW, _MORE = 2, 4
"""Numbers of units that are measured."""


class LiveBytes(TorchDispatchMode):
    """Counts, while it is active, the bytes of tensors that were created since; backward passes included.

    Attributes:
        operations: names of the operations, in their order.
        moments: bytes that are held right after each of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []
        self.moments: list[int] = []
        self._held = 0
        self._alive: dict[int, weakref.ref[Any]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would import torch's compiler, which takes a second and is never used here
        return False

    @property
    def peak(self) -> int:
        """The most bytes that were held at a time."""
        return max(self.moments, default=0)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        older = {id(storage) for storage in _storages((args, kwargs))}
        for storage in _storages(result):
            if id(storage) not in older and id(storage) not in self._alive:
                self._count(storage)
        self.operations.append(str(func))
        self.moments.append(self._held)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()

        def subtract(_: Any) -> None:
            self._held -= size
            del self._alive[key]

        self._held += size
        self._alive[key] = weakref.ref(storage, subtract)


def _storages(values: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def live_bytes(work: Callable[[], Any]) -> LiveBytes:
    """Count the bytes that ``work`` holds while it runs."""
    with LiveBytes() as count:
        work()
    return count


@dataclass(frozen=True)
class Footprint:
    """Bytes that work on some units holds after each operation: a fixed part, and a part for each unit.

    Attributes:
        fixed, each: ``[operations]``.
    """

    fixed: np.ndarray
    each: np.ndarray

    def peak(self, units: int) -> int:
        """The most bytes held at a time."""
        return int(np.max(self.fixed + units * self.each, initial=0.0))

    def largest_count(self, budget: int) -> int:
        """The largest number of units whose peak is within the budget, but at least one."""
        growing = self.each > 0
        rooms = (budget - self.fixed[growing]) // self.each[growing]
        return max(1, int(rooms.min(initial=np.inf))) if growing.any() else 1


def footprint(work: Callable[[int], object], budget: int) -> Footprint:
    """Measure work on one unit, and on a few where these fit the budget.

    Args:
        work: computes on so many units, gradients included.
        budget: bytes; the measurement itself stays within it if it can.
    """
    one = live_bytes(lambda: work(1)).peak
    if _MORE * one > budget:
        return Footprint(np.zeros(1), np.array([float(one)]))
    few, more = live_bytes(lambda: work(_FEW)), live_bytes(lambda: work(_MORE))
    if few.operations != more.operations:  # no line can be drawn: an upper bound, all bytes as the units' part
        return Footprint(np.zeros(1), np.array([max(few.peak / _FEW, more.peak / _MORE)]))
    low, high = np.array(few.moments, dtype=float), np.array(more.moments, dtype=float)
    each = (high - low) / (_MORE - _FEW)
    return Footprint(low - _FEW * each, each)
