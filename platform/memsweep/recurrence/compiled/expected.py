"""Says whether compiled code would compute here, without compiling it for a command that trains nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from memsweep.recurrence.compiled import build

if TYPE_CHECKING:
    import torch

_trains_nothing = ContextVar("trains_nothing", default=False)


@contextmanager
def nothing_is_trained() -> Iterator[None]:
    """The body plans and looks: what no kernel of ours computes over time is no reason to compile them."""
    token = _trains_nothing.set(True)
    try:
        yield
    finally:
        _trains_nothing.reset(token)


def is_compiled(dtype: torch.dtype, *, over_time: bool = True) -> bool:
    """Whether compiled code computes numbers of this type here; where that is asked for, it is compiled for it.

    Args:
        dtype: of the numbers.
        over_time: kernels run over the steps of time in every plan. For a module of a user, which has a loop of its own
            or torch's layers, a compiler and a folder for its work are enough while nothing is trained or measured.

    Raises:
        MemsweepError: as ``library``.
    """
    from memsweep.recurrence.compiled.library import library

    return is_put_off(dtype, over_time=over_time) or library(dtype) is not None


def is_put_off(dtype: torch.dtype, *, over_time: bool) -> bool:
    """Whether the kernels are not there yet, could be compiled, and are asked for by training alone."""
    from memsweep.recurrence.compiled.library import _PLAIN, _REALS, KERNELS

    if over_time or not _trains_nothing.get() or os.environ.get(KERNELS) == _PLAIN or dtype not in _REALS:
        return False
    return not build.is_ready(_REALS[dtype])


@contextmanager
def plain_if(put_off: bool) -> Iterator[None]:
    """Processes that start in the body compile nothing, where the kernels are put off."""
    from memsweep.recurrence.compiled.library import _PLAIN, KERNELS

    before = os.environ.get(KERNELS)
    if put_off:
        os.environ[KERNELS] = _PLAIN
    try:
        yield
    finally:
        if put_off:
            os.environ.pop(KERNELS)
        if put_off and before is not None:
            os.environ[KERNELS] = before
