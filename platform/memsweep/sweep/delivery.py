"""Hands finished results to whoever wants to see them, beside the run and never in its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.sweep.store import Store

OnResult = Callable[[dict[str, Any], "dict[str, pd.DataFrame]"], None]


@contextmanager
def delivery(store: Store, on_result: OnResult) -> Iterator[Callable[[str], None]]:
    """Gives a function that takes an identity and returns at once; a thread reads the result and delivers it.

    Results arrive in the order in which they were given. At the end all are delivered; then the first error that
    a delivery met is raised, unless the body raised its own.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="results") as thread:
        pending: list[Future[None]] = []
        yield lambda identity: pending.append(
            thread.submit(lambda: on_result(store.record(identity), store.tables(identity)))
        )
        for future in pending:
            future.result()
