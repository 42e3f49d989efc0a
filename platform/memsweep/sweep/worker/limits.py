"""The limits of trials: memory and time; a trial that exceeds its time gets an error, or its process ends."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import resource
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
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
    import torch  # it belongs to the bare process, and so does CUDA where this process has a GPU

    if torch.cuda.is_available():
        torch.empty(1, device="cuda")
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


class TimeLimitError(BaseException):
    """A trial exceeded its time limit; no Exception, so that no ``except Exception`` of a task catches it."""

    def __str__(self) -> str:
        return super().__str__() or "the trial ran for longer than resources.time_limit allows"


Report = Callable[[float], None]
OnHang = Callable[[TimeLimitError, str], None]

GRACE = 5.0
"""Seconds in which a thread must react to the end of its time; checkpoints are written in far less."""
_CRASH_REPORT = 30.0  # seconds in which the crash report must have been written


@contextlib.contextmanager
def time_limit(
    seconds: float, trials: int, on_hang: OnHang, grace: float = GRACE
) -> Iterator[Callable[[Report], Report]]:
    """Limit the seconds of the body, which runs in the calling thread.

    There are three stages. First, an exception in the thread of the trial ends Python code. A thread that sleeps or
    computes in native code does not notice it: after a grace period the caller gets its stack and ends the process. If
    native code blocks all threads of Python, a timer of the interpreter (faulthandler) prints the stacks and ends it.

    Gives a function that makes a callback one that the limit does not interrupt.

    Args:
        seconds: the limit of one trial; 0 for none.
        trials: how many run in the body; its limit is the sum of theirs.
        on_hang: called in another thread with the error and the stack of the body's thread, if the body has not ended
            ``grace`` seconds after its limit; it must end the process.
        grace: see ``on_hang``.

    Raises:
        TimeLimitError: the body ran for longer.
    """
    if not seconds:
        yield lambda report: report
        return
    watch = _Watch(seconds, trials, on_hang, grace)
    try:
        try:
            watch.start()  # on a busy machine a short limit is over before this returns
            yield watch.undisturbed
        finally:
            watch.stop()
    except GeneratorExit:
        raise
    except BaseException as error:
        watch.stop()  # again: the limit's exception may have interrupted the first call
        if watch.fired and not isinstance(error, KeyboardInterrupt):
            raise watch.error() from error
        raise


class _Watch:
    """Watches the thread that creates it."""

    def __init__(self, seconds: float, trials: int, on_hang: OnHang, grace: float) -> None:
        self.fired = False
        self._seconds, self._trials, self._on_hang, self._grace = seconds, trials, on_hang, grace
        self._limit = min(seconds * trials, threading.TIMEOUT_MAX)
        self._watched = threading.get_ident()
        self._done, self._lock = threading.Event(), threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="time limit", daemon=True).start()
        faulthandler.dump_traceback_later(self._limit + self._grace + _CRASH_REPORT, exit=True, file=2)

    def stop(self) -> None:
        self._done.set()
        faulthandler.cancel_dump_traceback_later()
        with self._lock:
            if self.fired:
                _take(self._watched)

    def undisturbed(self, report: Report) -> Report:
        def whole(fraction: float) -> None:
            with self._lock:
                report(fraction)

        return whole

    def error(self) -> TimeLimitError:
        count = f"{self._trials} trials that run together" if self._trials > 1 else "this trial"
        return TimeLimitError(
            f"the time limit of {count}, {self._limit:g} s, was exceeded; the traceback tells where the code was. If "
            f"it only needs longer, raise resources.time_limit, which is {self._seconds:g} s a trial (0: no limit)."
        )

    def _watch(self) -> None:
        if self._done.wait(self._limit):
            return
        if self._lock.acquire(timeout=self._grace):  # else a callback hangs
            try:
                if self._done.is_set():
                    return
                self.fired = True
                _raise_in(self._watched, TimeLimitError)
            finally:
                self._lock.release()
        if not self._done.wait(self._grace):
            frame = sys._current_frames().get(self._watched)
            self._on_hang(self.error(), "".join(traceback.format_stack(frame)) if frame is not None else "")


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception in a thread at its next step of Python code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def _take(thread: int) -> None:
    """Let an exception that has not arrived yet end here, in the calling thread.

    Taking it back by a null would leave Python's mark that one is pending: from then on the interpreter would stop at
    every step to look for it, and under a profiler or debugger of Python 3.11 for ever.
    """
    with contextlib.suppress(TimeLimitError):
        _raise_in(thread, TimeLimitError)
        while True:
            pass
