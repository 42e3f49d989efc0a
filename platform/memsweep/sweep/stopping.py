"""Says at once that a run is being stopped: whatever handles Ctrl-C may take a while."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

_STOPPING = frozenset({signal.SIGINT, signal.SIGTERM})


@contextlib.contextmanager
def announced(say: Callable[[], None]) -> Iterator[None]:
    """While it lasts, ``say`` is called in a thread of its own at the first SIGINT or SIGTERM, whoever handles them.

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
