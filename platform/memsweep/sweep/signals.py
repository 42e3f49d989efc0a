"""SIGTERM ends a run as cleanly as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminate_like_ctrl_c() -> Iterator[None]:
    """While it lasts, SIGTERM does what SIGINT does.

    Outside of the main thread, where Python allows no handlers, nothing changes.
    """
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
    """While it lasts, the first SIGINT waits; it is raised at the end. The second is raised at once.

    For Ray's start: an interrupt in the middle of it leaves native threads behind that crash the process later.

    Raises:
        KeyboardInterrupt: at the end, when one came; it goes before any other error of the body.
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
