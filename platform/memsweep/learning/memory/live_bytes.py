"""How many bytes of tensors a computation holds at every moment, counted exactly.

Every storage that an operation brings forth counts from then on until it is freed. The count is the same on every
machine: it depends on what is computed, and on nothing else. What an operation takes and gives back within itself,
such as the workspace of a decomposition or the state of a compiled kernel, does not appear.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts, while it is active, the bytes of tensors that were made since; backward passes included.

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
        # the compiler that this would tell to stay away is never used here, and takes a second to import
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

        def freed(_: Any) -> None:
            self._held -= size
            del self._alive[key]

        self._held += size
        self._alive[key] = weakref.ref(storage, freed)


def _storages(values: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def live_bytes(work: Callable[[], Any]) -> LiveBytes:
    """What ``work`` holds while it runs."""
    with LiveBytes() as count:
        work()
    return count
