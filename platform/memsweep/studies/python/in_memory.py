"""A module in memory in the place of one that a study names: ``in memory:MinGRU``.

The engine makes replicas by calling what a study names. Here a name stands for a module of this process, and each call
gives a copy of it, weights included.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch import nn

from memsweep.config.load.foreign import foreign_code
from memsweep.errors import ModuleError
from memsweep.models.module.anatomy import to_dtype
from memsweep.models.module.model import Module

_PLACE = "in memory"  # no file and no package can have this name


def copies_of(module: object) -> Callable[[], nn.Module]:
    """Gives a copy of a module at every call; one was made already.

    Raises:
        ModuleError: it is no ``nn.Module``, or cannot be copied.
    """
    if not isinstance(module, nn.Module):
        what = f"the class {module.__name__}: call it first" if isinstance(module, type) else type(module).__name__
        raise ModuleError(f"a torch.nn.Module is expected, got {what}. Give the module itself, such as Net(width=16).")
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

    before, place = sys.modules.get(_PLACE), ModuleType(_PLACE)
    place.__spec__ = ModuleSpec(_PLACE, None)
    setattr(place, name, make)
    sys.modules[_PLACE] = place
    try:
        yield f"{_PLACE}:{name}"
    finally:
        copies.clear()  # what is remembered of the module (its roles) does not keep its weights
        _restore(before)


def _restore(before: Any) -> None:
    if before is None:
        sys.modules.pop(_PLACE, None)
    else:
        sys.modules[_PLACE] = before
