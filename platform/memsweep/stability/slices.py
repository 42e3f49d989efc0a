"""How many copies of an ensemble are computed at a time: as many as a budget of memory holds, by measurement.

The bytes that work on a copy takes are counted while it is done on a few (``memsweep.stability.live_bytes``). They,
and so the slice, depend on shapes and code alone, never on the machine: a product of matrices of another size may
round its last bit otherwise (seen with 2 rows of models on a batch's statistics, where slices of 1, 3 and 8 copies
differ by 1e-14), and a trial has the same bits on every machine. A machine that is too small for a slice gets a
warning.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from memsweep.stability.free_memory import free_bytes
from memsweep.stability.live_bytes import LiveBytes, live_bytes

BUDGETS = {"cpu": 16 << 20, "cuda": 1 << 30}
"""Bytes of tensors that a slice may hold, by type of device.

On a processor, what a slice holds should stay in its cache: ``benchmarks/budget.py`` finds the least time between 8 and
32 MiB, and twice as much at 64 MiB for linear models of width 64. That of a GPU was not measured.
"""
_FEW, _MORE = 2, 4
_log = logging.getLogger("memsweep")


@dataclass(frozen=True)
class Footprint:
    """Bytes that work on some copies holds, moment by moment: a fixed part, and a part for each copy.

    Attributes:
        fixed, each: ``[moments]``.
    """

    fixed: np.ndarray
    each: np.ndarray

    def peak(self, copies: int) -> int:
        """The most bytes held at a time."""
        return int(np.max(self.fixed + copies * self.each, initial=0.0))

    def fitting(self, budget: int) -> int:
        """The most copies whose peak is within the budget, but at least one."""
        growing = self.each > 0
        rooms = (budget - self.fixed[growing]) // self.each[growing]
        return max(1, int(rooms.min(initial=np.inf))) if growing.any() else 1


def footprint(work: Callable[[int], object], budget: int) -> Footprint:
    """Measure work on one copy, and on a few where these fit the budget.

    Args:
        work: does on so many copies what will be done on a slice, gradients included.
        budget: bytes that the measurement, too, keeps to if it can.
    """
    one = live_bytes(lambda: work(1)).peak
    if _MORE * one > budget:
        return Footprint(np.zeros(1), np.array([float(one)]))
    few, more = live_bytes(lambda: work(_FEW)), live_bytes(lambda: work(_MORE))
    return _through(few, more)


def _through(few: LiveBytes, more: LiveBytes) -> Footprint:
    if few.operations != more.operations:  # no moments to compare: all of it as the copies' part, which is too much
        return Footprint(np.zeros(1), np.array([max(few.peak / _FEW, more.peak / _MORE)]))
    low, high = np.array(few.moments, dtype=float), np.array(more.moments, dtype=float)
    each = (high - low) / (_MORE - _FEW)
    return Footprint(low - _FEW * each, each)


def slice_size(work: Callable[[int], object], device: torch.device, budget: int | None = None) -> int:
    """Copies to compute at a time.

    Args:
        work: as for ``footprint``.
        device: that the copies are on.
        budget: bytes; None: that of the type of device.
    """
    allowed = BUDGETS[device.type] if budget is None else budget
    measured = footprint(work, allowed)
    size = measured.fitting(allowed)
    _check(measured.peak(size), free_bytes(device), _workers())
    return size


def _workers() -> int:
    """How many processes like this one the machine has cores for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // torch.get_num_threads())


def _check(needed: int, free: int | None, workers: int) -> None:
    if free is not None and needed * workers > free:
        _tell(needed >> 20, free >> 20, workers)


@functools.cache
def _tell(needed: int, free: int, workers: int) -> None:
    _log.warning(
        "the perturbed copies that one worker computes at a time take %d MiB; %d workers may do so at once here, and "
        "%d MiB are free. If workers die for lack of memory, set resources.max_concurrent lower.",
        needed,
        workers,
        free,
    )
