"""Settings for memory that is freed: whether the process keeps it or returns it to the system."""

from __future__ import annotations

import ctypes
import functools
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_LARGEST_KEPT = 32 * 2**20  # bytes: the largest threshold that glibc takes
_NEVER = 2**31 - 1


@functools.cache
def keep_freed_memory() -> bool:
    """Let the C library keep blocks of up to 32 MiB for the next tensor of their size, in place of giving them back.

    By default glibc gives the free end of its memory back as soon as there is some, and the kernel clears every page
    when it is asked for again: for tensors that live as long as one operation, that takes as long as the operation
    (scans of large complex series ran in three quarters of the time without it). The process keeps what it frees
    until ``give_back_freed_memory``.

    Returns:
        Whether the C library is one that can (glibc).
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)) and bool(mallopt(_M_TRIM_THRESHOLD, _NEVER))


def give_back_freed_memory() -> bool:
    """Give the pages of all freed blocks back to the system.

    Tensors of another size do not fit the blocks that were freed, so a process that kept them all would grow with
    every new width or horizon.

    Returns:
        Whether anything was given back (glibc).
    """
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (OSError, AttributeError, TypeError):  # another C library, or Windows
        return False
