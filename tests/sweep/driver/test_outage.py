"""A storage that fails in the middle of a run: nothing is started, what was computed is kept, and stored later."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from memsweep.errors import ConfigError
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.runner import RunSummary, run
from memsweep.sweep.driver.storage_outage import StorageOutage, take_over
from memsweep.sweep.planning.plan import Plan
from memsweep.sweep.store.filesystem import STAGING
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.retry import VARIABLE, retry_seconds
from memsweep.sweep.store.tables import names as table_names
from memsweep.sweep.store.unwritable import UnstoredResult, fallback_folder
from memsweep.sweep.worker.execute import PackReport
from paths import python_path
from runner_work import OBSTACLE, obstruct, obstructed, planned, tiny

PLACES = [pytest.param(Launch(inline=True), id="inline"), pytest.param(Launch(), id="ray", marks=pytest.mark.more)]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers see the tests, and what finds no other place goes below the test's folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", python_path())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results" / "demo")


def plan() -> Plan:
    """Four packs on one slot; the storage fails in the second."""
    return planned([[tiny(1)], [tiny(OBSTACLE), tiny(2)], [tiny(3)], [tiny(4)]], cpus=1, max_concurrent=1)


def execute(tmp_path: Path, launch: Launch) -> RunSummary:
    return run(plan(), workspace=tmp_path, results=tmp_path / "results", launch=launch, work=obstructed)


def started(tmp_path: Path) -> list[str]:
    return (tmp_path / "started").read_text().split()


def mend(store: Store) -> None:
    (store.folder / STAGING).unlink()


@pytest.mark.parametrize("launch", PLACES)
def test_no_work_is_handed_out_and_the_results_wait_for_the_next_run(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, launch: Launch
) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    monkeypatch.setattr("memsweep.sweep.store.retry._WARNING_INTERVAL", 0.0)
    with caplog.at_level(logging.WARNING, logger="memsweep"):
        summary = execute(tmp_path, launch)
    first, second = ({trial.identity for trial in pack.trials} for pack in plan().packs[:2])
    assert started(tmp_path) == [pack.identity for pack in plan().packs[:2]]
    assert (set(summary.finished), summary.failed) == (first, {})
    assert "cannot write" in summary.outage
    elsewhere = Store(fallback_folder(store.location))
    assert elsewhere.identities() == second
    assert any("No trial is started, 2 results wait in memory" in one.getMessage() for one in caplog.records)
    held = {name: elsewhere.result(name) for name in elsewhere.identities()}

    mend(store)
    take_over(store)
    assert elsewhere.identities() == frozenset()
    for name, (record, tables) in held.items():
        stored = store.result(name)
        assert stored[0] == record
        assert all(stored[1][table].equals(tables[table]) for table in table_names())


@pytest.mark.parametrize("launch", PLACES)
def test_the_run_goes_on_when_the_storage_is_mended(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launch: Launch
) -> None:
    monkeypatch.setattr("memsweep.sweep.driver.storage_outage._INTERVAL", 0.2)
    lines: list[str] = []

    def mend_soon(line: str) -> None:
        if not lines:
            threading.Timer(1.0, mend, [store]).start()
        lines.append(line)

    monkeypatch.setattr("memsweep.sweep.driver.storage_outage.warn", mend_soon)
    summary = execute(tmp_path, launch)
    assert (summary.outage, summary.failed, summary.interrupted) == ("", {}, False)
    assert set(summary.finished) == {trial.identity for trial in plan().trials} == store.identities()
    assert store.check(store.identities()) == {}
    assert lines
    assert started(tmp_path) == [pack.identity for pack in plan().packs]


def test_a_failure_that_was_not_stored_is_told_and_offered_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("memsweep.sweep.driver.storage_outage._INTERVAL", 0.0)
    monkeypatch.setattr("memsweep.sweep.store.retry._WARNING_INTERVAL", 0.0)
    outage, name = StorageOutage(store), "a" * 32
    store.folder.mkdir(parents=True)
    obstruct(store.folder)
    outage.add("cannot write", failures={name: {"outcome": "failed", "error": "ValueError: 7", "traceback": ""}})
    with caplog.at_level(logging.WARNING, logger="memsweep"):
        assert outage.offer() == {}
    assert any("0 results and 1 failure wait in memory" in one.getMessage() for one in caplog.records)
    assert outage.give_up().endswith("; 1 failure found no place: what failed runs again")
    mend(store)
    outage.offer()
    assert (outage.cause, list(store.failures())) == ("", [name])


def test_a_report_keeps_results_that_were_not_stored() -> None:
    unstored = {"a" * 64: UnstoredResult("done", {"records/x.json": b"\x00\xff", "curves/x.parquet": b""})}
    report = PackReport({"b" * 64: "done"}, {}, (), unstored, "cannot write it")
    assert PackReport.from_json(report.to_json()) == report


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_wrong_time_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ConfigError, match="number of seconds from 0"):
        retry_seconds()
