"""The progress of a run, counted and shown: a live bar on a terminal, a few plain lines anywhere else."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from memsweep.errors import filled
from memsweep.gate import display, gated

if TYPE_CHECKING:
    from rich.progress import Progress


SURE = 1.15
"""A time left that is known within this factor is one number."""
STARTING = "starting"
"""Said from the start of the first packs until the first of their work is done."""
_KNOWN = 0.1  # of all work, from which on there is a time left
_OWN_PACE = 0.1  # of a pack's work, from which on its own pace says when it ends
LONG = 10.0
"""Seconds after which it is said what a pack does."""


@dataclass(frozen=True)
class Snapshot:
    """The state of a run at one moment.

    Attributes:
        total: trials of the plan, reused ones included; of a search, all that it may suggest and confirm.
        finished: trials that this run finished, diverged ones included.
        reused: trials whose result was there before the run.
        failed: trials that failed for good.
        running: packs that run now.
        fraction: part of this run's work that is done, in [0, 1], weighted by estimated cost.
        eta: seconds until the end, or None while nothing is known yet.
        note: what is retried now, or an empty string.
        doing: what the longest running pack does, such as ``step 1,200 of 5,000``; empty in its first seconds.
        waiting: packs that no worker has yet.
        slots: the most packs that could run at once so far.
    """

    total: int
    finished: int
    reused: int
    failed: int
    running: int
    fraction: float
    eta: float | None
    note: str = ""
    doing: str = ""
    waiting: int = 0
    slots: int = 1

    @property
    def left(self) -> tuple[float, float] | None:
        """Seconds until the end, at least and at most.

        It is a guess that narrows as trials end, and no interval of known coverage. Both are equal when enough trials
        have ended; None while nothing is known yet, and at the end.
        """
        if not self.eta:
            return None
        factor = 1.0 + 1.0 / math.sqrt(1.0 + self.finished + self.failed)
        return (self.eta / factor, self.eta * factor) if factor > SURE else (self.eta, self.eta)


class WorkCounter:
    """Counts the work of a run; costs are in any one unit, only their ratios matter.

    Args:
        total: trials of the plan.
        reused: trials that need no work.
        work: cost of everything that is left to do.
        expected: trials that a plan which grows may have in the end; their costs are taken as those of the trials so
            far. 0: the plan does not grow.
        clock: monotonic seconds.
        guesses: whether work that is done tells how long the rest takes before a trial has ended; not where a loss may
            end trainings.
    """

    def __init__(
        self,
        total: int,
        reused: int,
        work: float,
        expected: int = 0,
        clock: Callable[[], float] = time.monotonic,
        *,
        guesses: bool = True,
    ) -> None:
        self._total, self._reused, self._known, self._expected = total, reused, max(work, 1e-12), expected
        self._shown = 0.0  # the largest fraction so far: trials may turn out more, and a bar must not run back
        self._clock, self._guesses = clock, guesses
        self._running: dict[str, _Running] = {}
        self._course = _Course()
        self._finished = self._failed = self._replaced = 0
        self._settled = 0.0
        self.note = ""

    def grow(self, total: int, reused: int, work: float, replaced: int = 0) -> None:
        """The plan has grown.

        Args:
            total, reused: its trials and reused trials now.
            work: cost of the added ones.
            replaced: trials that finished in this run, and that it has no longer.
        """
        self._total, self._reused, self._known, self._replaced = total, reused, self._known + work, replaced

    @property
    def _work(self) -> float:
        """All work of the run, that of trials to come included."""
        fresh = max(1, self._total - self._reused)
        return self._known * max(1.0, (self._expected - self._reused) / fresh)

    def started(self, job: str, cost: float) -> None:
        """A job has been given to a worker."""
        self._running[job] = _Running(cost, self._clock())

    def advanced(self, job: str, fraction: float, doing: str = "") -> None:
        """A running job has done this fraction of its work, which never goes back; what it does now, in words."""
        running = self._running.get(job)
        if running is not None:
            running.advanced(self._clock(), min(fraction, 1.0), doing)

    def ended(self, job: str) -> None:
        """A job is over; ``settled`` counts its trials."""
        self._running.pop(job, None)

    def settled(self, cost: float, *, failed: bool = False) -> None:
        """One trial has its final outcome, and its part of the work is done."""
        self._settled += cost
        if failed:
            self._failed += 1
        else:
            self._finished += 1

    def snapshot(self) -> Snapshot:
        """The state now."""
        done = self._settled + sum(running.fraction * running.cost for running in self._running.values())
        self._course.add(self._clock(), done)
        self._shown = max(self._shown, min(done / self._work, 1.0))
        return Snapshot(
            total=max(self._total, self._expected),
            finished=self._finished - self._replaced,
            reused=self._reused,
            failed=self._failed,
            running=len(self._running),
            fraction=self._shown,
            eta=self._eta(done),
            note=self.note or self._starting(),
            doing=self._doing(),
        )

    def _starting(self) -> str:
        """Nothing has come of the first packs yet: their processes start."""
        return STARTING if self._running and not self._course.moved and not self._finished else ""

    def _doing(self) -> str:
        longest = min(self._running.values(), key=lambda running: running.began, default=None)
        return longest.doing if longest is not None and self._clock() - longest.began >= LONG else ""

    def _eta(self, done: float) -> float | None:
        if self._work - done <= 1e-9 * self._work:
            return 0.0
        now = self._clock()
        rate = self._course.rate(now)
        known = self._guesses or self._finished
        if rate is None or not known or done < _KNOWN * self._work:
            return None
        # The last packs run on few workers: the end cannot come before the slowest of them.
        working = [running for running in self._running.values() if running.course.moved]
        each = rate / max(1, len(working))
        return max([(self._work - done) / rate, *(running.left(now, each) for running in working)])


class _Course:
    """The work that was done at each moment since the first of it.

    What came before is the start of processes, which the rest of the work does not need again. The load of a machine
    changes, so the rate is that of the later half of the time.
    """

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()
        self._first = (math.nan, 0.0)

    @property
    def moved(self) -> bool:
        """Whether any work has been done."""
        return bool(self._points)

    def add(self, now: float, done: float) -> None:
        if done > (self._points[-1][1] if self._points else 0.0):
            self._first = self._first if self._points else (now, done)
            self._points.append((now, done))

    def rate(self, now: float) -> float | None:
        """Work a second; None before there are two moments to compare."""
        since = (now + self._first[0]) / 2
        while len(self._points) > 2 and self._points[1][0] <= since:
            self._points.popleft()
        if len(self._points) < 2:
            return None
        return self._since(self._points[0], now)

    def mean_rate(self, now: float) -> float | None:
        """Work a second over the whole time."""
        return self._since(self._first, now) if len(self._points) > 1 else None

    def _since(self, start: tuple[float, float], now: float) -> float | None:
        return (self._points[-1][1] - start[1]) / (now - start[0]) if now > start[0] else None


class _Running:
    """A pack that runs."""

    def __init__(self, cost: float, began: float) -> None:
        self.cost, self.began = cost, began
        self.fraction, self.doing, self.course = 0.0, "", _Course()

    def advanced(self, now: float, fraction: float, doing: str) -> None:
        self.fraction, self.doing = max(self.fraction, fraction), doing
        self.course.add(now, self.fraction)

    def left(self, now: float, rate: float) -> float:
        """Seconds until its end: by its own pace once a tenth is done, before that by the rate of a worker."""
        own = self.course.mean_rate(now) if self.fraction >= _OWN_PACE else None
        return (1.0 - self.fraction) / own if own else (1.0 - self.fraction) * self.cost / rate


_UNITS = ((3600, "h"), (60, "min"), (1, "s"))
SILENT = 4.0
"""Seconds after which a phase is named where no terminal is."""
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

    def during(self, words: str) -> AbstractContextManager[None]:
        """Say what the driver does while the body lasts, and nothing runs."""


def open_view(title: str, stream: TextIO | None = None, starting: str = "starting") -> View:
    """The view that suits the stream (standard output when None): live on a terminal, plain otherwise.

    ``starting``: what a live view says before the first snapshot.
    """
    stream = stream if stream is not None else sys.stdout
    return LiveView(title, stream, starting) if stream.isatty() else PlainView(title, stream, starting=starting)


@contextlib.contextmanager
def phase(words: str, stream: TextIO) -> Iterator[None]:
    """Says what a command is doing.

    On a terminal while it lasts; elsewhere if it takes a second or more, afterwards, and after SILENT seconds at once.
    """
    began, live = time.monotonic(), stream.isatty()
    if live:
        _write(stream, f"\r{words} …\x1b[K")
    late = threading.Timer(SILENT, write_line, (stream, f"{words} …"))
    late.daemon = True
    if not live:
        late.start()
    try:
        yield
    finally:
        late.cancel()
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
    """Lines at the start of the first pack and at its first work, then at most one every 30 seconds.

    Args:
        title: the study's name.
        stream: where the lines go.
        clock: monotonic seconds.
        starting: what is done before the first snapshot; empty where that is nothing.
    """

    def __init__(
        self, title: str, stream: TextIO, clock: Callable[[], float] = time.monotonic, starting: str = ""
    ) -> None:
        self._title, self._stream, self._clock, self._starting = title, stream, clock, starting
        self._began = self._last = clock()
        self._latest: Snapshot | None = None
        self._shown = ""

    def __enter__(self) -> PlainView:
        self._began = self._last = self._clock()
        if self._starting:
            self.say(f"{self._title}: {self._starting}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._latest is not None:
            self.say(f"{self._title}: {describe(self._latest)}, ended after {duration(self._clock() - self._began)}")

    def update(self, snapshot: Snapshot) -> None:
        self._latest = snapshot
        stage = "work" if snapshot.fraction > 0 else "packs" if snapshot.running else ""
        if stage != self._shown or self._clock() - self._last >= PLAIN_INTERVAL:
            self._shown, self._last = stage, self._clock()
            self.say(f"{self._title}: {describe(snapshot)}")

    def say(self, line: str, style: str = "") -> None:
        write_line(self._stream, line)

    def during(self, words: str) -> AbstractContextManager[None]:
        return phase(words, self._stream)


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

    @contextlib.contextmanager
    def during(self, words: str) -> Iterator[None]:
        before = self._progress.tasks[0].fields["words"]
        self._progress.update(self._task, words=gated(words), refresh=True)
        try:
            yield
        finally:
            self._progress.update(self._task, words=before, refresh=True)
