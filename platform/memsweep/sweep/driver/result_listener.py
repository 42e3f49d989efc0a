"""Passes the names of finished results to a callback in a thread of its own, so that the run never waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread

from memsweep.errors import StorageError

OnResult = Callable[[str], None]


@contextmanager
def listen(on_result: OnResult) -> Iterator[Callable[[str], None]]:
    """Yields a function that takes an identity and returns at once; a thread calls ``on_result`` with it.

    Calls come in the order of the identities, in one thread. At the end all have been made; then the first error that
    a call raised is raised, unless the body raised its own; but a ``StorageError`` of a call is passed over.
    """
    waiting: SimpleQueue[str | None] = SimpleQueue()
    errors: list[Exception] = []

    def deliver() -> None:
        while (name := waiting.get()) is not None:
            try:
                on_result(name)
            except StorageError:  # the result is stored; whatever shows results is brought up to date from there
                continue
            except Exception as error:  # it is raised at the end; the other results come first
                errors.append(error)

    thread = Thread(target=deliver, name="results", daemon=True)
    thread.start()
    try:
        yield waiting.put
    finally:
        waiting.put(None)
        thread.join()
    if errors:
        raise errors[0]
