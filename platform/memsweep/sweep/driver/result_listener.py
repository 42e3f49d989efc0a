"""Passes finished results to a callback in a thread of its own, so that the run never waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from memsweep.errors import StorageError
from memsweep.sweep.store.filesystem import at_once

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.sweep.store.record import Record
    from memsweep.sweep.store.results import Store

OnResult = Callable[["Record", "dict[str, pd.DataFrame]"], None]

_AT_ONCE = 16
"""Results that are read together: a bucket answers one at a time slowly, and many at a time as soon."""


@contextmanager
def listen(store: Store, on_result: OnResult) -> Iterator[Callable[[str], None]]:
    """Yields a function that takes an identity and returns at once; a thread reads the result and calls ``on_result``.

    Calls come in the order of the identities, in one thread. At the end all have been made; then the first error that
    a call raised is raised, unless the body raised its own. A result that the storage does not give back is left out.
    """
    waiting: SimpleQueue[str | None] = SimpleQueue()
    errors: list[Exception] = []

    def deliver() -> None:
        more = True
        while more:
            names = _next(waiting)
            more = None not in names
            for result in at_once(partial(_read, store), [name for name in names if name is not None]):
                try:
                    if isinstance(result, Exception):
                        raise result
                    on_result(*result)
                except StorageError:  # the result is stored; whatever shows results is brought up to date from there
                    continue
                except Exception as error:  # the other results are passed on all the same
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


def _read(store: Store, identity: str) -> tuple[Record, dict[str, pd.DataFrame]] | Exception:
    try:
        return store.result(identity)
    except Exception as error:
        return error


def _next(waiting: SimpleQueue[str | None]) -> list[str | None]:
    """The waiting identities: at least one, at most ``_AT_ONCE``."""
    names = [waiting.get()]
    while len(names) < _AT_ONCE and names[-1] is not None:
        try:
            names.append(waiting.get_nowait())
        except Empty:
            break
    return names
