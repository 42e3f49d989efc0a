"""The driver's side of tracking: threads in the background write stored results to MLflow, several at once to a server.

A slow, unreachable or failing server never delays or breaks the sweep: a sentence at the end says what is missing, and
``memsweep sync`` adds it from the store.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.errors import one_of
from memsweep.extras import is_there, line_for
from memsweep.redaction import redacted, without_secrets
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.typed import typed
from memsweep.sweep.tracking import run_content
from memsweep.sweep.tracking.run_content import Verdicts
from memsweep.sweep.tracking.uri import SERVERS, prepare_environment, runs_page, tracking_uri

if TYPE_CHECKING:
    from memsweep.sweep.tracking.writer import Writer

STATUS = {"done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
"""How a sweep can end, and MLflow's word for it."""

AT_ONCE = 4
"""Trials that are written to a server at the same time."""

_LONGEST_PAUSE = 10.0  # seconds between tries while the server is away
_ERROR = "final/error"
_ORDERS = tuple(f"ball_{ball}/{what}" for what in ("slope", "radius") for ball in ("recurrent", "weights", "all"))
"""Metrics by which the page of the runs is in order, the first that a study has: the steepest slope first."""
_LONGEST_END = 600.0  # seconds that a sweep waits at its end for a server that is slow but gets on
_BEGIN, _REPORT, _END = "the sweep's own run", "the report", "the end of the sweep's own run"

_Job = Callable[["Writer"], None]


class Tracker:
    """Writes one sweep to MLflow; used by the driver only.

    It creates database, experiment and parent run at once, or with the first result: MLflow's import costs as much
    as a small trial.

    Args:
        uri: a server or a database; None: ``MLFLOW_TRACKING_URI``, else ``mlflow.db`` in the results folder
            (in ``results/`` right here, where that is a bucket).
        results: the results folder.
        study: the study's name.
        description: shown on the experiment and the parent run.
        params: flat settings of the sweep.
        tags: of the parent run. A sweep with the same study, params and tags continues its parent run.
        varied: dotted paths of the fields that the study varies; runs are named by them.
        patience: longest wait of the constructor in seconds, for these three; a tracker that is not ready then catches
            up in the background.
        delay: seconds after which they are created where nothing else is to be written.

    Attributes:
        uri: the tracking URI without secrets, for messages.

    Raises:
        ConfigError: the URI is neither a server nor a database.
    """

    def __init__(
        self,
        uri: str | None,
        results: Location | Path,
        study: str,
        description: str = "",
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
        varied: Collection[str] = (),
        *,
        patience: float = 30.0,
        delay: float = 0.0,
    ) -> None:
        self._full_uri = tracking_uri(uri, results)
        self.uri = redacted(self._full_uri)
        self._study, self._varied = study, varied
        self._store = Store(Location.at(results) / folder_name(study))
        self._about = (results, study, description, params or {}, tags or {})
        self._writer: Writer | None = None
        self._opening = threading.Lock()
        self._changed = threading.Condition()
        self._jobs: dict[str, _Job] = {}  # name -> what is not written yet, in the order of the attempts
        self._running: set[str] = set()
        self._trials: set[str] = set()  # names of all jobs that write a trial
        self._written: set[str] = set()  # those of them whose trial MLflow has; a verdict may be missing
        self._lost: dict[str, str] = {}  # name of a job that MLflow refused -> why
        self._closing = self._abandoned = False
        self._delay = delay
        self._order = _ERROR
        self._failures = 0  # in a row
        self._obstacle = ""  # why the last attempt failed; empty after a success
        self._attempted = threading.Event()  # the first attempt has ended, with or without success
        prepare_environment()
        self._put(_BEGIN, lambda writer: None)
        # daemons, because the end of the process waits for the threads of a pool
        several = AT_ONCE if self._full_uri.partition(":")[0].lower() in SERVERS else 1
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(several)]
        for thread in self._threads:
            thread.start()
        self._attempted.wait(patience)

    @property
    def experiment_id(self) -> str | None:
        """MLflow's id of the study's experiment, once it exists."""
        return self._writer.experiment_id if self._writer else None

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the sweep's parent run, once it exists."""
        return self._writer.parent_id if self._writer else None

    @property
    def page(self) -> str:
        """The path of MLflow's page of the sweep's runs; empty while the sweep's own run does not exist."""
        writer = self._writer
        return runs_page(writer.experiment_id, writer.parent_id, self._order) if writer else ""

    @property
    def address(self) -> str:
        """The address of that page; empty where there is no server, or its address must not be written down."""
        known = self.uri.rstrip("/") == self._full_uri.rstrip("/") and self.uri.partition(":")[0].lower() in SERVERS
        return f"{self.uri.rstrip('/')}{self.page}" if known and self.page else ""

    def opened_address(self, patience: float = 30.0) -> str:
        """``address`` once the sweep's own run exists: a server is waited for so many seconds at most."""
        if self._full_uri.partition(":")[0].lower() in SERVERS:
            self._attempted.wait(patience)
        return self.address

    @property
    def waiting(self) -> int:
        """How many jobs are not written yet."""
        return len(self._jobs)

    def log_stored(self, identities: Iterable[str]) -> None:
        """Queue results of the study's store; returns at once. A result that is in MLflow is not written twice."""
        for identity in identities:
            self._trials.add(identity)
            self._put(identity, partial(self._write_stored, identity))

    def log_failure(self, identity: str, failure: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """Queue a trial that has no result.

        Args:
            identity: the trial's identity.
            failure: as the store keeps it.
            config: the trial's canonical dict.
        """
        self._trials.add(identity)
        self._put(
            identity, lambda writer: writer.write(run_content.failed_run(identity, failure, config, self._varied))
        )

    def log_verdicts(self, verdicts: Mapping[str, Verdicts]) -> None:
        """Queue what a finished study says about its trials, by identity, whose results are stored.

        The page of the runs is in the order of their slopes from then on, or of their radii.
        """
        measured = {name for about in verdicts.values() for name in about.metrics}
        self._order = next((name for name in _ORDERS if name in measured), self._order)
        for identity, about in verdicts.items():
            self._trials.add(identity)
            self._put(identity, partial(self._write_stored, identity, verdicts=about))

    def log_report(self, folder: Path, about: Verdicts | None = None) -> None:
        """Queue the report's files, which become artifacts of the parent run, and what a finished study says there.

        Args:
            folder: of the files, which must stay until ``finish``.
            about: metrics and tags of the parent run; None of a study that has not ended.
        """
        self._put(_REPORT, lambda writer: writer.write_report(folder, about))

    def finish(self, outcome: str = "done", *, keep: Collection[str] | None = None, patience: float = 60.0) -> str:
        """Write the queued jobs and end the parent run.

        Args:
            outcome: how the sweep ended: done, failed (some trials have no result) or interrupted.
            keep: the trials whose runs stay; None for all.
            patience: longest wait in seconds for one more trial in MLflow; after an interruption the longest wait in
                all. A slow server that gets on is waited for up to ten minutes. Ctrl-C ends the wait.

        Returns:
            A sentence for the user if something is not in MLflow, else an empty string.

        Raises:
            ValueError: another outcome.
        """
        if outcome not in STATUS:
            raise ValueError(f"a sweep cannot end as {outcome!r}; allowed: {one_of(STATUS)}")
        if outcome == "interrupted" and self._is_unbegun():
            return ""
        began = time.monotonic()
        self._put(_END, lambda writer: writer.close(STATUS[outcome], keep))
        with self._changed:
            self._closing, self._failures = True, 0  # an outage that is over by now counts no more
            self._changed.notify_all()
        with contextlib.suppress(KeyboardInterrupt):  # the results are in the store and cannot be lost
            self._wait(patience, began + (patience if outcome == "interrupted" else max(patience, _LONGEST_END)))
        with self._changed:
            self._abandoned = True
            if self._jobs and any(thread.is_alive() for thread in self._threads) and not self._obstacle:
                self._obstacle = f"{self.uri} was still busy after {time.monotonic() - began:.0f} s"
            return self._sentence()

    def _is_unbegun(self) -> bool:
        """Whether nothing of this sweep is in MLflow, nor was to be; nothing is written then from here on."""
        with self._changed:
            unbegun = [*self._jobs] == [_BEGIN] and not self._running and not self._attempted.is_set()
            self._abandoned |= unbegun
            self._changed.notify_all()
            return unbegun

    def _wait(self, patience: float, end: float) -> None:
        """Wait for the threads, as long as the number of jobs decreases."""
        left = self.waiting + 1
        while self.waiting < left and any(thread.is_alive() for thread in self._threads):
            left, until = self.waiting, min(time.monotonic() + patience, end)
            for thread in self._threads:
                thread.join(max(0.0, until - time.monotonic()))

    def _sentence(self) -> str:
        missing = [*self._lost, *self._jobs]
        if not missing:
            return ""
        trials = self._trials.intersection(missing)
        groups = {"trials": trials - self._written, "verdicts": trials & self._written}
        counted = [f"{len(names)} of {len(self._trials)} {kind}" for kind, names in groups.items() if names]
        what = ", ".join([*counted, *(name for name in missing if name not in trials)])
        reasons = dict.fromkeys([*self._lost.values(), *([self._obstacle] if self._jobs else [])])
        sync = typed("sync", self._study, self._store.location.parent)
        return (
            f"Not in MLflow yet: {what} ({'; '.join(list(reasons)[:3])}). The results are safe in "
            f"{self._store.location}; {sync} adds what is missing."
        )

    def _put(self, name: str, job: _Job) -> None:
        with self._changed:
            self._jobs[name] = job
            self._lost.pop(name, None)
            self._changed.notify_all()

    def _write_stored(self, identity: str, writer: Writer, verdicts: Verdicts | None = None) -> None:
        record = self._store.record(identity)
        if not writer.holds(identity, run_content.stamp_of_result(record)):
            writer.write(
                run_content.finished_run(record, self._store.tables_of(record, run_content.shown()), self._varied)
            )
        if verdicts is not None:
            writer.write_verdicts(identity, verdicts)

    def _work(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._jobs) > 1 or self._closing or self._abandoned, self._delay)
        while (name := self._next()) is not None:
            job = self._jobs[name]
            why, transient = self._attempt(job)
            with self._changed:
                self._attempted.set()
                self._running.discard(name)
                self._obstacle, self._failures = why, self._failures + 1 if transient else 0
                if not why:
                    self._written.add(name)
                if transient:  # to the end, so that a job that always fails does not block the others
                    self._jobs[name] = self._jobs.pop(name)
                elif self._jobs[name] is job:
                    del self._jobs[name]
                    self._lost |= {name: why} if why else {}
                self._changed.notify_all()

    def _next(self) -> str | None:
        """The next job, after a pause that closing ends; None if there will be none, or MLflow is away at the end."""
        with self._changed:
            if self._failures:
                pause = min(2.0 ** min(self._failures, 10) / 2, _LONGEST_PAUSE)
                self._changed.wait_for(lambda: self._closing, timeout=pause)
            while not self._abandoned:
                away = self._failures > len(self._threads)
                if self._closing and (not self._jobs or away):
                    return None
                for name in self._jobs:
                    if name not in self._running and (name != _END or len(self._jobs) == 1):
                        self._running.add(name)
                        return name
                self._changed.wait()
            return None

    def _attempt(self, job: _Job) -> tuple[str, bool]:
        """Do a job; why it failed (empty: it is done), and whether another attempt may help."""
        try:
            with self._opening:
                if self._writer is None:
                    from memsweep.sweep.tracking.writer import Writer

                    self._writer = Writer(self._full_uri, *self._about)
            job(self._writer)
        except Exception as error:  # an error of MLflow must not break the sweep; the sentence at the end reports it
            try:
                from memsweep.sweep.tracking.writer import is_transient, reason
            except Exception:  # MLflow itself cannot be imported: it is not there, or lacks a home folder
                absent = "" if is_there("mlflow") else f"mlflow is not installed: {line_for('mlflow')}"
                return absent or f"{type(error).__name__}: {without_secrets(str(error))}", False
            return reason(error, self._full_uri), is_transient(error)
        return "", False


def sync(
    results: Location | Path,
    study: str,
    configs: Mapping[str, Mapping[str, Any]],
    tracking: Mapping[str, Any],
    ended: str,
    report_folder: Path,
    verdicts: Mapping[str, Verdicts] | None = None,
    about: Verdicts | None = None,
    uri: str | None = None,
) -> str:
    """Bring MLflow to the state after an undisturbed sweep, which depends only on the store and the plan.

    Complete runs stay. Missing, incomplete, duplicate and outdated ones are corrected. No other process may write this
    sweep's runs meanwhile.

    Args:
        results: the results folder.
        study: the study's name.
        configs: identity -> canonical config, of the rows of the plan.
        tracking: ``description``, ``params``, ``tags`` and ``varied``, as the sweep's tracker had them.
        ended: how the sweep ended: done, failed or interrupted.
        report_folder: the report's files.
        verdicts: of a finished study, by identity.
        about: of a finished study, for its own run.
        uri: as for ``Tracker``.

    Returns:
        A sentence for the user if something is not in MLflow, else an empty string.

    Raises:
        ConfigError: the URI is neither a server nor a database.
        StoreError: the store cannot be listed.
    """
    store = Store(Location.at(results) / folder_name(study))
    stored = [name for name in store.identities() if name in configs]
    failures = {name: failure for name, failure in store.failures().items() if name in configs.keys() - set(stored)}
    tracker = Tracker(uri, results, study, **tracking)
    tracker.log_stored(stored)
    for name, failure in failures.items():
        tracker.log_failure(name, failure, configs[name])
    tracker.log_verdicts({name: about for name, about in (verdicts or {}).items() if name in stored})
    tracker.log_report(report_folder, about)
    return tracker.finish(ended, keep=[*stored, *failures], patience=_LONGEST_END)
