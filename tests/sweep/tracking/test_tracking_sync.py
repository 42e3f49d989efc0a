"""``sync`` makes MLflow what the store says, whatever was there; what waits for MLflow takes bounded memory."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from tracking_data import PARENT, client_of, identity_of, make_config, make_record, make_tables, runs_of
from tracking_state import differences, duplicates, state_of

from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store
from memsweep.sweep.tracking import SyncResult, Tracker, run_content, sync, tracker
from memsweep.sweep.tracking.uri import artifact_location, home, tracking_uri
from processes import no_hang

NUMBERS = (2, 3, 4)
FAILURE = {"outcome": "failed", "error": "ValueError: no", "traceback": "T", "time": "2026-01-02T03:05:00+00:00"}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables and no runs, which takes MLflow a second to make."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    client_of(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def results(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three results and a failure are stored, nothing is in MLflow."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store = Store(tmp_path / "results" / "s")
    for number in NUMBERS:
        store.write(identity_of(number), make_record(number), make_tables(number))
    store.fail(identity_of(9), FAILURE)
    for name in ("results/mlflow.db", "other.db"):
        shutil.copy(database, tmp_path / name)
    return tmp_path / "results"


def synced(results: Path, uri: str | None = None, lines: list[str] | None = None) -> SyncResult:
    rows = [identity_of(number) for number in (*NUMBERS, 9)]
    configs = {identity_of(number): make_config(number) for number in (*NUMBERS, 9)}
    say = (lines if lines is not None else []).append
    return sync(uri, results, "s", {"params": {"a": 1}, "tags": {"b": 2}}, rows, configs, "failed", None, say)


def undisturbed(results: Path, uri: str) -> dict[str, Any]:
    store, tracker = Store(results / "s"), Tracker.open(uri, results, "s", params={"a": 1}, tags={"b": 2})
    for number in NUMBERS:
        tracker.log_trial(store.record(identity_of(number)), store.tables(identity_of(number)))
    tracker.log_failure(identity_of(9), FAILURE, make_config(9))
    assert tracker.finish("failed") == ""
    return state_of(uri, "s")


def test_sync_alone_is_as_good_as_an_undisturbed_sweep(results: Path, tmp_path: Path) -> None:
    expected = undisturbed(results, f"sqlite:///{tmp_path}/other.db")
    lines: list[str] = []
    first = synced(results, lines=lines)
    assert lines[0] == "sync: 3 results and 1 failure of 4 trials are stored"
    assert lines[1].startswith("sync: 0 of them are in MLflow (sqlite:///")
    assert lines[1].endswith("), 4 to add")
    assert (len(first.added), first.present, first.removed, dict(first.missing)) == (4, 0, 0, {})
    assert differences(expected, state_of(tracking_uri(None, results), "s")) == []
    again = synced(results)
    assert (again.added, again.present, again.complaint) == ((), 4, "")
    assert differences(expected, state_of(tracking_uri(None, results), "s")) == []


def test_sync_puts_right_whatever_went_wrong_before(results: Path, tmp_path: Path) -> None:
    """Two parents, a trial twice, a run cut short, a failure since mended, a result since recomputed, a stranger."""
    expected = undisturbed(results, f"sqlite:///{tmp_path}/other.db")
    assert synced(results).complaint == ""
    uri = tracking_uri(None, results)
    client = client_of(uri)
    experiment = client.get_experiment_by_name("s").experiment_id
    runs = {run.data.tags.get("memsweep.identity", ""): run for run in client.search_runs([experiment])}
    parent = runs[""]
    began = run_content.stamp_of_result(make_record(2)).started

    def child(number: int, of: str, outcome: str = "done", start: int = began) -> str:
        tags = {PARENT: of, "memsweep.identity": identity_of(number), "memsweep.outcome": outcome}
        name = run_content.run_name(make_config(number))
        return str(client.create_run(experiment, start, tags, run_name=name).info.run_id)

    other = client.create_run(experiment, tags={"memsweep.sweep": parent.data.tags["memsweep.sweep"]}).info.run_id
    child(2, parent.info.run_id)  # twice, and only begun
    child(3, other)  # twice, by way of another parent
    client.delete_run(runs[identity_of(3)].info.run_id)  # … of which the whole one is gone
    client.delete_run(runs[identity_of(4)].info.run_id)
    client.set_terminated(child(4, parent.info.run_id, "failed", began - 60_000), "FAILED", began - 60_000)
    client.set_terminated(runs[identity_of(2)].info.run_id, "FINISHED", began + 1)  # of another computation
    child(77, parent.info.run_id)  # of no row of the plan
    client.set_terminated(parent.info.run_id, "KILLED")
    assert len(duplicates(state_of(uri, "s"))) == 2

    done = synced(results)
    assert set(done.added) == {identity_of(number) for number in NUMBERS}
    assert (done.present, done.removed, done.complaint) == (1, 1, "")
    assert differences(expected, state_of(uri, "s")) == []


def test_a_result_that_cannot_be_read_is_named_and_its_run_stays(results: Path) -> None:
    assert synced(results).complaint == ""
    uri = tracking_uri(None, results)
    before = state_of(uri, "s")
    (results / "s" / "records" / f"{identity_of(3)}.json").write_text("{")
    done = synced(results)
    assert list(done.missing) == [identity_of(3)]
    assert done.complaint.startswith(f"Not in MLflow yet: {identity_of(3)} (")
    assert differences(before, state_of(uri, "s")) == []


def test_a_failure_without_its_time_takes_it_from_the_store(results: Path, tmp_path: Path) -> None:
    live = Tracker.open(None, results, "s", params={"a": 1}, tags={"b": 2})
    without = {key: value for key, value in FAILURE.items() if key != "time"}
    live.log_failure(identity_of(9), without, make_config(9))
    assert live.finish("failed") == ""
    run = runs_of(tracking_uri(None, results), live)[identity_of(9)]
    assert run.info.start_time == run_content.stamp_of_failure(FAILURE).started
    assert identity_of(9) not in synced(results).added


def test_results_in_a_bucket_are_tracked_right_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    bucket = Location.at("s3://bucket/results")
    assert home(bucket) == tmp_path / "results"
    assert tracking_uri(None, bucket) == f"sqlite:///{tmp_path}/results/mlflow.db"
    assert artifact_location("postgresql://db/x", bucket) == (tmp_path / "results" / "mlartifacts").as_uri()
    live = Tracker.open(None, bucket, "s")
    live.log_trial(make_record(2), make_tables(2))
    assert live.finish() == ""
    assert set(runs_of(tracking_uri(None, bucket), live)) == {identity_of(2)}


@contextmanager
def locked(results: Path) -> Iterator[None]:
    """While it lasts, nobody gets at the database: an outage that ends when we say so."""
    results.mkdir(exist_ok=True)
    with FileLock(results / ".mlflow.lock"):
        yield


def hand_over(live: Tracker, count: int) -> weakref.WeakSet[Any]:
    """Hand over so many results; returns those of their tables that somebody still holds."""
    held: weakref.WeakSet[Any] = weakref.WeakSet()
    empty = make_tables(2)["history"].head(0)
    for number in range(2, 2 + count):
        tables = {"history": _Table(empty)}
        held.add(tables["history"])
        live.log_trial(make_record(number), tables)
    return held


class _Table:
    """As much of a table as the tracker handles; unlike a data frame, it can be put into a set."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame

    def __getattr__(self, name: str) -> Any:
        return getattr(self.frame, name)


def test_what_waits_for_a_server_takes_bounded_memory(results: Path) -> None:
    with locked(results):
        live = Tracker.open(None, results, "s", patience=0.0)
        held = hand_over(live, 700)
        assert live.waiting == 701
        assert len(held) <= tracker._KEPT_IN_MEMORY + 1
        assert "700 of 700 trials" in live.finish("interrupted", patience=0.1)
    live._thread.join(60)
    assert not live._thread.is_alive()


def test_what_is_not_kept_in_memory_is_read_from_the_store(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "_KEPT_IN_MEMORY", 1)
    with locked(results):
        live = Tracker.open(None, results, "s", patience=0.0)
        assert len(hand_over(live, 3)) < 3
    assert live.finish() == ""
    runs = runs_of(tracking_uri(None, results), live)
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert set(runs) == {identity_of(number) for number in NUMBERS}
    assert "train_loss" in runs[identity_of(4)].data.metrics  # the store's tables, not the empty one handed over


def test_ctrl_c_ends_the_wait_at_the_end(results: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    with locked(results):
        live = Tracker.open(None, results, "s", patience=0.0)
        pressed = threading.Event()

        def press() -> None:
            pressed.set()
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(0.3, press).start()
        with no_hang():
            sentence = live.finish()
        assert pressed.is_set()
        assert sentence.startswith("Not in MLflow yet: ")
    signal.signal(signal.SIGINT, before)
    live._thread.join(60)


def test_a_long_outage_ends_neither_the_backoff_nor_its_thread() -> None:
    assert [tracker._pause(failures) for failures in (0, 1, 2, 3, 4, 5, 100_000)] == [0, 1, 2, 4, 8, 10, 10]
