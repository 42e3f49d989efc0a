"""What a person sees of a job that runs elsewhere: its log, and its progress in one live line on a terminal."""

from __future__ import annotations

import re
import sys
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

_PROGRESS = re.compile(r"^(?P<study>.+): (?P<words>(?P<done>\d+)/(?P<all>\d+) trials, .*)$")
_LAST = ", ended after "


class Follower:
    """Shows the log of a job line by line; a context manager.

    On a terminal the sweep's progress becomes one line that stays at the bottom; elsewhere its lines, of which a
    sweep prints one in thirty seconds, pass as they are.

    Args:
        study: the study's name.
        stream: where to (None: standard output).
    """

    def __init__(self, study: str, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stdout
        self._rest, self._began = "", False
        self._progress: Progress | None = None
        if self._stream.isatty():
            self._progress = _live(self._stream)
            self._task = self._progress.add_task(study, total=None, words="waiting for the cluster")

    def __enter__(self) -> Follower:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rest:
            self._line(self._rest)
            self._rest = ""
        if self._progress is not None:
            self._progress.stop()

    def text(self, text: str) -> None:
        """A piece of the log, which may end within a line."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._line(line)

    def say(self, line: str) -> None:
        """A line of our own."""
        self._line(line)

    def _line(self, line: str) -> None:
        if self._progress is None:
            self._stream.write(f"{line}\n")
            self._stream.flush()
            return
        seen = _PROGRESS.match(line)
        if not self._began:
            self._began = True
            self._progress.update(self._task, words="starting")
        if seen:
            done, total = int(seen["done"]), int(seen["all"])
            self._progress.update(self._task, completed=done, total=total, words=seen["words"])
        if not seen or _LAST in line:
            self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _live(stream: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(max_width=20, no_wrap=True)),
        BarColumn(bar_width=12),
        TextColumn("{task.fields[words]}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
        TimeElapsedColumn(),
        console=Console(file=stream),
        expand=True,
        transient=True,
        refresh_per_second=4,
    )
