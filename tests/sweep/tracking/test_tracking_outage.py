"""A tracking server that is broken in every way: the sweep ends, the store has all, and sync makes up for the rest.

Each drill hands the same prepared results to a tracker while a real MLflow server is down, killed, slow, wrong, cut off
or out of disk, then runs ``sync`` and compares all that MLflow holds with what an undisturbed sweep left.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fault_proxy import Fault, FaultProxy, healthy
from tracking_data import identity_of, make_config, make_record, make_tables, no_requests
from tracking_state import differences, duplicates, state_of

from memsweep.sweep.store.results import Store
from memsweep.sweep.tracking import SyncResult, Tracker, sync
from memsweep.sweep.tracking.uri import tracking_uri
from paths import python_path
from processes import no_hang
from tracking_server import MlflowServer

pytestmark = pytest.mark.drill

STUDY = "a study"
PARAMS = {"grid.model.width": "[2, 3, 4]", "trials": 4}
TAGS = {"code_revision": "abc1234"}
NUMBERS, FAILED = (2, 3, 4), 9


@dataclass
class Sweep:
    """A study whose results are stored already, and the driver's way of mirroring them."""

    results: Path
    report: Path
    numbers: tuple[int, ...] = NUMBERS

    @property
    def store(self) -> Store:
        return Store(self.results / "a%20study")

    @property
    def identities(self) -> list[str]:
        return [identity_of(number) for number in (*self.numbers, FAILED)]

    def prepare(self) -> Sweep:
        for number in self.numbers:
            self.store.write(identity_of(number), make_record(number), make_tables(number))
        failure = {"outcome": "failed", "error": "ValueError: no", "traceback": "Traceback: ValueError: no"}
        self.store.fail(identity_of(FAILED), failure | {"time": "2026-01-02T03:05:00+00:00"})
        (self.report / "figures").mkdir(parents=True)
        (self.report / "index.html").write_text("<p>stable</p>")
        (self.report / "figures" / "one.png").write_bytes(bytes(range(256)))
        return self

    def begin(self, uri: str | None, patience: float = 1.0) -> Tracker:
        """A tracker to which everything has been handed over; that must not wait for MLflow."""
        tracker = Tracker.open(uri, self.results, STUDY, "what is asked", PARAMS, TAGS, patience=patience)
        stored = [(self.store.record(name), self.store.tables(name)) for name in self.identities[:-1]]
        with no_requests():
            for record, tables in stored:
                tracker.log_trial(record, tables)
            for identity, failure in self.store.failures().items():
                tracker.log_failure(identity, failure, make_config(FAILED))
            tracker.log_report(self.report)
        return tracker

    def sync(self, uri: str | None) -> SyncResult:
        return sync(
            uri,
            self.results,
            STUDY,
            {"params": PARAMS, "tags": TAGS, "description": "what is asked"},
            self.identities,
            {identity_of(number): make_config(number) for number in (*self.numbers, FAILED)},
            "failed",
            self.report,
            lambda line: None,
        )

    def lost(self) -> int:
        """Stored results that are not there whole any more."""
        wanted = set(self.identities[:-1])
        return len(wanted - self.store.identities()) + len(self.store.check(wanted & self.store.identities()))


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path / "results", tmp_path / "report").prepare()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MlflowServer]:
    server = MlflowServer(tmp_path)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a server holds after a sweep to which nothing happened."""
    folder = tmp_path_factory.mktemp("undisturbed")
    sweep, server = Sweep(folder / "results", folder / "report").prepare(), MlflowServer(folder)
    try:
        server.start()
        assert sweep.begin(server.uri, patience=60).finish("failed") == ""
        state = state_of(server.uri, STUDY)
    finally:
        server.kill()
    assert len(state) == 1 + 1 + len(sweep.identities)
    assert not duplicates(state)
    return state


@pytest.fixture
def judge(sweep: Sweep, undisturbed: dict[str, Any], tally: Any) -> Callable[[str, int, str], None]:
    """Notes a drill in the tally, and fails where the state is not the undisturbed one or a result is gone."""

    def judge(kind: str, injected: int, uri: str) -> None:
        state = state_of(uri, STUDY)
        found = differences(undisturbed, state)
        tally.record(f"tracking: {kind}", injected, sweep.lost(), 0, not found)
        assert found == []
        assert duplicates(state) == []
        assert sweep.lost() == 0

    return judge


Judge = Callable[[str, int, str], None]


def is_one_sentence(warning: str, sweep: Sweep) -> None:
    assert warning.startswith("Not in MLflow yet: ")
    assert "\n" not in warning
    assert f"safe in {sweep.store.location}" in warning
    assert "memsweep sync 'a study'" in warning


def end_of(tracker: Tracker) -> None:
    """A driver that has warned exits, and its thread with it; here it must end before another writer begins."""
    tracker._thread.join(60)
    assert not tracker._thread.is_alive()


@pytest.mark.long
def test_a_server_that_is_down_at_the_start(sweep: Sweep, server: MlflowServer, judge: Judge) -> None:
    with no_hang():
        warning = sweep.begin(server.uri).finish("failed")
    is_one_sentence(warning, sweep)
    assert "4 of 4 trials, the sweep's own run, the report, the end of the sweep's own run" in _sorted(warning)
    there_not = sweep.sync(server.uri)
    assert set(there_not.missing) == {*sweep.identities, "the sweep's own run"}
    assert there_not.complaint.startswith("Not in MLflow yet: ")

    server.start()
    done = sweep.sync(server.uri)
    assert (set(done.added), done.present, dict(done.missing)) == (set(sweep.identities), 0, {})
    assert done.complaint == ""
    judge("server down at start", 1, server.uri)


def _sorted(warning: str) -> str:
    """The parts that are missing, in a fixed order: a job that failed goes behind the others."""
    parts = warning.removeprefix("Not in MLflow yet: ").partition(" (")[0].split(", ")
    order = ["4 of 4 trials", "the sweep's own run", "the report", "the end of the sweep's own run"]
    return ", ".join(sorted(parts, key=order.index))


def test_a_server_that_is_killed_in_the_middle_and_stays_away(sweep: Sweep, server: MlflowServer, judge: Judge) -> None:
    server.start()
    with FaultProxy(server.port) as proxy:

        def kill_at_the_second_trial(number: int, method: str, path: str) -> Fault:
            if path.endswith("/runs/log-batch") and len(batches) < 3:
                batches.append(number)
                if len(batches) == 3:  # the parent's params, the first trial's metrics, and now the second's
                    server.kill()
            return Fault()

        batches: list[int] = []
        proxy.rule = kill_at_the_second_trial
        tracker = sweep.begin(proxy.uri)
        warning = tracker.finish("failed")
        end_of(tracker)
        is_one_sentence(warning, sweep)
        missing = re.search(r"([1-4]) of 4 trials", warning)  # several are written at once: how many, chance decides
        assert missing, warning
        server.start()
        proxy.rule = healthy
        done = sweep.sync(proxy.uri)
        assert (len(done.added), done.present) == (int(missing[1]), 4 - int(missing[1]))
        assert done.complaint == ""
    judge("server killed in the middle", 1, server.uri)


def test_a_server_that_is_killed_and_comes_back_needs_no_sync(sweep: Sweep, server: MlflowServer, judge: Judge) -> None:
    server.start()
    tracker = sweep.begin(server.uri, patience=60)
    server.kill()
    time.sleep(2)
    server.start()
    assert tracker.finish("failed") == ""
    judge("server killed and back before the end", 1, server.uri)
    again = sweep.sync(server.uri)
    assert (again.added, again.present, again.removed) == ((), 4, 0)
    judge("sync of a complete study", 0, server.uri)


def test_a_driver_that_is_killed_while_a_run_is_created(sweep: Sweep, server: MlflowServer, judge: Judge) -> None:
    """The server creates a run for somebody who is dead by then: sync finds it and fills it."""
    server.start()
    code = (
        "import sys; from pathlib import Path; from test_tracking_outage import Sweep;"
        "Sweep(Path(sys.argv[2]), Path(sys.argv[3])).begin(sys.argv[1], patience=60).finish('failed')"
    )
    creations: list[str] = []
    with FaultProxy(server.port) as proxy:
        env = os.environ | {"PYTHONPATH": python_path(Path(__file__).parent)}
        command = [sys.executable, "-c", code, proxy.uri, str(sweep.results), str(sweep.report)]
        driver = subprocess.Popen(command, env=env)

        def kill_at_the_second_trial(number: int, method: str, path: str) -> Fault:
            creations.append(path) if path.endswith("/runs/create") else None
            if len(creations) == 3 and driver.poll() is None:
                driver.kill()
                driver.wait()
            return Fault()

        proxy.rule = kill_at_the_second_trial
        assert driver.wait(120) == -signal.SIGKILL
        time.sleep(1)  # the server commits
        proxy.rule = healthy
        done = sweep.sync(proxy.uri)
        assert done.added
        assert len(done.added) + done.present == 4
    assert _in_the_trash(server.uri) == 0
    judge("driver killed in the middle of a creation", 1, server.uri)


def test_a_slow_server_holds_nobody_up(sweep: Sweep, server: MlflowServer, judge: Judge) -> None:
    server.start()
    with FaultProxy(server.port, lambda number, method, path: Fault(after=3.0)) as proxy:
        tracker = sweep.begin(proxy.uri)
        warning = tracker.finish("interrupted", patience=8.0)
        is_one_sentence(warning, sweep)
        assert "was still busy after 8 s" in warning
        proxy.rule = healthy
        end_of(tracker)
        assert sweep.sync(proxy.uri).complaint == ""
        judge("answers after 3 s", proxy.injected, server.uri)


@pytest.mark.long
def test_ten_seconds_an_answer_are_slow_but_get_there(tmp_path: Path, server: MlflowServer, tally: Any) -> None:
    """One trial is about fifteen answers of ten seconds: waited for, as long as they come."""
    sweep = Sweep(tmp_path / "results", tmp_path / "report", (2,)).prepare()
    identity = identity_of(2)

    def mirror(uri: str | None) -> str:
        tracker = Tracker.open(uri, sweep.results, STUDY, params=PARAMS, patience=1.0)
        tracker.log_trial(sweep.store.record(identity), sweep.store.tables(identity))
        return tracker.finish(patience=25.0)

    assert mirror(None) == ""
    expected = state_of(tracking_uri(None, sweep.results), STUDY)
    server.start()
    with FaultProxy(server.port, lambda number, method, path: Fault(after=10.0)) as proxy:
        warning = mirror(proxy.uri)
        found = differences(expected, state_of(server.uri, STUDY))
        tally.record("tracking: answers after 10 s", proxy.injected, sweep.lost(), 0, warning == "" and not found)
    assert (warning, found) == ("", [])
    assert sweep.lost() == 0


@pytest.mark.long
def test_every_second_request_answered_with_a_500(sweep: Sweep, server: MlflowServer, judge: Judge) -> None:
    server.start()
    with FaultProxy(server.port, lambda number, method, path: Fault(status=500 if number % 2 == 0 else 0)) as proxy:
        tracker = sweep.begin(proxy.uri)
        warning = tracker.finish("failed")
        end_of(tracker)
        assert warning == "" or warning.startswith("Not in MLflow yet: ")
        assert sweep.sync(proxy.uri).complaint == ""
        judge("500 to every second request", proxy.injected, server.uri)


@pytest.mark.long
def test_nothing_but_500s(sweep: Sweep, server: MlflowServer, judge: Judge) -> None:
    server.start()
    with FaultProxy(server.port, lambda number, method, path: Fault(status=500)) as proxy:
        tracker = sweep.begin(proxy.uri)
        warning = tracker.finish("failed")
        end_of(tracker)
        is_one_sentence(warning, sweep)
        proxy.rule = healthy
        assert sweep.sync(proxy.uri).complaint == ""
        judge("500 to every request", proxy.injected, server.uri)


def test_answers_cut_off_after_the_server_has_committed(sweep: Sweep, server: MlflowServer, judge: Judge) -> None:
    """The trap for whoever repeats a creation: the run is there, and its creator was never told."""
    server.start()
    dice, creations = random.Random(5), []

    def cut(number: int, method: str, path: str) -> Fault:
        if path.endswith("/create"):
            creations.append(path)
            return Fault(cut=True)
        return Fault(cut=dice.random() < 0.3)

    with FaultProxy(server.port, cut) as proxy:
        tracker = sweep.begin(proxy.uri)
        warning = tracker.finish("failed")
        end_of(tracker)
        assert warning == "" or warning.startswith("Not in MLflow yet: ")
        assert sweep.sync(proxy.uri).complaint == ""
        assert len(creations) == 1 + 1 + 4  # experiment, parent and children: none was asked for twice
        judge("answer cut after the commit", proxy.injected, server.uri)


def test_creations_that_are_committed_after_we_have_looked(
    sweep: Sweep, server: MlflowServer, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slower than our patience: the creation is asked for again, and then both are there, the parent's too."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    server.start()
    creations: list[str] = []

    def late(number: int, method: str, path: str) -> Fault:
        """The parent's creation and those of two children, but not their repetitions."""
        if not path.endswith("/runs/create"):
            return Fault()
        creations.append(path)
        return Fault(before=4.0 if len(creations) in (1, 3, 5) else 0.0)

    with FaultProxy(server.port, late) as proxy:
        tracker = sweep.begin(proxy.uri)
        warning = tracker.finish("failed")
        end_of(tracker)
        assert warning == "" or warning.startswith("Not in MLflow yet: ")
        time.sleep(5)  # the last of them is committed after the sweep has ended
        assert len(creations) == 1 + 4 + 3
        assert len(duplicates(state_of(server.uri, STUDY))) + _in_the_trash(server.uri) == 3
        assert sweep.sync(proxy.uri).complaint == ""
        judge("creation committed after the check", proxy.injected, server.uri)


def _in_the_trash(uri: str) -> int:
    """How many runs were deleted, as one of two."""
    from mlflow.entities import ViewType
    from tracking_data import client_of

    client = client_of(uri)
    experiment = client.get_experiment_by_name(STUDY)
    return len(client.search_runs([experiment.experiment_id], run_view_type=ViewType.DELETED_ONLY))


def test_a_server_whose_disk_is_full(sweep: Sweep, tmp_path: Path, judge: Judge, small_disk: Path) -> None:
    server = MlflowServer(tmp_path, data=small_disk)
    try:
        server.start()
        tracker = sweep.begin(server.uri, patience=60)
        filler = small_disk / "filler"
        filled = _fill(filler)
        assert filled > 0
        warning = tracker.finish("failed")
        end_of(tracker)
        is_one_sentence(warning, sweep)
        filler.unlink()
        assert sweep.sync(server.uri).complaint == ""
        judge("the server's disk full", 1, server.uri)
        assert "full" in (tmp_path / "server.log").read_text()
    finally:
        server.kill()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    if os.geteuid() != 0:
        pytest.skip("a file system of a few megabytes can be mounted by root only")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("this container may not mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _fill(path: Path) -> int:
    """Write until nothing more fits; how many bytes did."""
    count = 0
    with path.open("wb", buffering=0) as file:
        for size in (65536, 512):
            try:
                while True:
                    count += file.write(b"x" * size)
            except OSError:
                pass
    return count
