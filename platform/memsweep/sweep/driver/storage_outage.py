"""A storage that takes nothing in the middle of a run: what it refused stays in memory, and is offered again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from memsweep.errors import StorageError, StoreError, counted
from memsweep.sweep.store.filesystem import at_once
from memsweep.sweep.store.layout import CHECKPOINTS, STATES
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.retry import retry_seconds, warn
from memsweep.sweep.store.unwritable import FREE_BYTES, UnstoredResult, check_writable, fallback_folder

T = TypeVar("T")

_INTERVAL = 5.0  # seconds between two attempts


class StorageOutage:
    """The files that the storage of a study did not take.

    Args:
        store: the study's results.
        clock: monotonic seconds.

    Attributes:
        cause: why the storage takes nothing; empty while it works.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self.cause = ""
        self._store, self._clock, self._seconds = store, clock, retry_seconds()
        self._results: dict[str, UnstoredResult] = {}
        self._failures: dict[str, Mapping[str, Any]] = {}
        self._began = self._next_try = 0.0

    @property
    def over(self) -> bool:
        """Whether the storage has taken nothing for as long as it is tried again."""
        return bool(self.cause) and self._clock() - self._began >= self._seconds

    def add(
        self,
        cause: str,
        results: Mapping[str, UnstoredResult] | None = None,
        failures: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """The storage has failed.

        Args:
            cause: in words.
            results: identity -> result that it did not take.
            failures: identity -> failure that it did not take, as ``Store.fail`` wants it.
        """
        if not self.cause:
            self._began = self._next_try = self._clock()
        self.cause = cause
        self._results |= results or {}
        self._failures |= failures or {}

    def noted(self, ask: Callable[[], T]) -> T | None:
        """The answer of a call that needs the storage; None where it gives none, which is noted."""
        try:
            return ask()
        except StorageError as error:
            self.add(error.cause)
            return None

    def offer(self) -> dict[str, str]:
        """Offers the storage what it did not take, at most every five seconds; logs a line a minute.

        Returns:
            identity -> outcome of each result that it has taken now.
        """
        if not self.cause or self._clock() < self._next_try:
            return {}
        stored: dict[str, str] = {}
        try:
            check_writable(self._store.location, FREE_BYTES + self._bytes)
            for name, result in list(self._results.items()):
                self._store.commit(name, result.files)
                stored[name] = self._results.pop(name).outcome
            for name, failure in list(self._failures.items()):
                self._store.fail(name, failure)
                del self._failures[name]
            self.cause = ""
        except StoreError as error:
            self.cause = error.cause if isinstance(error, StorageError) else str(error)
            left = max(0.0, self._began + self._seconds - self._clock())
            warn(f"{self.cause}. No trial is started, {self._waiting}, and this is tried again for {left:.0f} s.")
        self._next_try = self._clock() + _INTERVAL
        return stored

    def give_up(self) -> str:
        """Puts the results that the storage did not take into a folder of this user; the end of the run, in words."""
        if not self.cause:
            return ""
        silent = f"the storage has taken nothing for {self._clock() - self._began:.0f} s"
        again = f"{counted(len(self._failures), 'failure')} found no place: what failed runs again"
        if not self._results:
            return f"{silent}: {self.cause}" + (f"; {again}" if self._failures else "")
        elsewhere = Store(fallback_folder(self._store.location))
        kept = 0
        with contextlib.suppress(StoreError):
            for name, result in self._results.items():
                elsewhere.commit(name, result.files)
                kept += 1
        lost = len(self._results) - kept
        words = [f"{kept} that it lacks are in {elsewhere.location} until the next run stores them"] if kept else []
        words += [f"{lost} found no place and will be computed again"] if lost else []
        told = [f"of its results {' and '.join(words)}", *([again] if self._failures else [])]
        return f"{silent}: {self.cause}; {'; '.join(told)}"

    @property
    def _bytes(self) -> int:
        return sum(len(part) for result in self._results.values() for part in result.files.values())

    @property
    def _waiting(self) -> str:
        failures = f" and {counted(len(self._failures), 'failure')}" if self._failures else ""
        return f"{counted(len(self._results), 'result')}{failures} wait in memory"


def take_over(store: Store) -> None:
    """Moves the results that an earlier run put into this user's folder to the store; a damaged one is dropped.

    Raises:
        StorageError: the storage does not take them; they stay where they are.
    """
    elsewhere = Store(fallback_folder(store.location))
    with contextlib.suppress(OSError):
        if elsewhere.location.local is None or not elsewhere.location.local.is_dir():
            return
    names = elsewhere.identities()
    damaged = elsewhere.faults(names).keys()
    at_once(lambda name: store.copy_from(elsewhere, name), sorted(names - damaged))
    with contextlib.suppress(OSError):
        for name in elsewhere.location.folders():
            if name not in (CHECKPOINTS, STATES):
                (elsewhere.location / name).delete_all()
