"""``sync`` makes MLflow what the store says, whatever was there."""

from __future__ import annotations

import os
import signal
import threading
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
from memsweep.sweep.tracking import Tracker, Verdicts, run_content, sync
from memsweep.sweep.tracking.uri import artifact_location, home, tracking_uri
from processes import no_hang
from sweeping import ready

NUMBERS = (2, 3, 4)
VERDICTS = {
    identity_of(number): Verdicts({"ball_all/radius": 0.1 * number}, {"ball_all/verdict": "stable"}, 1_800_000_000_000)
    for number in NUMBERS
}
FAILURE = {"outcome": "failed", "error": "ValueError: no", "traceback": "T", "time": "2026-01-02T03:05:00+00:00"}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three results and a failure are stored, nothing is in MLflow."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store = Store(tmp_path / "results" / "s")
    for number in NUMBERS:
        store.write(identity_of(number), make_record(number), make_tables(number))
    store.fail(identity_of(9), FAILURE)
    return ready(tmp_path / "results")


def synced(results: Path) -> str:
    configs = {identity_of(number): make_config(number) for number in (*NUMBERS, 9)}
    return sync(results, "s", configs, {"params": {"a": 1}, "tags": {"b": 2}}, "failed", report_of(results), VERDICTS)


def report_of(results: Path) -> Path:
    (results.parent / "report").mkdir(exist_ok=True)
    (results.parent / "report" / "index.html").write_text("<p>stable</p>")
    return results.parent / "report"


def undisturbed(results: Path, uri: str) -> dict[str, Any]:
    tracker = Tracker(uri, results, "s", params={"a": 1}, tags={"b": 2})
    tracker.log_stored(map(identity_of, NUMBERS))
    tracker.log_failure(identity_of(9), FAILURE, make_config(9))
    tracker.log_verdicts(VERDICTS)
    tracker.log_report(report_of(results))
    assert tracker.finish("failed") == ""
    return state_of(uri, "s")


@pytest.mark.more
def test_sync_alone_is_as_good_as_an_undisturbed_sweep_and_repeats_nothing(results: Path, tmp_path: Path) -> None:
    expected = undisturbed(results, f"sqlite:///{ready(tmp_path / 'other')}/mlflow.db")
    assert synced(results) == ""
    uri = tracking_uri(None, results)
    assert differences(expected, state_of(uri, "s")) == []
    ids = run_ids(uri)
    assert synced(results) == ""
    assert differences(expected, state_of(uri, "s")) == []
    assert run_ids(uri) == ids


def test_a_verdict_that_changes_takes_the_place_of_the_old_one(results: Path) -> None:
    assert synced(results) == ""
    uri, name = tracking_uri(None, results), identity_of(2)
    for radius, verdict in ((0.05, "unstable"), (0.05, "unstable")):  # a second time nothing is written
        live = Tracker(None, results, "s", params={"a": 1}, tags={"b": 2})
        later = VERDICTS[name].time + 1
        live.log_verdicts({name: Verdicts({"ball_all/radius": radius}, {"ball_all/verdict": verdict}, later)})
        assert live.finish("failed") == ""
    run = runs_of(uri, live)[name]
    assert (run.data.metrics["ball_all/radius"], run.data.tags["ball_all/verdict"]) == (0.05, "unstable")
    assert len(client_of(uri).get_metric_history(run.info.run_id, "ball_all/radius")) == 2


def test_the_newest_write_is_shown_though_its_results_are_older(results: Path) -> None:
    """As of two results folders with one MLflow: of a metric, MLflow itself shows the latest time."""
    uri, name = tracking_uri(None, results), identity_of(2)
    for radius, verdict, when in ((0.2, "stable", 2_000), (0.1, "unstable", 1_000), (0.05, "unstable", 1_000)):
        said = Verdicts({"ball_all/radius": radius}, {"ball_all/verdict": verdict}, when)
        tracker = Tracker(None, results, "s", params={"a": 1}, tags={"b": 2})
        tracker.log_stored([name])
        tracker.log_verdicts({name: said})
        tracker.log_report(report_of(results), said)
        assert tracker.finish("failed") == ""
        run = runs_of(uri, tracker)[name]
        for each in (run, client_of(uri).get_run(run.data.tags[PARENT])):
            assert (each.data.metrics["ball_all/radius"], each.data.tags["ball_all/verdict"]) == (radius, verdict)


def test_tags_of_an_earlier_verdict_go_when_the_study_has_others(results: Path) -> None:
    """An extension renames conditions, and finds radii that had been bounds: a query finds the newest alone."""
    uri, name = tracking_uri(None, results), identity_of(2)
    one = {"ball_all/verdict": "inconclusive", "ball_all/radius": "above 3"}
    old = {f"exponential/{key}": word for key, word in one.items()} | {"team/owner": "me"}
    new = {"exponential exp/ball_all/verdict": "stable"}
    for own, of_study in ((one, old), ({"ball_all/verdict": "stable"}, new)):
        tracker = Tracker(None, results, "s", params={"a": 1}, tags={"b": 2})
        tracker.log_stored([name])
        tracker.log_verdicts({name: Verdicts({"ball_all/radius": 0.2}, own, 1_800_000_000_000)})
        tracker.log_report(report_of(results), Verdicts({}, of_study, 1_800_000_000_000))
        assert tracker.finish("failed") == ""
    run = runs_of(uri, tracker)[name]
    of_study = client_of(uri).get_run(run.data.tags[PARENT]).data.tags
    assert {key for key in run.data.tags if "/" in key} == {"ball_all/verdict"}
    assert {key for key in of_study if "/" in key} == {*new, "team/owner"}


def run_ids(uri: str) -> set[str]:
    client = client_of(uri)
    return {run.info.run_id for run in client.search_runs([client.get_experiment_by_name("s").experiment_id])}


def test_sync_puts_right_whatever_went_wrong_before(results: Path, tmp_path: Path) -> None:
    """Two parents, a trial twice, a run cut short, a failure since mended, a result since recomputed, a stranger."""
    expected = undisturbed(results, f"sqlite:///{ready(tmp_path / 'other')}/mlflow.db")
    assert synced(results) == ""
    uri = tracking_uri(None, results)
    client = client_of(uri)
    experiment = client.get_experiment_by_name("s").experiment_id
    runs = {run.data.tags.get("memsweep.identity", ""): run for run in client.search_runs([experiment])}
    parent = runs[""]
    began = run_content.stamp_of_result(make_record(2)).started

    def child(number: int, of: str, outcome: str = "done", start: int = began) -> str:
        tags = {PARENT: of, "memsweep.identity": identity_of(number), "memsweep.outcome": outcome}
        name = run_content.run_name(make_config(number), ())
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

    assert synced(results) == ""
    assert differences(expected, state_of(uri, "s")) == []


def test_a_result_that_cannot_be_read_is_named_and_its_run_stays(results: Path) -> None:
    assert synced(results) == ""
    uri = tracking_uri(None, results)
    before = state_of(uri, "s")
    (results / "s" / "records" / f"{identity_of(3)}.json").write_text("{")
    complaint = synced(results)
    assert complaint.startswith("Not in MLflow yet: 1 of 4 trials (")
    assert identity_of(3) in complaint
    assert differences(before, state_of(uri, "s")) == []


@pytest.mark.more
def test_results_in_a_bucket_are_tracked_right_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    bucket = Location.at("s3://bucket/results")
    assert home(bucket) == tmp_path / "results"
    assert tracking_uri(None, bucket) == f"sqlite:///{tmp_path}/results/mlflow.db"
    assert artifact_location("postgresql://db/x", bucket) == (tmp_path / "results" / "mlartifacts").as_uri()
    live = Tracker(None, bucket, "s")
    live.log_failure(identity_of(2), FAILURE, make_config(2))
    assert live.finish() == ""
    assert set(runs_of(tracking_uri(None, bucket), live)) == {identity_of(2)}


@contextmanager
def locked(results: Path) -> Iterator[None]:
    """While it lasts, nobody gets at the database: an outage that ends when we say so."""
    results.mkdir(exist_ok=True)
    with FileLock(results / ".mlflow.lock"):
        yield


def test_ctrl_c_ends_the_wait_at_the_end(results: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    with locked(results):
        live = Tracker(None, results, "s", patience=0.0)
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
    for thread in live._threads:
        thread.join(60)
