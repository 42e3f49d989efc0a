"""Handlers of SIGTERM and SIGINT: SIGTERM ends a run like Ctrl-C, and interrupts can be delayed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminate_like_ctrl_c() -> Iterator[None]:
    """While it lasts, SIGTERM has the effect of SIGINT; only in the main thread, where Python allows handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    on_interrupt = signal.getsignal(signal.SIGINT)
    if callable(on_interrupt):  # Tune's handler during a round, Python's own otherwise
        on_interrupt(signal.SIGINT, frame)
    else:  # SIGINT is ignored (a background job of a shell): SIGTERM must still end the run
        raise KeyboardInterrupt


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
