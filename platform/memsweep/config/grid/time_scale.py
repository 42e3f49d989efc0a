"""The time scale of a memory, and the horizons that are long enough for it."""

from __future__ import annotations

import math

import numpy as np

USABLE_SCALES = 2
"""Smallest horizon of a limit slope, in time scales of the memory: before it, radii fall whatever the model."""


def time_scale(target: np.ndarray) -> float | None:
    """The time over which a memory is large, in steps: 1 / rate for an exponential one.

    A power t^(-1/2) falls by a factor of sqrt(2) when the lag doubles, and is just too slow to be square-summable. The
    time scale is the lag from which on the memory falls faster, in units in which that of e^(-t) is 1. A small part
    that decays slowly counts, and of a memory that swings its envelope, as far as whole swings show it.

    Args:
        target: the memory function at lags 0, 1, ...

    Returns:
        Infinite for a memory that does not fall so fast at these lags; None for one that is not known (nan) or zero.
    """
    sizes = np.abs(target)
    if not sizes.size or not np.isfinite(sizes).all() or not sizes.max() > 0:
        return None
    envelope = np.maximum.accumulate(sizes[::-1])[::-1][: _known(sizes)]
    doubled = envelope[::2]
    with np.errstate(divide="ignore", invalid="ignore"):
        falls = np.nan_to_num(np.log(envelope[: len(doubled)] / doubled), nan=np.inf, posinf=np.inf)
    enough = math.log(2.0) / 2.0
    last = int(np.flatnonzero(falls < enough)[-1])
    if last == len(falls) - 1:
        return math.inf
    scale = float(last + (enough - falls[last]) / (falls[last + 1] - falls[last])) / enough
    return math.inf if scale > len(sizes) and _rises_again(sizes) else scale


def _rises_again(sizes: np.ndarray) -> bool:
    """Whether a memory rises behind a lag at which it falls."""
    steps = np.diff(sizes)
    falls = np.flatnonzero(steps < 0)
    return bool(falls.size and (steps[falls[0] :] > 0).any())


def _known(sizes: np.ndarray) -> int:
    """The number of lags whose envelope is known: behind the last peak of a swing that is cut off, the next is not.

    Peaks may swing themselves, as those of two sines do: then it is the last of the largest ones that counts.
    """
    known, peaks = len(sizes), np.arange(len(sizes))
    while len(peaks := peaks[_maxima(sizes[peaks])]) > 1:
        if len(sizes) - peaks[-1] <= np.diff(peaks).max():
            known = min(known, int(peaks[-1]) + 1)
    return known


def _maxima(values: np.ndarray) -> np.ndarray:
    """The places of the local maxima, each plateau once, the first value among them."""
    starts = np.flatnonzero(np.diff(values, prepend=np.nan) != 0)
    rises = np.diff(values[starts]) > 0
    return starts[np.r_[True, rises] & np.r_[~rises, False]]
