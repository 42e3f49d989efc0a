"""Memory: the peak of this process, a limit for its trials, and the kills of the kernel's out-of-memory killer."""

from __future__ import annotations

import contextlib
import functools
import resource
from collections.abc import Iterator
from pathlib import Path

GIB = 2**30

_STATUS, _RESET, _COUNTERS = (Path("/proc") / name for name in ("self/status", "self/clear_refs", "vmstat"))


def peak_memory() -> int:
    """The most memory, in bytes, that this process has held since ``forget_peak`` (or since its start)."""
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_peak() -> None:
    """Start the peak again from the current memory; does nothing where the system does not allow it."""
    with contextlib.suppress(OSError):
        _RESET.write_text("5")


@contextlib.contextmanager
def memory_limit(gib: float) -> Iterator[None]:
    """While it lasts, an allocation beyond the limit raises an error in this process, before its node runs out.

    The limit is on allocated private memory (RLIMIT_DATA), used or not. Python and numpy raise MemoryError, torch a
    RuntimeError that names its allocator. Memory that the process held at its first limit (the interpreter, torch,
    Ray) does not count.

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
    """Measured once: later the process also holds freed memory, which the next trials use again."""
    import torch  # noqa: F401  (it belongs to the bare process)

    return _status("VmData")


class KernelKills:
    """Counts the out-of-memory kills on this machine from its creation on; on a system without a counter, none."""

    def __init__(self) -> None:
        self._count = _number(_COUNTERS, "oom_kill ")

    def happened(self) -> bool:
        """Whether the kernel killed a process since the last call (or since the creation)."""
        before, self._count = self._count, _number(_COUNTERS, "oom_kill ")
        return self._count > before


def _status(key: str) -> int:
    """A number of bytes that Linux keeps of this process; 0 on another system."""
    return 1024 * _number(_STATUS, f"{key}:")


def _number(file: Path, start: str) -> int:
    """The number in the line of a file of the kernel that starts so; 0 if there is none."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(start)), 0)
