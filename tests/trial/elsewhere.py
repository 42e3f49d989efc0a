"""A device that torch has no code for, with numbers: tensors that say that they lie there, and are computed here."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

SOMEWHERE = "lazy:0"
"""A device that torch knows by name, and may mix with no other."""


class Elsewhere(Tensor):
    """A tensor of that device: its numbers are a tensor of the processor."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Elsewhere:
        made = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            device=SOMEWHERE,
        )  # fmt: skip
        made.held = held.resolve_conj().resolve_neg()  # the wrapper knows of no conjugates that are put off
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class Watch(TorchDispatchMode):
    """Sends what is made there, and copied there, to the disguised tensors."""

    def __enter__(self) -> Any:
        # torch.tensor makes its numbers here and sends them there, where a mode sees it
        self.before = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        self.tolist = Tensor.tolist  # torch's own takes no subclass
        Tensor.tolist = lambda tensor: self.tolist(getattr(tensor, "held", tensor))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch._C._set_only_lift_cpu_tensors(self.before)
        Tensor.tolist = self.tolist

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operation on the processor; refused where a tensor with axes lies there and another one here."""
    given = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
    there = [each for each in given if isinstance(each, Elsewhere)]
    here = [each for each in given if not isinstance(each, Elsewhere) and each.ndim]
    copies = func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
    if there and here and not copies:
        raise RuntimeError(
            f"{func}: tensors of two devices, {SOMEWHERE} and cpu, shapes {[tuple(e.shape) for e in given]}"
        )
    asked = kwargs.get("device")
    makes_there = bool(there) if asked is None else torch.device(asked).type == torch.device(SOMEWHERE).type
    plain_args, plain = tree_map(lambda each: each.held if isinstance(each, Elsewhere) else each, (args, kwargs))
    if asked is not None:
        plain["device"] = torch.device("cpu")
    found = func(*plain_args, **plain)
    if func is torch.ops.aten.copy_.default:
        return args[0]
    if not makes_there:
        return found
    wrapped = tree_map(
        lambda each: Elsewhere(each) if isinstance(each, Tensor) and not isinstance(each, Elsewhere) else each, found
    )
    return return_and_correct_aliasing(func, args, kwargs, wrapped) if there else wrapped
