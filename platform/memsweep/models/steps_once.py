"""Steps that a module takes out of a sequence one by one: the same numbers, with a gradient that costs as many steps.

A loop over ``x[:, t]`` has, for each t, a gradient of the size of all of x that is zero but at t. T steps take T^2 so.
Here all steps are taken out of x by one operation, whose gradient puts them together once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

_FEW = 3
"""Steps that are taken one by one: of a sequence of which a few are read, the gradient of all would cost more."""


@dataclass
class _Steps:
    """The steps of a tensor, which is kept, so that no other one gets its id."""

    tensor: Tensor
    version: int
    asked: int = 0
    all: tuple[Tensor, ...] = ()


class StepsOnce(TorchFunctionMode):
    """While it is active, steps of a tensor that requires a gradient are taken out of it at once.

    Args:
        watched: whether to see which tensors are used otherwise, too, as ``is_mixed`` needs it; they are held.

    Attributes:
        count: steps that were.
    """

    def __init__(self, *, watched: bool = False) -> None:
        super().__init__()
        self.count = 0
        self._taken: dict[tuple[int, int], _Steps] = {}
        self._used: dict[int, Tensor] | None = {} if watched else None

    @property
    def is_mixed(self) -> bool:
        """Whether a tensor whose steps were taken is used as a whole, too: its gradients have another order of sums."""
        assert self._used is not None, "please report this: nobody watched"
        return any(steps.all and place in self._used for (place, _), steps in self._taken.items())

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        is_step = func is Tensor.__getitem__ and _place(args[1])[0] >= 0
        step = self._step(*args) if is_step else None
        answer = func(*args, **(kwargs or {})) if step is None else step
        if self._used is not None and not is_step and isinstance(answer, Tensor | tuple | list):
            given = tree_leaves((args, kwargs))
            self._used |= {id(each): each for each in given if isinstance(each, Tensor) and each.requires_grad}
        return answer

    def _step(self, tensor: Tensor, key: Any) -> Tensor | None:
        """One of the steps; None where it is to be taken as it is written."""
        dimension, index = _place(key)
        if not tensor.requires_grad or not torch.is_grad_enabled() or not 0 <= dimension < tensor.ndim:
            return None
        steps = self._taken.get((id(tensor), dimension))
        if steps is None or steps.version != tensor._version:
            steps = self._taken[id(tensor), dimension] = _Steps(tensor, tensor._version)
        steps.asked += 1
        size = tensor.shape[dimension]
        if steps.asked <= _FEW or not -size <= index < size:
            return None
        steps.all = steps.all or tensor.unbind(dimension)
        self.count += 1
        # a view of its own: gradients by one ``x[:, t]`` are summed before those by another, as they are without this
        return steps.all[index][...]


_GRADIENT = (Tensor.requires_grad.__get__, Tensor.register_hook, Tensor.retain_grad)  # type: ignore[attr-defined]
"""The calls of code that looks at gradients."""


class StepsOfCopies(StepsOnce):
    """The same within vmap, where no tensor says that it requires a gradient, and none can have a hook.

    Raises:
        RuntimeError: the code asks whether one does, or wants to see its gradient.
    """

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _GRADIENT:
            raise RuntimeError("code that looks at gradients has none within vmap")
        return super().__torch_function__(func, types, args, kwargs)

    def _step(self, tensor: Tensor, key: Any) -> Tensor | None:
        dimension, index = _place(key)
        if not torch.is_grad_enabled() or not 0 <= dimension < tensor.ndim:
            return None
        steps = self._taken.get((id(tensor), dimension))
        if steps is None or steps.version != tensor._version:
            steps = self._taken[id(tensor), dimension] = _Steps(tensor, tensor._version)
        steps.asked += 1
        size = tensor.shape[dimension]
        if steps.asked <= _FEW or not -size <= index < size:
            return None
        steps.all = steps.all or tensor.unbind(dimension)
        return steps.all[index][...]


def _place(key: Any) -> tuple[int, int]:
    """The dimension and the index of ``x[t]``, ``x[:, t]`` and ``x[:, t, :]``; a dimension of -1 for any other key."""
    keys = key if isinstance(key, tuple) else (key,)
    places = [place for place, each in enumerate(keys) if type(each) is int]
    whole = all(type(each) is int or (isinstance(each, slice) and each == slice(None)) for each in keys)
    return (places[0], keys[places[0]]) if whole and len(places) == 1 else (-1, 0)
