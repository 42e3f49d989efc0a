"""How many requests each step makes to a bucket, counted by a proxy, and how long they take together.

Requests are what a bucket costs: an object store that is far away answers each after 10 to 50 ms, to many at a time.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.harness import ROOT, Row
from benchmarks.scale.servers import BUCKET, tests_module
from benchmarks.scale.study import command, study_of
from benchmarks.studies import noop
from memsweep import report
from memsweep.config.load.study import load_study
from memsweep.sweep.planning.plan import Plan, identified, pack_of
from memsweep.sweep.planning.plan_file import write_plan
from memsweep.sweep.planning.reuse import find_reusable
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import Journal, State, TrialStatus, read_statuses
from memsweep.sweep.store.results import Store
from memsweep.sweep.tracking.run_content import shown
from memsweep.sweep.worker.job import jobs_of, take_report

MEMBERS = 25
"""Trials of a pack."""


def counted(trials: int, name: str) -> list[Row]:
    """A row for each step of a study of so many trials (at most ``noop.PER_RATE``) in a prefix of that name."""
    proxies, servers = tests_module("s3_proxy"), tests_module("s3_server")
    with (
        proxies.refusing(servers.S3Server(os.environ["AWS_ENDPOINT_URL"])) as proxy,
        tempfile.TemporaryDirectory() as d,
        mock.patch.dict(os.environ, AWS_ENDPOINT_URL=proxy.endpoint),
    ):
        return _Count(proxy.requests, trials, f"s3://{BUCKET}/{name}", Path(d)).rows()


class _Count:
    def __init__(self, requests: list[str], trials: int, results: str, folder: Path) -> None:
        self._requests, self._trials = requests, trials
        study, overrides = study_of(noop.PER_RATE, folder)
        self._study, self._overrides, self._results = study, overrides, results
        config = load_study(study, overrides, ROOT)
        rows = identified(config)[:trials]
        packs = [rows[start : start + MEMBERS] for start in range(0, trials, MEMBERS)]
        self._plan = Plan(config, rows, frozenset(), tuple(map(pack_of, packs)))
        self._place = Location.at(results)
        self._store = Store(self._place / config.name)

    def rows(self) -> list[Row]:
        plan, store = self._plan, self._store
        names = [trial.identity for trial in plan.trials]
        write_plan(store.location, plan, {}, {"params": {"trials": self._trials}, "tags": {}})
        journal = Journal(store.location, {name: TrialStatus() for name in names})
        steps: list[tuple[str, str, Callable[[], Any]]] = [
            ("worker: a trial's files", "trial", self._work),
            ("driver: a pack begins", "pack", lambda: self._begin(journal)),
            ("driver: results read for the mirror", "trial", lambda: self._deliver(names)),
            ("listing", "study", store.identities),
            ("what is stored is checked", "trial", lambda: find_reusable(plan.trials, store, self._place)),
            ("memsweep status", "trial", lambda: command(["status", plan.sweep.name, "--results", self._results])),
            ("report", "trial", lambda: report.build(store.location)),
        ]
        return [self._row(*step) for step in steps]

    def _row(self, step: str, unit: str, work: Callable[[], Any]) -> Row:
        first, began = len(self._requests), time.perf_counter()
        work()
        seconds, made = time.perf_counter() - began, self._requests[first:]
        kinds = Counter(map(_kind, made))
        number = {"trial": self._trials, "pack": len(self._plan.packs), "study": 1}[unit]
        return {
            "step": step,
            "per": unit,
            "requests": len(made) / number,
            **{kind: kinds[kind] / number for kind in ("HEAD", "GET", "PUT", "DELETE", "LIST")},
            "ms": 1000 * seconds / number,
            "ms_a_request": 1000 * seconds / max(1, len(made)),
        }

    def _work(self) -> None:
        for job in jobs_of(self._plan, ROOT, self._store.location.uri):
            done = noop.no_work(job, lambda fraction: None)
            if len(done.finished) < len(job.members):
                raise RuntimeError(str(done.failed))

    def _begin(self, journal: Journal) -> None:
        for pack in self._plan.packs:
            take_report(self._store, pack.identity)
            journal.note([trial.identity for trial in pack.trials], State.RUNNING)
            journal.flush()
        read_statuses(self._store.location)

    def _deliver(self, names: list[str]) -> None:
        for name in names:
            self._store.result(name, shown())


def _kind(request: str) -> str:
    return "LIST" if re.match(r"GET /[^/?]*/?\?", request) else request.partition(" ")[0]
