"""A broken tracking server: the sweep ends, the store has all, and sync makes up for the rest.

Each drill hands the same prepared results to a tracker while a real MLflow server is too late or out of disk, or the
driver dies, then runs ``sync`` and compares all that MLflow holds with what an undisturbed sweep left. Campaigns have
servers that are down, killed, slow, wrong and cut off.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tracking_data import identity_of, make_config, make_record, make_tables, no_requests
from tracking_state import differences, duplicates, state_of

from fault_proxy import Fault, FaultProxy, healthy
from memsweep.sweep.store.results import Store
from memsweep.sweep.tracking import Tracker, sync
from paths import python_path
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

    @property
    def store(self) -> Store:
        return Store(self.results / "a%20study")

    @property
    def identities(self) -> list[str]:
        return [identity_of(number) for number in (*NUMBERS, FAILED)]

    def prepare(self) -> Sweep:
        for number in NUMBERS:
            self.store.write(identity_of(number), make_record(number), make_tables(number))
        failure = {"outcome": "failed", "error": "ValueError: no", "traceback": "Traceback: ValueError: no"}
        self.store.fail(identity_of(FAILED), failure | {"time": "2026-01-02T03:05:00+00:00"})
        (self.report / "figures").mkdir(parents=True)
        (self.report / "index.html").write_text("<p>stable</p>")
        (self.report / "figures" / "one.png").write_bytes(bytes(range(256)))
        return self

    def begin(self, uri: str | None, patience: float = 1.0) -> Tracker:
        """A tracker to which everything has been handed over; that must not wait for MLflow."""
        tracker = Tracker(uri, self.results, STUDY, "what is asked", PARAMS, TAGS, patience=patience)
        with no_requests():
            tracker.log_stored(self.identities[:-1])
            for identity, failure in self.store.failures().items():
                tracker.log_failure(identity, failure, make_config(FAILED))
            tracker.log_report(self.report)
        return tracker

    def sync(self, uri: str | None) -> str:
        configs = {identity_of(number): make_config(number) for number in (*NUMBERS, FAILED)}
        about = {"params": PARAMS, "tags": TAGS, "description": "what is asked"}
        return sync(self.results, STUDY, configs, about, "failed", self.report, uri=uri)

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
    """The content of a server after a sweep to which nothing happened."""
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
    for thread in tracker._threads:
        thread.join(60)
        assert not thread.is_alive()


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
        time.sleep(5)  # the server commits, on a busy machine too
        proxy.rule = healthy
        assert sweep.sync(proxy.uri) == ""
    judge("driver killed in the middle of a creation", 1, server.uri)


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
        assert len(creations) >= 1 + 4 + 3
        assert sweep.sync(proxy.uri) == ""
        judge("creation committed after the check", proxy.injected, server.uri)


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
        assert sweep.sync(server.uri) == ""
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
