"""The journal of a study: the state of every trial of its plan, written by the one driver that holds its lease.

Lines of JSON in numbered segments, each a small file that is written whole: a bucket cannot append. Every driver
begins with one line for each trial, so older segments can go. A damaged line is passed over: the store
decides which results exist, and the journal adds which trials wait, run or failed, and how often.
"""

from __future__ import annotations

import contextlib
import enum
import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from memsweep.errors import BrokenChainError
from memsweep.outcome import Outcome
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.record import now

GIVE_UP_AFTER = 3
"""A trial that has failed so many times in the same way runs again only when a person asks for it."""

_FOLDER = "journal"
_NAME = re.compile(r"\d{6,}\.\d{6}\.jsonl")
_SEGMENT_LINES = 500  # of one segment, which is written anew with each flush
_FLUSH_SECONDS = 1.0
_KEPT_DRIVERS = 2  # segments of so many drivers stay, so that a damaged newest one loses little


class State(enum.StrEnum):
    """The state of a trial; an ended one is in the state of its outcome."""

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
        """The meaning of the state, and what to do."""
        return _EXPLANATIONS.get(self) or Outcome(self.value).explanation

    @property
    def has_result(self) -> bool:
        """Whether the store holds a result of a trial in this state."""
        return self in (State.DONE, State.DIVERGED, State.STOPPED_EARLY)


_EXPLANATIONS = {
    State.QUEUED: "Waits for its turn.",
    State.RUNNING: "A worker computes it.",
    State.CANCELLED: "A later sweep, or a round of decide, took it out of the plan; its result, if it has one, stays.",
    State.FAILED: (
        "The task's or the model's code raised; the traceback is in the report. Mend it, and run the same command "
        "again: resume, retry and extend refuse code that has changed, and name the command that runs it."
    ),
}


@dataclass(frozen=True)
class TrialStatus:
    """The journal's entry of one trial.

    Attributes:
        state: the present one.
        since: when the trial came into it, UTC, ISO 8601.
        failures: how many times in succession it failed in the same way.
        kind: of the last failure, see ``failure_kind``.
        counted: time of the last stored failure that is in this count; it only tells one failure from another,
            because the clocks of a worker and of its driver may differ.
    """

    state: State = State.QUEUED
    since: str = ""
    failures: int = 0
    kind: str = ""
    counted: str = ""

    @property
    def given_up(self) -> bool:
        """Whether it failed so often in the same way that it is not tried again without being asked for."""
        return self.failures >= GIVE_UP_AFTER

    def to(self, state: State, failure: Mapping[str, Any] | None = None) -> TrialStatus:
        """The trial in another state; a failure counts, a result ends the count."""
        kind = failure_kind(failure) if failure is not None else ""
        failures = (self.failures + 1 if kind == self.kind else 1) if kind else self.failures
        counted = str((failure or {}).get("time", self.counted))
        if state.has_result:
            return TrialStatus(state, now())
        return TrialStatus(state, now(), failures, kind or self.kind, counted)


def failed_often(statuses: Mapping[str, TrialStatus]) -> frozenset[str]:
    """Identities of the trials that are not tried again without being asked for."""
    return frozenset(name for name, status in statuses.items() if status.given_up)


def failure_kind(failure: Mapping[str, Any]) -> str:
    """The kind of a failure: outcome and error without the numbers, which differ from try to try.

    Empty for a trial whose chain broke at an earlier trial: that one failed.
    """
    if str(failure.get("error", "")).startswith(BrokenChainError.__name__):
        return ""
    return re.sub(r"[0-9]+", "#", f"{failure.get('outcome')}: {failure.get('error', '')}")[:300]


def read_statuses(place: Location) -> dict[str, TrialStatus]:
    """Reads the state of every trial as the last driver left it; empty without a journal. Skips damaged lines.

    Raises:
        StoreError: the storage cannot be read.
    """
    statuses: dict[str, TrialStatus] = {}
    with storage_errors("read", place / _FOLDER):
        for name in _segments(place):
            with contextlib.suppress(FileNotFoundError):  # a driver that starts just now has deleted it
                for line in place.read(f"{_FOLDER}/{name}").splitlines():
                    _apply(line, statuses)
    return statuses


class Journal:
    """Writes the journal. A journal that cannot be written costs a warning, never a result.

    Args:
        place: the study's folder.
        trials: every trial with its state at the start.
        written: False: it is kept in memory alone, by a driver that does not lead.

    Attributes:
        trials: every trial with its present state.
        trouble: why the last lines are not written; empty when they are.

    Raises:
        StoreError: the first segment, with all trials, cannot be written.
    """

    def __init__(self, place: Location, trials: Mapping[str, TrialStatus], *, written: bool = True) -> None:
        self.trials = dict(trials)
        self.trouble = ""
        self._place, self._written = place, written
        self._segment, self._lines = 0, [_line(name, status) for name, status in trials.items()]
        self._flushed = time.monotonic()
        with storage_errors("write", place / _FOLDER):
            old = _segments(place) if written else []
            self._driver = _numbers(old[-1])[0] + 1 if old else 0
            self._write()
            for name in old:
                if _numbers(name)[0] <= self._driver - _KEPT_DRIVERS:
                    place.delete(f"{_FOLDER}/{name}")
        self._segment, self._lines = 1, []

    def note(self, names: Iterable[str], state: State, *, failure: Mapping[str, Any] | None = None) -> None:
        """Notes that trials came into a state; written within about a second, as long as notes come in."""
        for name in names:
            self.trials[name] = self.trials.get(name, TrialStatus()).to(state, failure)
            self._lines.append(_line(name, self.trials[name]))
        self.flush_if_due()

    def flush_if_due(self) -> None:
        """Writes the notes, if the last time is a second ago."""
        if time.monotonic() - self._flushed >= _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Writes the notes."""
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
        if not self._written:
            return
        name = f"{self._driver:06d}.{self._segment:06d}.jsonl"
        self._place.write(f"{_FOLDER}/{name}", ("\n".join(self._lines) + "\n").encode("utf-8", "surrogatepass"))


def recovered_statuses(
    statuses: Mapping[str, TrialStatus],
    planned: Iterable[str],
    results: Mapping[str, str],
    failures: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, TrialStatus]:
    """The states with which a new driver starts: trials that a dead driver left running wait again.

    Args:
        statuses: as ``read_statuses`` gives them.
        planned: identities of the plan; other trials of the journal are cancelled.
        results: identity -> outcome of each stored result.
        failures: identity -> the last failure of a trial without a result. A running trial with another one than was
            counted last: its driver went down with the trial. A trial that waits: another driver of the study ran it.
    """
    states, failures = {}, failures or {}
    for name in planned:
        status = statuses.get(name, TrialStatus(since=now()))
        if name in results:
            state = State(results[name])
            states[name] = status if status.state is state else status.to(state)
        else:
            states[name] = _without_result(status, failures.get(name, {}))
    gone = {name: status for name, status in statuses.items() if name not in states}
    cancelled = {
        n: status if status.state is State.CANCELLED else status.to(State.CANCELLED) for n, status in gone.items()
    }
    return states | cancelled


def _without_result(status: TrialStatus, failure: Mapping[str, Any]) -> TrialStatus:
    """The state in which a trial of the plan that has no result starts; ``failure`` is its last one, if any."""
    if status.state in (State.RUNNING, State.QUEUED) and failure.get("time", status.counted) != status.counted:
        return status.to(State(failure["outcome"]), failure)
    if status.given_up and status.state is not State.CANCELLED:
        # its driver died between the last failure and another try, which nobody makes unasked
        lacked_memory = status.kind.startswith(State.OUT_OF_MEMORY)
        return replace(status, state=State.OUT_OF_MEMORY if lacked_memory else State.FAILED)
    if status.state in (State.RUNNING, State.PREEMPTED, State.CANCELLED) or status.state.has_result:
        return replace(status, state=State.QUEUED, since=now())
    return status


def ending(statuses: Mapping[str, TrialStatus], planned: Iterable[str]) -> str:
    """How a sweep of these trials ended: done, failed (some have no result and do not wait), or interrupted."""
    states = {statuses[name].state if name in statuses else State.QUEUED for name in planned}
    if all(state.has_result for state in states):
        return "done"
    return "interrupted" if states & {State.QUEUED, State.RUNNING, State.PREEMPTED} else "failed"


def _segments(place: Location) -> list[str]:
    """In the order in which they were written: by number, because a number may outgrow its six digits."""
    return sorted(filter(_NAME.fullmatch, place.names(_FOLDER)), key=_numbers)


def _numbers(segment: str) -> tuple[int, int]:
    driver, number, _ = segment.split(".")
    return int(driver), int(number)


def _line(name: str, status: TrialStatus) -> str:
    return json.dumps({"trial": name, **asdict(status)}, ensure_ascii=False)


def _apply(line: bytes, statuses: dict[str, TrialStatus]) -> None:
    try:
        data = json.loads(line)
        texts = [data[name] for name in ("trial", "since", "kind", "counted")]
        if all(isinstance(text, str) for text in texts) and type(data["failures"]) is int:
            status = TrialStatus(State(data["state"]), data["since"], data["failures"], data["kind"], data["counted"])
            statuses[data["trial"]] = status
    except (ValueError, KeyError, TypeError, RecursionError):
        return
