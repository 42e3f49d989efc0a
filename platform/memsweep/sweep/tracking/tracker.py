"""The driver's side of tracking: results are queued and written by a background thread.

The thread writes them in order, several at once to a server. A slow, unreachable or failing server never delays or
breaks the sweep: a sentence at the end says what is missing, and ``memsweep sync`` adds it from the store.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.errors import one_of
from memsweep.redaction import redacted, without_secrets
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store, folder_name
from memsweep.sweep.tracking import run_content
from memsweep.sweep.tracking.uri import SERVERS, prepare_environment, tracking_uri

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.sweep.tracking.writer import Writer

STATUS = {"done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
"""How a sweep can end, and MLflow's word for it."""

AT_ONCE = 4
"""Trials that are written to a server at the same time."""

_KEPT_IN_MEMORY = 256  # results that wait beyond these are read from the store again when their turn comes
_LONGEST_PAUSE = 10.0  # seconds between tries while the server is away
_LONGEST_END = 600.0  # seconds that a sweep waits at its end for a server that is slow but gets on


@dataclass(frozen=True)
class _Job:
    trial: str | None  # the identity, when the job writes a trial
    what: str
    write: Callable[[Writer], None]


class Tracker:
    """Writes one sweep to MLflow; created by ``Tracker.open``, used by the driver only.

    Attributes:
        uri: the tracking URI without secrets, for messages.
    """

    def __init__(self, uri: str, results: Location | Path, study: str, writer: Callable[[], Writer]) -> None:
        self.uri = redacted(uri)
        self._full_uri = uri
        self._study = study
        self._store = Store(Location.at(results) / folder_name(study))
        self._make_writer = writer
        self._writer: Writer | None = None
        self._jobs: deque[_Job] = deque()
        self._end: _Job | None = None  # written after all others
        self._failures: Mapping[str, Mapping[str, Any]] = {}  # as the store gave them last
        self._changed = threading.Condition()
        self._closing = False
        self._began = time.monotonic()  # start of the wait at the end
        self._abandoned = False
        self._attempted = threading.Event()  # the first attempt to open has ended, with or without success
        self._trials: set[str] = set()
        self._lost: list[tuple[_Job, str]] = []  # refused by MLflow, and why
        self._obstacle = ""  # why the last attempt failed; empty after a success
        self._thread = threading.Thread(target=self._work, name="memsweep-tracking", daemon=True)

    @classmethod
    def open(
        cls,
        uri: str | None,
        results: Location | Path,
        study: str,
        description: str = "",
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
        *,
        patience: float = 30.0,
    ) -> Tracker:
        """Create database, experiment and parent run; returns when they exist, or when MLflow does not answer.

        Args:
            uri: a server or a database; None: ``MLFLOW_TRACKING_URI``, else ``mlflow.db`` in the results folder
                (in ``results/`` right here, where that is a bucket).
            results: the results folder.
            study: the study's name.
            description: shown on the experiment and the parent run.
            params: flat settings of the sweep.
            tags: of the parent run. A sweep with the same study, params and tags continues its parent run.
            patience: longest wait in seconds; a tracker that is not ready then catches up in the background.

        Raises:
            ConfigError: the URI is neither a server nor a database.
        """
        chosen = tracking_uri(uri, results)
        prepare_environment()

        def make_writer() -> Writer:
            from memsweep.sweep.tracking.writer import Writer

            return Writer(chosen, results, study, description, params or {}, tags or {})

        tracker = cls(chosen, results, study, make_writer)
        tracker._put(_Job(None, "the sweep's own run", lambda writer: writer.open()))
        tracker._thread.start()
        tracker._attempted.wait(patience)
        return tracker

    @property
    def experiment_id(self) -> str | None:
        """MLflow's id of the study's experiment, once it exists."""
        return self._writer.experiment_id if self._writer else None

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the sweep's parent run, once it exists."""
        return self._writer.parent_id if self._writer else None

    @property
    def waiting(self) -> int:
        """How many jobs are queued and not written yet."""
        return len(self._jobs) + (self._end is not None)

    def log_trial(self, record: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> None:
        """Queue a stored result; returns at once. A result that is in MLflow already is not written twice."""
        identity = record["identity"]
        if len(self._jobs) > _KEPT_IN_MEMORY:
            self.log_stored([identity])
            return
        self._put(_Job(identity, identity, partial(_write, record, tables)))

    def log_stored(self, identities: Iterable[str]) -> None:
        """Queue results of the study's store (reused ones, for example); they are read when they are written."""
        for identity in identities:
            self._put(_Job(identity, identity, partial(self._write_stored, identity)))

    def log_failure(self, identity: str, failure: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """Queue a trial that has no result.

        Args:
            identity: the trial's identity.
            failure: ``outcome``, ``error``, ``traceback``, ``time``; without a time, what the store holds of it.
            config: the trial's canonical dict.
        """
        self._put(_Job(identity, identity, partial(self._write_failure, identity, failure, config)))

    def log_report(self, folder: Path) -> None:
        """Queue the report's files, which become artifacts of the parent run. They must stay until ``finish``."""
        self._put(_Job(None, "the report", lambda writer: writer.write_report(folder)))

    def finish(self, outcome: str = "done", *, patience: float = 60.0) -> str:
        """Write the queued jobs and end the parent run.

        Args:
            outcome: how the sweep ended: done, failed (some trials have no result) or interrupted.
            patience: longest wait in seconds for any answer of MLflow; after an interruption the longest wait in all.
                A slow server that does answer is waited for up to ten minutes. Ctrl-C ends the wait.

        Returns:
            A sentence for the user if something is not in MLflow, else an empty string.

        Raises:
            ValueError: another outcome.
        """
        if outcome not in STATUS:
            raise ValueError(f"a sweep cannot end as {outcome!r}; allowed: {one_of(STATUS)}")
        status = STATUS[outcome]
        with self._changed:
            self._end = _Job(None, "the end of the sweep's own run", lambda writer: writer.close(status))
            self._closing = True
            self._changed.notify_all()
        with contextlib.suppress(KeyboardInterrupt):  # the results are in the store and cannot be lost
            self._wait(patience, patience if outcome == "interrupted" else max(patience, _LONGEST_END))
        with self._changed:
            self._abandoned = True
            waiting = [*self._jobs, *([self._end] if self._end else [])]
        if waiting and self._thread.is_alive():
            self._obstacle = self._obstacle or f"{self.uri} was still busy after {time.monotonic() - self._began:.0f} s"
        return self._sentence(waiting)

    def _wait(self, patience: float, longest: float) -> None:
        self._began = time.monotonic()
        state = self._state()
        while self._thread.is_alive() and (left := self._began + longest - time.monotonic()) > 0:
            self._thread.join(min(patience, left))
            if state == (state := self._state()):
                return

    def _state(self) -> tuple[int, int]:
        """Numbers that change as long as the writing makes progress."""
        return self.waiting, self._writer.calls.answered if self._writer else 0

    def _sentence(self, waiting: list[_Job]) -> str:
        missing = [job for job, _ in self._lost] + waiting
        if not missing:
            return ""
        trials = {job.trial for job in missing if job.trial is not None}
        counted = [f"{len(trials)} of {len(self._trials)} trials"] if trials else []
        what = ", ".join([*counted, *(job.what for job in missing if job.trial is None)])
        reasons = dict.fromkeys([why for _, why in self._lost] + ([self._obstacle] if waiting else []))
        results = self._store.location.parent
        elsewhere = f" --results {shlex.quote(results.uri)}" if results != Location.at("results") else ""
        return (
            f"Not in MLflow yet: {what} ({'; '.join(list(reasons)[:3])}). The results are safe in "
            f"{self._store.location}; memsweep sync {shlex.quote(self._study)}{elsewhere} adds what is missing."
        )

    def _put(self, job: _Job) -> None:
        with self._changed:
            if job.trial is not None:
                self._trials.add(job.trial)
            self._jobs.append(job)
            self._changed.notify_all()

    def _write_stored(self, identity: str, writer: Writer) -> None:
        if not writer.has(identity):
            _write(*self._store.result(identity), writer)

    def _write_failure(
        self, identity: str, failure: Mapping[str, Any], config: Mapping[str, Any], writer: Writer
    ) -> None:
        if "time" not in failure:
            if identity not in self._failures:
                self._failures = self._store.failures()
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            failure = {"time": now, **failure, **self._failures.get(identity, {})}
        writer.write(run_content.failed_run(identity, failure, config))

    def _work(self) -> None:
        failures = 0  # in a row
        while jobs := self._next(_pause(failures), self._at_once(failures)):
            errors = self._attempts(jobs)
            self._attempted.set()
            with self._changed:
                if self._abandoned:
                    return
                again = [self._remains(job, error) for job, error in zip(jobs, errors, strict=True)]
                failures = failures + 1 if all(again) else 0
                if self._closing and failures > 1:
                    return

    def _at_once(self, failures: int) -> int:
        """How many trials to write at once: several to a server, one to a file or after a failure."""
        server = self._full_uri.partition(":")[0].lower() in SERVERS
        return AT_ONCE if server and self.run_id is not None and not failures else 1

    def _attempts(self, jobs: list[_Job]) -> list[Exception | None]:
        """Try independent jobs, all at once."""
        errors: list[Exception | None] = [None] * len(jobs)

        def attempt(place: int) -> None:
            errors[place] = self._attempt(jobs[place])

        # no pool: the end of the process would wait for its threads
        others = [threading.Thread(target=attempt, args=(place,), daemon=True) for place in range(1, len(jobs))]
        for thread in others:
            thread.start()
        attempt(0)
        for thread in others:
            thread.join()
        return errors

    def _remains(self, job: _Job, error: Exception | None) -> bool:
        """Remove the oldest job from the queue, or move it to the end for another attempt; whether it remains."""
        self._obstacle, transient = self._reason(error) if error else ("", False)
        if transient:
            self._jobs.rotate(-1)  # so that a job that always fails does not block the others
            return True
        if job is self._end:
            self._end = None
        else:
            self._jobs.popleft()
        if error is not None:
            self._lost.append((job, self._obstacle))
        return False

    def _next(self, pause: float, most: int) -> list[_Job]:
        """The oldest jobs, after a pause that closing ends; none if the tracker is closing and the queue is empty.

        Several jobs are given only if they write different trials, because these are independent.
        """
        with self._changed:
            if pause:
                self._changed.wait_for(lambda: self._closing, timeout=pause)
            self._changed.wait_for(lambda: bool(self._jobs) or self._closing)
            if self._abandoned:
                return []
            if not self._jobs:
                return [self._end] if self._end else []
            jobs = {self._jobs[0].trial: self._jobs[0]}
            for job in itertools.islice(self._jobs, 1, most):
                if None in jobs or job.trial is None or job.trial in jobs:
                    break
                jobs[job.trial] = job
            return list(jobs.values())

    def _attempt(self, job: _Job) -> Exception | None:
        try:
            if self._writer is None:
                self._writer = self._make_writer()
            job.write(self._writer)
        except Exception as error:  # an error of MLflow must not break the sweep; the sentence at the end reports it
            return error
        return None

    def _reason(self, error: Exception) -> tuple[str, bool]:
        """Why an attempt failed, and whether another one may help."""
        try:
            from memsweep.sweep.tracking.retries import is_transient, reason
        except ImportError:  # MLflow itself cannot be imported
            return f"{type(error).__name__}: {without_secrets(str(error))}", False
        return reason(error, self._full_uri), is_transient(error)


def _write(record: Mapping[str, Any], tables: Mapping[str, pd.DataFrame], writer: Writer) -> None:
    if not writer.holds(record["identity"], run_content.stamp_of_result(record)):
        writer.write(run_content.finished_run(record, tables))


def _pause(failures: int) -> float:
    """Seconds before the next attempt: none, then 1, 2, 4 and so on up to a maximum."""
    return min(2.0 ** min(failures, 10) / 2, _LONGEST_PAUSE) if failures else 0.0
