"""Steps that a module takes out of a sequence one by one: the same numbers, with a gradient that costs as many steps.

A loop over ``x[:, t]`` has, for each t, a gradient of the size of all of x that is zero but at t. T steps take T^2 so.
Here all steps are taken out of x by one operation, whose gradient puts them together once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

_FEW = 3
"""Steps that are taken one by one: of a sequence of which a few are read, the gradient of all would cost more."""


class StepsOnce(TorchFunctionMode):
    """While it is active, steps of a tensor that requires a gradient are taken out of it at once.

    Attributes:
        count: steps that were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._taken: dict[tuple[int, int], _Steps] = {}

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        if func is Tensor.__getitem__ and (step := self._step(*args)) is not None:
            return step
        return func(*args, **(kwargs or {}))

    def _step(self, tensor: Tensor, key: Any) -> Tensor | None:
        place = _place(key)
        if place is None or not tensor.requires_grad or place[0] >= tensor.ndim:
            return None
        dimension, index = place
        steps = self._taken.get((id(tensor), dimension))
        if steps is None or steps.version != tensor._version:
            steps = self._taken[id(tensor), dimension] = _Steps(tensor)
        step = steps.step(dimension, index)
        self.count += step is not None
        return step


class _Steps:
    """The steps of a tensor, which is kept, so that no other one gets its id."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.version = tensor, tensor._version
        self.asked = 0
        self.all: tuple[Tensor, ...] | None = None

    def step(self, dimension: int, index: int) -> Tensor | None:
        """One of them; None where it is to be taken as it is written."""
        size = self.tensor.shape[dimension]
        self.asked += 1
        if self.asked <= _FEW or not -size <= index < size:
            return None
        if self.all is None:
            self.all = self.tensor.unbind(dimension)
        # a view of its own: gradients by one ``x[:, t]`` are summed before those by another, as they are without this
        return self.all[index].view_as(self.all[index])


def _place(key: Any) -> tuple[int, int] | None:
    """The dimension and the index of ``x[t]``, ``x[:, t]`` and ``x[:, t, :]``; None for any other key."""
    keys = key if isinstance(key, tuple) else (key,)
    places = [place for place, each in enumerate(keys) if type(each) is int]
    rest = [each for each in keys if type(each) is not int]
    whole = all(isinstance(each, slice) and each == slice(None) for each in rest)
    return (places[0], keys[places[0]]) if whole and len(places) == 1 else None
