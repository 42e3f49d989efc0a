"""How much memory a computation takes, counted exactly, and how it grows with the number of its units.

Every storage that an operation creates counts until it is freed. The count depends on the computation alone, so it is
the same on every machine. Memory that an operation takes and frees within itself, such as the workspace of a
decomposition or the state of a compiled kernel, does not appear.

A unit is one copy of the models, or one sequence of a batch. Bytes are counted after every operation on a few units,
and a straight line is drawn through each count: exact where every tensor has at most one dimension that counts units.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_FEW, _MORE = 2, 4
"""Numbers of units that are measured."""
_KEPT = 1000
"""Numbers that are kept."""


class LiveBytes(TorchDispatchMode):
    """Counts, while it is active, the bytes of tensors that were created since; backward passes included.

    Attributes:
        operations: in their order.
        moments: bytes that are held right after each of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Any] = []
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
        new = [storage for storage in _storages(result) if id(storage) not in self._alive]
        older = {id(storage) for storage in _storages((args, kwargs))} if new else set()
        for storage in new:
            if id(storage) not in older and id(storage) not in self._alive:
                self._count(storage)
        self.operations.append(func)
        self.moments.append(self._held)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()

        def subtract(_: Any) -> None:
            self._held -= size
            del self._alive[key]

        self._held += size
        self._alive[key] = weakref.ref(storage, subtract)


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    # torch's own walk through nested values takes as long as the operations of a small model
    if isinstance(values, Tensor):
        yield values.untyped_storage()
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _storages(value)
    elif isinstance(values, Mapping):
        yield from _storages(list(values.values()))


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


def footprint(work: Callable[[int], object], budget: int, one: LiveBytes | None = None) -> Footprint:
    """Measure work on one unit, and on a few where these fit the budget.

    Args:
        work: computes on so many units, gradients included.
        budget: bytes; the measurement itself stays within it if it can.
        one: the count of work on one unit, where it is known.
    """
    peak = (one or live_bytes(lambda: work(1))).peak
    if _MORE * peak > budget:
        return Footprint(np.zeros(1), np.array([float(peak)]))
    few, more = live_bytes(lambda: work(_FEW)), live_bytes(lambda: work(_MORE))
    if few.operations != more.operations:  # no line can be drawn: an upper bound, all bytes as the units' part
        return Footprint(np.zeros(1), np.array([max(few.peak / _FEW, more.peak / _MORE)]))
    low, high = np.array(few.moments, dtype=float), np.array(more.moments, dtype=float)
    each = (high - low) / (_MORE - _FEW)
    return Footprint(low - _FEW * each, each)


_found: dict[tuple[Hashable, int], tuple[int, int]] = {}
"""What is alike and the budget -> the largest count, and the hash of the count on one unit."""


def largest_count(work: Callable[[int], object], budget: int, alike: Hashable = None) -> int:
    """The largest number of units whose peak is within the budget, but at least one.

    Alike work is measured whole once in a process, and after that on one unit: where all operations and bytes are those
    that they were, so is the number. A model whose memory depends on its weights is measured whole again.

    Args:
        work, budget: as of ``footprint``.
        alike: equal for work of equal code and shapes; None for work that is like no other.
    """
    if alike is None:
        return footprint(work, budget).largest_count(budget)
    one = live_bytes(lambda: work(1))
    trace, key = hash((*one.operations, *one.moments)), (alike, budget)
    count, known = _found.get(key, (0, None))
    if known != trace:
        count = footprint(work, budget, one).largest_count(budget)
        if len(_found) >= _KEPT:
            _found.clear()
        _found[key] = count, trace
    return count
