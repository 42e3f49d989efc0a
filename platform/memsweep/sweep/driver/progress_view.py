"""Shows the progress of a sweep: a live bar on a terminal, a few plain lines anywhere else."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from memsweep.errors import filled
from memsweep.gate import display, gated
from memsweep.sweep.driver.progress import Snapshot

if TYPE_CHECKING:
    from rich.progress import Progress

_UNITS = ((3600, "h"), (60, "min"), (1, "s"))
SHORT = 1.0
"""Seconds: a shorter phase leaves no line."""
PLAIN_INTERVAL = 30.0  # seconds between lines where no terminal is


class View(Protocol):
    """Shows snapshots and single lines; a context manager around the run."""

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, snapshot: Snapshot) -> None:
        """Show the state of the run; cheap enough to call on every report."""

    def say(self, line: str, style: str = "") -> None:
        """Show one line that stays, such as a verdict, in a style of rich's where there are colours."""


def open_view(title: str, stream: TextIO | None = None, starting: str = "starting") -> View:
    """The view that suits the stream (standard output when None): live on a terminal, plain otherwise.

    ``starting``: what a live view says before the first snapshot.
    """
    stream = stream if stream is not None else sys.stdout
    return LiveView(title, stream, starting) if stream.isatty() else PlainView(title, stream)


@contextlib.contextmanager
def phase(words: str, stream: TextIO) -> Iterator[None]:
    """Says what a command is doing: on a terminal while it lasts, elsewhere afterwards, if it took a second or more."""
    began, live = time.monotonic(), stream.isatty()
    if live:
        _write(stream, f"\r{words} …\x1b[K")
    try:
        yield
    finally:
        if live:
            _write(stream, "\r\x1b[K")
    took = time.monotonic() - began
    if not live and took >= SHORT:
        write_line(stream, f"{words}: {duration(took)}")


def write_line(stream: TextIO, line: str) -> None:
    """A line without control characters; nothing where the reader of a pipe has ended, because a sweep must go on."""
    with contextlib.suppress(OSError, ValueError):
        _write(stream, f"{filled(line, stream)}\n")


def _write(stream: TextIO, text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()


def describe(snapshot: Snapshot) -> str:
    """A snapshot in words, the most important first: ``61/120 trials, 2 to 5 min left, 1 failed, 2 packs running``."""
    settled = snapshot.finished + snapshot.reused + snapshot.failed
    words = [f"{settled}/{snapshot.total} trials"]
    if left := time_left(snapshot):
        words.append(left)
    if snapshot.failed:
        words.append(f"{snapshot.failed} failed")
    if snapshot.doing:
        words.append(snapshot.doing)
    words.append(f"{snapshot.running} pack{'s' if snapshot.running != 1 else ''} running")
    if snapshot.reused:
        words.append(f"{snapshot.reused} reused")
    if snapshot.note:
        words.append(snapshot.note)
    return ", ".join(words)


def time_left(snapshot: Snapshot) -> str:
    """``2 to 5 min left``, or ``1 min 3 s left`` where enough trials have ended; empty where nothing is known."""
    if snapshot.left is None:
        return ""
    low, high = snapshot.left
    if low == high:
        return f"{duration(low)} left"
    unit, name = next(known for known in _UNITS if high >= 2 * known[0] or known is _UNITS[-1])
    least, most = max(1, math.floor(low / unit)), math.ceil(high / unit)
    return f"{least} to {most} {name} left" if least < most else f"{most} {name} left"


def duration(seconds: float) -> str:
    """Seconds in words: ``42 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class PlainView:
    """One line at the start, at most one every 30 seconds, one at the end."""

    def __init__(self, title: str, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._title, self._stream, self._clock = title, stream, clock
        self._began = self._last = clock()
        self._latest: Snapshot | None = None
        self._started = False

    def __enter__(self) -> PlainView:
        self._began = self._last = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._latest is not None:
            self.say(f"{self._title}: {describe(self._latest)}, ended after {duration(self._clock() - self._began)}")

    def update(self, snapshot: Snapshot) -> None:
        self._latest = snapshot
        if not self._started or self._clock() - self._last >= PLAIN_INTERVAL:
            self._started, self._last = True, self._clock()
            self.say(f"{self._title}: {describe(snapshot)}")

    def say(self, line: str, style: str = "") -> None:
        write_line(self._stream, line)


class LiveView:
    """A progress bar that stays at the bottom of the terminal, with lines above it.

    Args:
        title: the study's name.
        stream: a terminal.
        starting: what it says before the first snapshot.
    """

    def __init__(self, title: str, stream: TextIO, starting: str = "starting") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn
        from rich.table import Column

        self._progress: Progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(max_width=20, no_wrap=True)),
            BarColumn(bar_width=12),
            TaskProgressColumn(table_column=Column(min_width=4, no_wrap=True)),
            TextColumn("{task.fields[words]}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
            console=Console(file=display(stream)),
            expand=True,
            refresh_per_second=4,
        )
        self._task = self._progress.add_task(gated(title), total=1.0, words=gated(starting))

    def __enter__(self) -> LiveView:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, snapshot: Snapshot) -> None:
        self._progress.update(self._task, completed=snapshot.fraction, words=gated(describe(snapshot)))

    def say(self, line: str, style: str = "") -> None:
        self._progress.console.print(gated(line), style=style, markup=False, highlight=False)
