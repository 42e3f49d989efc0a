"""The memory of this process: how much it had at most, and a limit that a trial meets before its node does."""

from __future__ import annotations

import contextlib
import functools
import resource
from collections.abc import Iterator
from pathlib import Path

GIB = 2**30

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_memory() -> int:
    """The most memory, in bytes, that this process has held since ``forget_peak`` (or since its start)."""
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_peak() -> None:
    """Let the peak begin at what is held now; where the system does not allow it, it stays as it is."""
    with contextlib.suppress(OSError):
        _RESET.write_text("5")


@contextlib.contextmanager
def memory_limit(gib: float) -> Iterator[None]:
    """While it lasts, this process gets an error of its own when it asks for more than this beyond its bare self.

    The limit is on private writable memory as it is asked for (RLIMIT_DATA), whether it is touched or not: Python and
    numpy raise MemoryError, torch a RuntimeError that names its allocator. What the process had when it met the first
    limit (the interpreter, torch, Ray) does not count.

    Args:
        gib: 0 for no limit.
    """
    base = _base() if gib else 0
    if not base:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = base + int(gib * GIB)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@functools.cache
def _base() -> int:
    """Taken once: a worker that has run trials keeps freed memory, which is there for the next ones."""
    import torch  # noqa: F401  (it belongs to the bare process)

    return _status("VmData")


def _status(key: str) -> int:
    """A number of bytes that Linux keeps of this process; 0 on another system."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:")), 0)
