"""Brings MLflow to the state after an undisturbed sweep, which depends only on the store and the plan.

Complete runs stay. Missing, incomplete, duplicate and outdated ones are corrected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.errors import StoreError, one_of
from memsweep.redaction import redacted
from memsweep.sweep.store.filesystem import Location, at_once
from memsweep.sweep.store.results import Store, folder_name
from memsweep.sweep.tracking import run_content
from memsweep.sweep.tracking.tracker import AT_ONCE, STATUS
from memsweep.sweep.tracking.uri import SERVERS, prepare_environment, tracking_uri

if TYPE_CHECKING:
    from memsweep.sweep.tracking.writer import Writer

_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds between the tries of one step, before the server counts as away
_LONGEST_STEP = 60.0  # seconds after which a step that failed is not tried again


@dataclass(frozen=True)
class SyncResult:
    """Result of a sync.

    Attributes:
        added: identities of the trials whose runs were written.
        present: how many trials were in MLflow before.
        removed: how many runs were deleted, because their trials are neither results nor failures of the plan.
        missing: an identity, or a part of the sweep's own run, that is not in MLflow -> why.
        where: the tracking URI without secrets.
        experiment_id: of the study; None when nothing could be opened.
    """

    added: tuple[str, ...]
    present: int
    removed: int
    missing: Mapping[str, str]
    where: str
    experiment_id: str | None

    @property
    def complaint(self) -> str:
        """A sentence for the user if something is not in MLflow, else an empty string."""
        if not self.missing:
            return ""
        names = list(self.missing)
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        reasons = "; ".join(list(dict.fromkeys(self.missing.values()))[:3])
        return f"Not in MLflow yet: {', '.join(names[:3])}{more} ({reasons}). Run the same command again to add it."


def sync(
    uri: str | None,
    results: Location | Path,
    study: str,
    tracking: Mapping[str, Any],
    identities: Sequence[str],
    configs: Mapping[str, Mapping[str, Any]],
    ended: str,
    report_folder: Path | None,
    say: Callable[[str], None],
) -> SyncResult:
    """Bring MLflow up to the store. No other process may write this sweep's runs meanwhile.

    Args:
        uri: as for ``Tracker.open``.
        results: the results folder.
        study: the study's name.
        tracking: ``params``, ``tags`` and ``description`` of the sweep, as its tracker was opened with them.
        identities: the rows of the plan.
        configs: identity -> canonical config, of the rows that may have failed.
        ended: how the sweep ended: done, failed or interrupted.
        report_folder: the report's files; None leaves those in MLflow.
        say: called with the difference, before it is written.

    Raises:
        ConfigError: the URI is neither a server nor a database.
        StoreError: the store cannot be listed.
        ValueError: another end.
    """
    if ended not in STATUS:
        raise ValueError(f"a sweep cannot end as {ended!r}; allowed: {one_of(STATUS)}")
    chosen = tracking_uri(uri, results)
    prepare_environment()
    from memsweep.sweep.tracking.writer import Writer

    params, tags = tracking.get("params") or {}, tracking.get("tags") or {}
    writer = Writer(chosen, results, study, str(tracking.get("description") or ""), params, tags)
    job = _Sync(writer, chosen, Store(Location.at(results) / folder_name(study)), say)
    return job.run(identities, configs, STATUS[ended], report_folder)


@dataclass
class _Sync:
    writer: Writer
    uri: str
    store: Store
    say: Callable[[str], None]
    missing: dict[str, str] = field(default_factory=dict)
    given_up: int = 0  # steps in a row that failed after all attempts
    away: str = ""  # why the server counts as unreachable; no further step is attempted then

    def run(
        self, identities: Sequence[str], configs: Mapping[str, Mapping[str, Any]], status: str, report: Path | None
    ) -> SyncResult:
        rows, stored, failures = list(dict.fromkeys(identities)), self.store.identities(), self.store.failures()
        records = dict(self._records([name for name in rows if name in stored]))
        failed = {name: failures[name] for name in rows if name in failures}
        results, errors = _counted(len(records), "result"), _counted(len(failed), "failure")
        self.say(f"sync: {results} and {errors} of {_counted(len(rows), 'trial')} are stored")
        self._step("the sweep's own run", self.writer.open)
        if why := self.missing.get("the sweep's own run"):
            self.missing |= dict.fromkeys([*records, *failed], why)
            return self._result((), 0, 0)
        stamps = {name: run_content.stamp_of_result(record) for name, record in records.items()}
        stamps |= {name: run_content.stamp_of_failure(failure) for name, failure in failed.items()}
        todo = [name for name, stamp in stamps.items() if not self.writer.holds(name, stamp)]
        self.say(f"sync: {len(stamps) - len(todo)} of them are in MLflow ({redacted(self.uri)}), {len(todo)} to add")
        added = self._added(todo, records, failed, configs)
        removed: list[int] = []
        keep = {*stamps, *(name for name in rows if name in stored)}  # the runs of unreadable results stay
        self._step("the removal of what is no longer stored", lambda: removed.append(self.writer.keep_only(keep)))
        if report is not None:
            self._step("the report", lambda: self.writer.write_report(report))
        self._step("the end of the sweep's own run", lambda: self.writer.close(status))
        return self._result(tuple(added), len(stamps) - len(todo), sum(removed))

    def _result(self, added: tuple[str, ...], present: int, removed: int) -> SyncResult:
        return SyncResult(added, present, removed, self.missing, redacted(self.uri), self.writer.experiment_id)

    def _records(self, identities: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The readable records; the others are noted as missing."""

        def read(identity: str) -> Mapping[str, Any] | StoreError:
            try:
                return self.store.record(identity)
            except StoreError as error:
                return error

        for identity, record in zip(identities, at_once(read, identities), strict=True):
            if isinstance(record, StoreError):
                self.missing[identity] = str(record)
            else:
                yield identity, record

    def _added(
        self,
        todo: Sequence[str],
        records: Mapping[str, Mapping[str, Any]],
        failed: Mapping[str, Mapping[str, Any]],
        configs: Mapping[str, Mapping[str, Any]],
    ) -> list[str]:
        """Write the runs of these trials, several at once to a server; returns the written ones."""

        def add(name: str) -> bool:
            if name in records:
                return self._step(name, partial(self._write_result, records[name]))
            return self._step(name, partial(self._write_failure, name, failed[name], configs))

        at_once = AT_ONCE if self.uri.partition(":")[0].lower() in SERVERS else 1
        added: list[str] = []
        with ThreadPoolExecutor(at_once, thread_name_prefix="memsweep-sync") as pool:
            for start in range(0, len(todo), at_once):  # in parts, so that Ctrl-C waits for one part only
                part = todo[start : start + at_once]
                added += [name for name, done in zip(part, pool.map(add, part), strict=True) if done]
        return added

    def _write_result(self, record: Mapping[str, Any]) -> None:
        self.writer.write(run_content.finished_run(record, self.store.tables(record["identity"])))

    def _write_failure(self, name: str, failure: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]) -> None:
        self.writer.write(run_content.failed_run(name, failure, configs[name]))

    def _step(self, what: str, work: Callable[[], object]) -> bool:
        """Do something in MLflow, with repeated attempts; whether it is done."""
        why = self.away or self._attempt(work)
        if why:
            self.missing[what] = why
        return not why

    def _attempt(self, work: Callable[[], object]) -> str:
        """Empty if it is done, else the reason."""
        from memsweep.sweep.tracking.retries import is_transient, reason

        began, why = time.monotonic(), ""
        for pause in (*_PAUSES, 0.0):
            try:
                work()
            except Exception as error:  # MLflow may raise any error; the other runs are written all the same
                why = reason(error, self.uri)
                if not is_transient(error):
                    return why
                if time.monotonic() - began > _LONGEST_STEP:
                    break
                time.sleep(pause)
            else:
                self.given_up = 0
                return ""
        self.given_up += 1
        if self.given_up > 1:  # the second one in a row: the server is unreachable
            self.away = why
        return why


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
