"""A module in memory in the place of one that a study names: ``in memory:MinGRU``.

The engine makes replicas by calling what a study names. Here a name stands for a module of this process, and each call
gives a copy of it, weights included.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from memsweep.config.load.foreign import foreign_code
from memsweep.errors import ModuleError
from memsweep.models.module.factory import Factory, to_dtype
from memsweep.models.module.in_memory import drop, put
from memsweep.models.module.model import Module
from memsweep.models.roles import Signature


def copies_of(module: object, verb: str = "measure") -> Callable[[], nn.Module]:
    """Gives a copy of a module at every call; one was made already. ``verb`` is the command for what a file holds.

    Raises:
        ModuleError: it is no ``nn.Module``, or cannot be copied.
    """
    if not isinstance(module, nn.Module):
        run = f" Or run: memsweep {verb} {module}" if isinstance(module, str) and ":" in module else ""
        raise ModuleError(
            f"a torch.nn.Module is expected, got {type(module).__name__}. Give the module, such as Net(width=16), or "
            f"its class.{run}"
        )
    own: nn.Module = module.module if isinstance(module, Module) else module
    name = name_of(own)

    def copied() -> nn.Module:
        with foreign_code(
            lambda error: (
                f"{name} cannot be copied (copy.deepcopy): {error}. Its tensors must be parameters "
                "and buffers, not results of a computation with gradients."
            )
        ):
            return copy.deepcopy(own)

    copied()
    return copied


def built(
    make: Callable[..., nn.Module], signature: Signature, width: int | None, arguments: Mapping[str, Any] | None = None
) -> nn.Module:
    """A module of a class or function, of seed 0.

    Raises:
        ModuleError: see ``Factory.build``.
    """
    name = str(getattr(make, "__name__", type(make).__name__))
    return Factory(name, make, str(getattr(make, "__module__", "")), None, own=True).build(signature, width, arguments)


def name_of(module: nn.Module) -> str:
    """The name of its class."""
    return type(module.module if isinstance(module, Module) else module).__name__


@contextmanager
def named(module: nn.Module) -> Iterator[str]:
    """A name under which the engine finds the module while the context lasts.

    Raises:
        ModuleError: as of ``copies_of``.
    """
    copies, name = [copies_of(module)], name_of(module)

    def make() -> nn.Module:
        made = copies[0]()
        to_dtype(made, torch.get_default_dtype(), "cpu")  # as a script makes it; a file has the weights in full
        return made

    target = put(name, make)
    try:
        yield target
    finally:
        copies.clear()  # what is remembered of the module (its roles) does not keep its weights
        drop(target)
