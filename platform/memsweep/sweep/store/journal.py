"""The journal of a study: the state of every row of its plan, written by the one driver that holds its lease.

Lines of JSON in numbered segments, each a small file that is written whole: a bucket cannot append. Every driver
begins with one line for each row, so older segments can go. A damaged line is passed over: what the store holds
decides anyway, and the journal adds what the store cannot know (what waits, what runs, how often something failed).
"""

from __future__ import annotations

import contextlib
import enum
import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from memsweep.errors import BrokenChainError
from memsweep.outcome import Outcome
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.record import now

POISONED_AFTER = 3
"""A row that has failed so many times in the same way is not tried again by itself."""

_FOLDER = "journal"
_NAME = re.compile(r"\d{6,}\.\d{6}\.jsonl")
_SEGMENT_LINES = 500  # of one segment, which is written anew with each flush
_FLUSH_SECONDS = 1.0
_KEPT_DRIVERS = 2  # segments of so many drivers stay, so that a damaged newest one loses little


class State(enum.StrEnum):
    """Where a row stands; an ended one is in the state of its outcome."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    DIVERGED = "diverged"
    STOPPED_EARLY = "stopped_early"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"

    @property
    def explanation(self) -> str:
        """What it means, and what to do."""
        return _WAITING.get(self) or Outcome(self.value).explanation

    @property
    def has_result(self) -> bool:
        """Whether the store holds a result of a row in this state."""
        return self in (State.DONE, State.DIVERGED, State.STOPPED_EARLY)


_WAITING = {
    State.QUEUED: "Waits for its turn.",
    State.RUNNING: "A worker computes it.",
    State.CANCELLED: "A later sweep of this study took it out of the plan; its result, if it has one, stays.",
}


@dataclass(frozen=True)
class Row:
    """What the journal knows of one row.

    Attributes:
        state: where it stands.
        since: when it came there, UTC, ISO 8601.
        failures: how often in a row it has failed in the same way.
        way: the way it failed last, see ``way_of``.
    """

    state: State = State.QUEUED
    since: str = ""
    failures: int = 0
    way: str = ""

    @property
    def poisoned(self) -> bool:
        """Whether it has failed so often in the same way that trying again by itself would be in vain."""
        return self.failures >= POISONED_AFTER

    def to(self, state: State, way: str = "") -> Row:
        """The row in another state; a failure counts, a result ends the count."""
        failures, last = self.failures, self.way
        if way:
            failures, last = (failures + 1 if way == self.way else 1), way
        elif state.has_result:
            failures, last = 0, ""
        return Row(state, now(), failures, last)


def way_of(failure: Mapping[str, Any]) -> str:
    """The way in which a trial failed: outcome and error without the numbers, which differ from try to try.

    Empty for a trial that had nothing to begin with because its chain was broken: that is no failure of its own.
    """
    if str(failure.get("error", "")).startswith(BrokenChainError.__name__):
        return ""
    return re.sub(r"[0-9]+", "#", f"{failure.get('outcome')}: {failure.get('error', '')}")[:300]


def read_rows(place: Location) -> dict[str, Row]:
    """The rows of a study as the last driver left them; empty where none has been. Damaged lines are passed over.

    Raises:
        StoreError: the storage cannot be read.
    """
    rows: dict[str, Row] = {}
    with storage_errors("read", place / _FOLDER):
        for name in sorted(filter(_NAME.fullmatch, place.names(_FOLDER))):
            with contextlib.suppress(FileNotFoundError):  # a driver that begins just now has no more use for it
                for line in place.read(f"{_FOLDER}/{name}").splitlines():
                    _apply(line, rows)
    return rows


class Journal:
    """What a driver writes. A journal that cannot be written costs a sentence, never a result.

    Args:
        place: the study's folder.
        rows: every row with its state at the start.

    Attributes:
        rows: every row as it stands.
        trouble: why the last lines are not written; empty while all is well.

    Raises:
        StoreError: the first segment, with all rows, cannot be written.
    """

    def __init__(self, place: Location, rows: Mapping[str, Row]) -> None:
        self.rows = dict(rows)
        self.trouble = ""
        self._place = place
        self._segment, self._lines = 0, [_line(name, row) for name, row in rows.items()]
        self._flushed = time.monotonic()
        with storage_errors("write", place / _FOLDER):
            old = sorted(filter(_NAME.fullmatch, place.names(_FOLDER)))
            drivers = sorted({_driver_of(name) for name in old})
            self._driver = drivers[-1] + 1 if drivers else 0
            self._write()
            for name in old:
                if _driver_of(name) <= self._driver - _KEPT_DRIVERS:
                    place.delete(f"{_FOLDER}/{name}")
        self._segment, self._lines = 1, []

    def note(self, names: Iterable[str], state: State, *, failure: Mapping[str, Any] | None = None) -> None:
        """Rows have come into a state; on the disk within about a second, as long as notes come in."""
        for name in names:
            self.rows[name] = self.rows.get(name, Row()).to(state, way_of(failure) if failure is not None else "")
            self._lines.append(_line(name, self.rows[name]))
        self.flush_if_due()

    def flush_if_due(self) -> None:
        """Write what has been noted, if the last time is a while ago."""
        if time.monotonic() - self._flushed >= _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what has been noted."""
        if not self._lines:
            return
        self._flushed = time.monotonic()
        try:
            self._write()
        except OSError as error:
            self.trouble = f"the journal of {self._place} could not be written: {error.strerror or error}"
            return
        self.trouble = ""
        if len(self._lines) >= _SEGMENT_LINES:
            self._segment, self._lines = self._segment + 1, []

    def _write(self) -> None:
        name = f"{self._driver:06d}.{self._segment:06d}.jsonl"
        self._place.write(f"{_FOLDER}/{name}", ("\n".join(self._lines) + "\n").encode("utf-8", "surrogatepass"))


def settled(
    rows: Mapping[str, Row],
    planned: Iterable[str],
    results: Mapping[str, str],
    failures: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Row]:
    """The rows as a new driver finds them: what a dead driver left running waits again, and the store decides.

    Args:
        rows: as ``read_rows`` gives them.
        planned: identities of the plan; other rows of the journal are cancelled.
        results: identity -> outcome of each stored result.
        failures: identity -> the last failure of a trial without a result. One that is younger than the row's state
            has not been counted: its driver went down with the trial.
    """
    wanted = list(planned)
    found = {}
    for name in wanted:
        row = rows.get(name, Row(since=now()))
        if name in results:
            state = State(results[name])
            found[name] = row if row.state is state else row.to(state)
        elif row.state is State.RUNNING and str((failures or {}).get(name, {}).get("time", "")) >= row.since > "":
            failure = (failures or {})[name]
            found[name] = row.to(State(failure["outcome"]), way_of(failure))
        elif row.state in (State.RUNNING, State.PREEMPTED, State.CANCELLED) or row.state.has_result:
            found[name] = replace(row, state=State.QUEUED, since=now())
        else:
            found[name] = row
    gone = {name: row for name, row in rows.items() if name not in found}
    cancelled = {n: row if row.state is State.CANCELLED else row.to(State.CANCELLED) for n, row in gone.items()}
    return found | cancelled


def ending(rows: Mapping[str, Row], planned: Iterable[str]) -> str:
    """How a sweep of these rows ended: done, failed (some have no result and do not wait), or interrupted."""
    states = {rows[name].state if name in rows else State.QUEUED for name in planned}
    if all(state.has_result for state in states):
        return "done"
    return "interrupted" if states & {State.QUEUED, State.RUNNING, State.PREEMPTED} else "failed"


def _driver_of(segment: str) -> int:
    return int(segment.partition(".")[0])


def _line(name: str, row: Row) -> str:
    return json.dumps(
        {"row": name, "state": row.state, "since": row.since, "failures": row.failures, "way": row.way},
        ensure_ascii=False,
    )


def _apply(line: bytes, rows: dict[str, Row]) -> None:
    try:
        data = json.loads(line)
        rows[str(data["row"])] = Row(State(data["state"]), str(data["since"]), int(data["failures"]), str(data["way"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return
