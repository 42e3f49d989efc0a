"""The compiled library in this process: whether it is wanted, whether it is there, and its functions."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from memsweep.errors import MemsweepError
from memsweep.recurrence.compiled.build import CannotBuildError, library_path

KERNELS = "MEMSWEEP_KERNELS"
"""Environment variable: ``auto`` (compiled where possible, the default), ``compiled`` (or an error), ``plain``."""
_AUTO, _COMPILED, _PLAIN = "auto", "compiled", "plain"
_REALS = {
    torch.float64: "double",
    torch.complex128: "double",
    torch.float32: "float",
    torch.complex64: "float",
}
CODES = {"linear": 0, "hardtanh": 1, "tanh": 2, "relu": 3}
"""Activations as the library numbers them."""
_log = logging.getLogger("memsweep")


def library(dtype: torch.dtype) -> Any:
    """The library for numbers of this type; None where plain torch is to run.

    Raises:
        MemsweepError: the environment asks for what is not there, or says something unknown.
    """
    wish = os.environ.get(KERNELS, "") or _AUTO
    if wish not in (_AUTO, _COMPILED, _PLAIN):
        raise MemsweepError(f"{KERNELS} is {wish!r}; allowed: {_AUTO}, {_COMPILED}, {_PLAIN}.")
    if wish == _PLAIN or dtype not in _REALS:
        return None
    found = loaded(_REALS[dtype])
    if not isinstance(found, CannotBuildError):
        return found
    if wish == _COMPILED:
        raise found
    tell(str(found))
    return None


@functools.cache
def loaded(real: str) -> Any:
    """The library, or the error that says why there is none; once for each type of numbers."""
    try:
        found = ctypes.CDLL(str(library_path(real)))
    except CannotBuildError as error:
        return error
    except OSError as error:
        return CannotBuildError(f"the compiled recurrences cannot be loaded: {error}")
    for name in ("layer", "series", "gained", "gated", "varying"):
        function = getattr(found, f"memsweep_{name}")
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_int
    return found


@functools.cache
def tell(reason: str) -> None:
    """Say once that the slow path runs, and why."""
    _log.warning("nonlinear recurrences run as torch loops over time, five to thirty times slower: %s", reason)


def pointers(tensors: dict[str, Tensor], dtype: torch.dtype) -> dict[str, int]:
    """Addresses of contiguous tensors of one type of numbers, on this processor.

    Raises:
        ValueError: one of them is something else.
    """
    for name, tensor in tensors.items():
        if tensor.dtype != dtype or tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise ValueError(f"{name} must be {dtype}, contiguous, on cpu; it is {tensor.dtype} on {tensor.device}")
    return {name: tensor.data_ptr() for name, tensor in tensors.items()}


def run(function: Callable[[Any], int], calls: Sequence[ctypes.Structure]) -> None:
    """Make these calls at the same time, each in a thread: the library lets go of Python's lock.

    Raises:
        MemoryError: there is none for the states of a block of sequences.
        ValueError: the library does not know such a recurrence.
    """
    if len(calls) == 1:
        statuses = [function(ctypes.byref(calls[0]))]
    else:
        with ThreadPoolExecutor(max(1, len(calls))) as pool:
            statuses = list(pool.map(lambda call: function(ctypes.byref(call)), calls))
    if 2 in statuses:
        raise MemoryError("there is no memory for the states of one block of sequences")
    if any(statuses):
        raise ValueError("please report this: the compiled code does not know this recurrence")
