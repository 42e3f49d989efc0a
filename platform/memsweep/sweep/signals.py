"""Handlers of signals: SIGTERM and SIGHUP end a run like Ctrl-C, interrupts are delayed, stopping is said at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_PAUSE = 0.05  # seconds until an interrupt that Python has dropped comes again


@contextmanager
def terminate_like_ctrl_c() -> Iterator[None]:
    """While it lasts, SIGTERM and SIGHUP have the effect of SIGINT; only in the main thread, which may have handlers.

    SIGHUP comes when a terminal or its connection closes; one that is ignored (nohup) or handled stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, _interrupt)}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, _once())
    try:
        with _dropped_interrupts_again():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _dropped_interrupts_again() -> Iterator[None]:
    """While it lasts, an interrupt that Python drops comes again, as SIGTERM.

    Python prints an exception in a finalizer or in a weak reference's callback and goes on: a run that was told to end
    in such a moment (its import system has such callbacks) would not end.
    """
    before, timers = sys.unraisablehook, list[threading.Timer]()

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            timers.append(threading.Timer(_PAUSE, os.kill, (os.getpid(), signal.SIGTERM)))
            timers[-1].daemon = True
            timers[-1].start()
        else:
            before(dropped)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.join()  # so that its signal comes while the handler is installed


def _interrupt(number: int, frame: FrameType | None) -> None:
    on_interrupt = signal.getsignal(signal.SIGINT)
    if callable(on_interrupt):  # Tune's handler during a round, Python's own otherwise
        on_interrupt(signal.SIGINT, frame)
    else:  # SIGINT is ignored (a background job of a shell): SIGTERM must still end the run
        raise KeyboardInterrupt


def _once() -> Callable[[int, FrameType | None], None]:
    """A handler of SIGHUP, which a shell and the kernel both send: the second one must not cut the end short."""
    came = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if not came:
            came = True
            _interrupt(number, frame)

    return interrupt


@contextmanager
def children_outlive_hangup() -> Iterator[None]:
    """While it lasts, processes are started that a closed terminal does not end: whoever started them ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """While it lasts, the first SIGINT is delayed to the end; the second is raised at once.

    An interrupt in the middle of Ray's start would leave native threads behind that crash the process later.

    Raises:
        KeyboardInterrupt: at the end, after a SIGINT; it replaces any other error of the body.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            raise KeyboardInterrupt


@contextmanager
def sigint_restored() -> Iterator[None]:
    """Restores the handler of SIGINT after the body.

    Tune leaves its own handler behind, which does nothing once its experiment is over: Ctrl-C, and the end of the
    hours, would be lost between two experiments.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGINT, before)


_STOPPING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


@contextlib.contextmanager
def announced(say: Callable[[], None]) -> Iterator[None]:
    """While it lasts, the first of SIGINT, SIGTERM and SIGHUP, whoever handles it, calls ``say`` in its own thread.

    Python writes the number of a signal into a file descriptor as it arrives, before any handler runs, and the
    handlers of Ray, of Tune and of this package take turns. Does nothing outside of the main thread, where Python
    allows no such descriptor.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    thread = threading.Thread(target=_await, args=(reader, say), daemon=True, name="memsweep-stopping")
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)  # ends the thread
        thread.join(timeout=1.0)
        os.close(reader)


def _await(reader: int, say: Callable[[], None]) -> None:
    while numbers := os.read(reader, 64):
        if not _STOPPING.isdisjoint(numbers):
            say()
            return
