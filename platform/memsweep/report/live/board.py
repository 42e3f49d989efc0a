"""What the live page shows now, shared by the threads that serve it and the one that reads the study."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any


class Board:
    """The newest page and the newest progress; readers wait for what is newer than what they have.

    Nothing is kept for a slow reader: it gets the newest when it is ready.

    Attributes:
        told: the progress in the words of the process that runs the study.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._page, self._pages = b"", 0
        self._progress: dict[str, Any] = {}
        self._progresses = 0
        self._end: dict[str, Any] | None = None
        self._readers = 0
        self.told: dict[str, Any] = {}

    def tell(self, words: dict[str, Any]) -> None:
        """The process that runs the study said how far it is."""
        with self._changed:
            self.told = words
            self._changed.notify_all()

    def show(self, page: bytes | None = None, progress: dict[str, Any] | None = None) -> None:
        """A new page, or new progress."""
        with self._changed:
            if page is not None:
                self._page, self._pages = page, self._pages + 1
            if progress is not None and progress != self._progress:
                self._progress, self._progresses = progress, self._progresses + 1
            self._changed.notify_all()

    def finish(self, page: bytes | None, file: str, why: str) -> None:
        """The last page (None: the one before was the last), its file, and why there is none."""
        with self._changed:
            self._page = self._page if page is None else page
            self._end = {"final": page is not None, "file": file, "why": why}
            self._changed.notify_all()

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self._end is not None

    def await_page(self, seconds: float) -> bytes:
        """The newest page; empty where none was built in this time. Counts as a reader while it waits."""
        with self._reader(), self._changed:
            self._changed.wait_for(lambda: self._page or self._end, seconds)
            return self._page

    def await_reader(self, seconds: float) -> None:
        """Returns when somebody reads, after this time, or at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._readers or self._end, seconds)

    def await_end(self, seconds: float) -> None:
        """Returns after this time, or at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._end, seconds)

    def await_no_reader(self, seconds: float) -> None:
        """Returns when nobody reads any more, or after this time."""
        with self._changed:
            self._changed.wait_for(lambda: not self._readers, seconds)

    @property
    def read(self) -> bool:
        """Whether somebody reads now."""
        return self._readers > 0

    def events(self, pause: float, alive: float) -> Iterator[tuple[str, dict[str, Any]] | None]:
        """What is new, again and again, until the end: names of events and their content.

        Args:
            pause: seconds between two events of progress at least.
            alive: seconds without news after which None comes: whoever writes it learns that its reader is gone.
        """
        with self._reader():
            seen = (self._pages, 0)
            while True:
                now, progress, end = self._await_news(seen, alive)
                if end is None and now == seen:
                    yield None
                if now[1] != seen[1]:
                    yield "progress", progress
                if end is not None:
                    yield "end", end
                    return
                if now[0] != seen[0]:
                    yield "page", {"page": now[0]}
                seen = now
                time.sleep(pause)

    def _await_news(
        self, seen: tuple[int, int], seconds: float
    ) -> tuple[tuple[int, int], dict[str, Any], dict[str, Any] | None]:
        with self._changed:
            self._changed.wait_for(lambda: self._end or (self._pages, self._progresses) != seen, seconds)
            return (self._pages, self._progresses), self._progress, self._end

    @contextlib.contextmanager
    def _reader(self) -> Iterator[None]:
        with self._changed:
            self._readers += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()
