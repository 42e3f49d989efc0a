"""Loads the compiled library into this process, and calls its functions."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from memsweep.errors import MemsweepError
from memsweep.recurrence.compiled.build import library_path
from memsweep.recurrence.compiled.compiler import CannotBuildError

KERNELS = "MEMSWEEP_KERNELS"
"""Environment variable: ``auto`` (compiled where possible, the default), ``compiled`` (or an error), ``plain``."""
_AUTO, _COMPILED, _PLAIN = "auto", "compiled", "plain"
_REALS = {
    torch.float64: "double",
    torch.complex128: "double",
    torch.float32: "float",
    torch.complex64: "float",
}
_log = logging.getLogger("memsweep")


def library(dtype: torch.dtype) -> Any:
    """The library for numbers of this type; None where plain torch computes instead.

    Raises:
        MemsweepError: the environment asks for a library that cannot be built, or has an unknown value.
    """
    wish = os.environ.get(KERNELS, "") or _AUTO
    if wish not in (_AUTO, _COMPILED, _PLAIN):
        raise MemsweepError(f"{KERNELS} is {wish!r}; allowed: {_AUTO}, {_COMPILED}, {_PLAIN}.")
    if wish == _PLAIN or dtype not in _REALS:
        return None
    result = load(_REALS[dtype])
    if not isinstance(result, CannotBuildError):
        return result
    if wish == _COMPILED:
        raise result
    warn_once(str(result))
    return None


@functools.cache
def load(real: str) -> Any:
    """The library, or the error that says why there is none; once for each type of numbers."""
    try:
        return ctypes.CDLL(str(library_path(real)))
    except CannotBuildError as error:
        return error
    except OSError as error:
        return CannotBuildError(f"the compiled recurrences cannot be loaded: {error}")


@functools.cache
def warn_once(reason: str) -> None:
    """Log once that the slow path runs, and why."""
    _log.warning("recurrences run as torch loops over time, nonlinear ones five to thirty times slower: %s", reason)


class Kernel:
    """Base of the compiled recurrences: one C function, and the structure that is its argument.

    A subclass names the function without ``memsweep_``, and the fields of the structure in the order of the C++
    declaration: first the integers, then the numbers with a fraction, then the pointers.
    """

    function: ClassVar[str]
    numbers: ClassVar[tuple[str, ...]]
    reals: ClassVar[tuple[str, ...]] = ()
    tensors: ClassVar[tuple[str, ...]]
    _structure: ClassVar[type[ctypes.Structure]]

    def __init_subclass__(cls) -> None:
        integers = [(name, ctypes.c_int64) for name in cls.numbers]
        reals = [(name, ctypes.c_double) for name in cls.reals]
        pointers = [(name, ctypes.c_void_p) for name in cls.tensors]
        cls._structure = type(f"{cls.__name__}Call", (ctypes.Structure,), {"_fields_": [*integers, *reals, *pointers]})

    def __init__(self, loaded: Any) -> None:
        self._function = getattr(loaded, f"memsweep_{self.function}")
        self._function.argtypes, self._function.restype = [ctypes.c_void_p], ctypes.c_int

    @classmethod
    def load(cls, dtype: torch.dtype) -> Self | None:
        """The recurrence for numbers of this type; None where plain torch computes instead (raises as ``library``)."""
        loaded = library(dtype)
        return None if loaded is None else cls(loaded)

    def run(self, tensors: Mapping[str, Tensor], shares: Iterable[Mapping[str, int]], **numbers: float) -> None:
        """Call the function once for each share of the work, each in a thread: the library releases Python's lock.

        Args:
            tensors: by field, as ``readable`` returns them; fields without a tensor are null pointers.
            shares: the fields in which the calls differ.
            numbers: the fields that all calls share.

        Raises:
            MemoryError: there is none for the states of a block of sequences.
            ValueError: the library does not know such a recurrence.
        """
        common = {**numbers, **{name: tensor.data_ptr() for name, tensor in tensors.items()}}
        calls = [self._structure(**{**common, **share}) for share in shares]
        if len(calls) == 1:
            statuses = [self._function(ctypes.byref(calls[0]))]
        else:
            with ThreadPoolExecutor(max(1, len(calls))) as pool:
                statuses = list(pool.map(lambda call: self._function(ctypes.byref(call)), calls))
        if 2 in statuses:
            raise MemoryError("there is no memory for the states of one block of sequences")
        if any(statuses):
            raise ValueError("please report this: the compiled code does not know this recurrence")


def readable(tensors: Mapping[str, Tensor | None], dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors as the library reads them: contiguous, without a lazy conjugation; None is left out.

    The library also writes to tensors. Those are contiguous already, so that they stay themselves.

    Raises:
        ValueError: one of them has another type of numbers, or is not in the processor's memory.
    """
    result = {
        name: tensor if _is_plain(tensor) else tensor.detach().resolve_conj().contiguous()
        for name, tensor in tensors.items()
        if tensor is not None
    }
    for name, tensor in result.items():
        if tensor.dtype != dtype or not tensor.is_cpu:
            raise ValueError(f"{name} must be {dtype}, on cpu; it is {tensor.dtype} on {tensor.device}")
    return result


def _is_plain(tensor: Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_conj()


def shares_of_rows(tensors: Mapping[str, Tensor], count: str) -> list[dict[str, int]]:
    """Divides the first dimension, which all tensors have in common, among torch's threads.

    Args:
        tensors: as ``readable`` returns them.
        count: the field that holds how many rows a share has.

    Returns:
        For each share, that field and the address of each tensor's first row in it; none where there are no rows.
    """
    rows = len(next(iter(tensors.values())))
    threads = min(torch.get_num_threads(), rows)
    edges = [part * rows // threads for part in range(threads + 1)] if threads else [0]
    return [
        {count: last - first}
        | {
            name: tensor.data_ptr() + first * tensor.stride(0) * tensor.element_size()
            for name, tensor in tensors.items()
        }
        for first, last in pairwise(edges)
    ]


def masks_of(live_N: Tensor) -> list[Tensor]:
    """Divides the live models among torch's threads: masks, ``[N]``, one byte a model."""
    if torch.get_num_threads() == 1:
        return [live_N.contiguous().view(torch.uint8)]
    rows = torch.nonzero(live_N).flatten()
    threads = min(torch.get_num_threads(), len(rows))
    masks = [torch.zeros(len(live_N), dtype=torch.uint8) for _ in range(threads)]
    for index, mask in enumerate(masks):
        mask[rows[index::threads]] = 1
    return masks
