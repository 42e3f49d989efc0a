"""Slow, silent, late and killed servers: none of them costs a sweep more than a sentence."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tracking_data import client_of, identity_of, make_record, make_tables, no_requests, runs_of

from memsweep.sweep.store.results import Store
from memsweep.sweep.tracking import Tracker
from processes import no_hang, wait_for
from tracking_server import MlflowServer, free_port


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path / "results"


def test_a_server_that_is_not_there_costs_a_sentence(results: Path) -> None:
    uri = f"http://me:secret@127.0.0.1:{free_port()}"
    with no_hang():
        tracker = Tracker.open(uri, results, "s")
        with no_requests():
            for number in range(2, 5):
                tracker.log_trial(make_record(number), make_tables(number))
        sentence = tracker.finish()
    assert sentence.startswith("Not in MLflow yet: ")
    assert "3 of 3 trials" in sentence
    assert "no answer from http://127.0.0.1" in sentence
    assert "secret" not in sentence
    assert f"safe in {results / 's'}; memsweep sync s --results {results} adds what is missing." in sentence


def test_a_server_that_never_answers_is_waited_for_as_long_as_was_said(results: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        with no_hang():
            tracker = Tracker.open(f"http://127.0.0.1:{silent.getsockname()[1]}", results, "s", patience=1.0)
            tracker.log_trial(make_record(2), make_tables(2))
            sentence = tracker.finish(patience=1.0)
    assert "1 of 1 trials" in sentence
    assert "was still busy after 1 s" in sentence


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MlflowServer]:
    server = MlflowServer(tmp_path)
    yield server
    server.kill()


def wait_until_written(tracker: Tracker) -> None:
    wait_for(lambda: not tracker.waiting)


@pytest.mark.drill
@pytest.mark.long
def test_a_server_that_comes_late_is_killed_and_comes_back(results: Path, server: MlflowServer) -> None:
    """The sweep goes on; the sentence counts what is missing; the same sweep adds it once the server is back."""
    uri = server.uri
    store = Store(results / "s")
    tracker = Tracker.open(uri, results, "s", params={"a": 1})
    assert tracker.run_id is None
    tracker.log_trial(make_record(2), make_tables(2))
    server.start()
    wait_until_written(tracker)
    assert set(runs_of(uri, tracker)) == {identity_of(2)}

    server.kill()
    for number in (3, 4):
        store.write(identity_of(number), make_record(number), {})
        with no_requests():
            tracker.log_trial(make_record(number), make_tables(number))
    with no_hang():
        sentence = tracker.finish()
    assert "Not in MLflow yet: " in sentence
    assert "2 of 3 trials" in sentence
    assert f"no answer from {uri}" in sentence

    server.start()
    again = Tracker.open(uri, results, "s", params={"a": 1})
    again.log_trial(make_record(2), make_tables(2))
    again.log_stored([identity_of(3), identity_of(4)])
    assert again.finish() == ""
    assert again.run_id == tracker.run_id
    runs = runs_of(uri, again)
    assert {identity: run.info.status for identity, run in runs.items()} == {
        identity_of(number): "FINISHED" for number in (2, 3, 4)
    }
    assert [file.path for file in client_of(uri).list_artifacts(runs[identity_of(2)].info.run_id)] == [
        "curves.csv",
        "memory.csv",
        "record.json",
    ]
