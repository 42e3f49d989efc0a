"""How many copies of an ensemble are computed at a time: as many as a memory budget allows, by measurement.

The bytes of a copy are counted on a few copies (``memsweep.learning.memory``). They depend on shapes and code alone,
never on the machine, and so does the slice: a product of matrices of another size may round its last bit differently
(slices of 1, 3 and 8 copies of 2 models differed by 1e-14), and a trial must have the same bits on every machine. A
machine that is too small for a slice gets a warning.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable

import torch

from memsweep.learning.memory import footprint
from memsweep.stability.perturbation.free_memory import free_bytes

BUDGETS = {"cpu": 16 << 20, "cuda": 1 << 30}
"""Bytes of tensors that a slice may hold, by type of device.

On a processor, a slice should stay in the cache: ``benchmarks/budget.py`` measures the shortest time between 8 and 32
MiB, and twice that time at 64 MiB for linear models of width 64. The budget of a GPU was not measured.
"""
_log = logging.getLogger("memsweep")


def slice_size(work: Callable[[int], object], device: torch.device, budget: int | None = None) -> int:
    """Copies to compute at a time.

    Args:
        work: as for ``footprint``.
        device: that the copies are on.
        budget: bytes; None: that of the type of device.
    """
    allowed = BUDGETS[device.type] if budget is None else budget
    measured = footprint(work, allowed)
    size = measured.largest_count(allowed)
    _check(measured.peak(size), free_bytes(device), _workers())
    return size


def _workers() -> int:
    """The number of processes like this one for which the machine has cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // torch.get_num_threads())


def _check(needed: int, free: int | None, workers: int) -> None:
    if free is not None and needed * workers > free:
        _warn(needed >> 20, free >> 20, workers)


@functools.cache
def _warn(needed: int, free: int, workers: int) -> None:
    _log.warning(
        "the perturbed copies that one worker computes at a time take %d MiB; %d workers may do so at once here, and "
        "%d MiB are free. If workers die for lack of memory, set resources.max_concurrent lower.",
        needed,
        workers,
        free,
    )
