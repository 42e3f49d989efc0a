"""Looks at every tensor that a module computes: its precision, its size, and the first that is not finite."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NARROW = (torch.float16, torch.bfloat16)
_LIBRARY = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parent)
_MASKS = (
    "fill",
    "full",
    "where",
    "triu",
    "tril",
    "scalar_tensor",
    "lift_fresh",
    "_to_copy",
    "clone",
    "copy_",
    "expand",
)
"""Operations that put infinities where somebody wants them, such as the mask of attention, or only hand them on."""


@dataclass(frozen=True)
class Place:
    """Where a tensor was computed.

    Attributes:
        operation: torch's name of it.
        module: path of the submodule, empty for the module itself.
        line: ``file:line: source`` of the code outside of torch; empty where there is none.
        step: index of the tensor's first value that is not finite, along its dimension of time; -1: it has none.
    """

    operation: str
    module: str
    line: str
    step: int = -1

    def __str__(self) -> str:
        inside = f" in {self.module}" if self.module else ""
        return f"{self.operation}{inside}" + (f" ({self.line})" if self.line else "")


class Trace(TorchDispatchMode):
    """While it is active, every operation of torch is looked at.

    Attributes:
        narrow: the first operation with a result in half precision.
        single: the first operation with a result in float32.
        infinite, undefined: the first operation that made an infinity, or a NaN, from finite numbers.
        largest: values of the largest tensor.
    """

    def __init__(self, module: nn.Module, length: int, *, values: bool = False) -> None:
        """Looks at the values of tensors too where ``values`` is true, which takes time."""
        super().__init__()
        self.narrow: Place | None = None
        self.single: Place | None = None
        self.infinite: Place | None = None
        self.undefined: Place | None = None
        self.largest = 0
        self._module, self._length, self._values = module, length, values
        self._inside: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        finite = not self._values or self.undefined is not None or _all_finite((args, kwargs))
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
                if tensor.dtype in NARROW and self.narrow is None:
                    self.narrow = self._place(func)
                if tensor.dtype == torch.float32 and self.single is None:
                    self.single = self._place(func)
                if self._values and _has_fractions(tensor) and self.undefined is None:
                    self._look(func, tensor, finite)
        return result

    def _look(self, func: Any, tensor: Tensor, finite: bool) -> None:
        name = func.overloadpacket.__name__
        if any(word in name for word in _MASKS) or bool(torch.isfinite(tensor).all()):
            return
        if bool(torch.isnan(tensor).any()):
            self.undefined = self._place(func, tensor)
        elif finite and self.infinite is None:
            self.infinite = self._place(func, tensor)

    def _place(self, func: Any, tensor: Tensor | None = None) -> Place:
        step = -1
        if tensor is not None and self._length > 1 and self._length in tensor.shape:
            bad = ~torch.isfinite(tensor.movedim(tensor.shape.index(self._length), 0)).flatten(1).all(1)
            step = int(bad.nonzero()[0])
        return Place(func.overloadpacket.__name__, self._inside[-1] if self._inside else "", _line(), step)

    @contextmanager
    def watching(self) -> Iterator[Trace]:
        """Active inside of the block, with the names of the submodules."""
        hooks = []
        for name, part in self._module.named_modules():
            if name:
                hooks.append(part.register_forward_pre_hook(lambda _m, _a, name=name: self._inside.append(name)))
                hooks.append(part.register_forward_hook(lambda _m, _a, _r: self._inside.pop() and None))
        try:
            with self:
                yield self
        finally:
            for hook in hooks:
                hook.remove()


def _all_finite(values: Any) -> bool:
    tensors = (value for value in tree_leaves(values) if isinstance(value, Tensor) and _has_fractions(value))
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def _has_fractions(tensor: Tensor) -> bool:
    """Whether a tensor holds real or complex numbers, which may be infinite."""
    return tensor.is_floating_point() or tensor.is_complex()


def _line() -> str:
    """The innermost line of code that is neither torch's nor this room's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_LIBRARY, _OWN)) and not file.startswith("<"):
            source = linecache.getline(file, frame.f_lineno).strip()
            return f"{Path(file).name}:{frame.f_lineno}: {source}"
        frame = frame.f_back
    return ""
