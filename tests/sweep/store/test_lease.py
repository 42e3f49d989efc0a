"""One driver at a time: a second is refused with who holds the sweep, and the dead are forgotten."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from memsweep.errors import StoreError
from memsweep.sweep.store import lease
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.lease import HeldError, Holder, Share, hold_lease, holder
from processes import wait_for

WAITS = "waits for its next heartbeat"
"""Is logged while the heartbeat of a holder on another machine is awaited."""
OTHER = Holder("elsewhere", 7, "another machine", "1", "then", "memsweep sweep")


def ignore() -> None:
    pass


def hold_until_killed(folder: Path, ready: multiprocessing.synchronize.Event, machine: str = "") -> None:
    if machine:
        lease._machine = lambda: machine
    with hold_lease(Location.at(folder), ignore, beat=0.1, expiry=2.0):
        ready.set()
        time.sleep(600)


@pytest.fixture
def other(request: pytest.FixtureRequest, tmp_path: Path) -> multiprocessing.context.SpawnProcess:
    """Another process that holds the lease; with a parameter, a process of the machine of this name."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=hold_until_killed, args=(tmp_path, ready, getattr(request, "param", "")))
    process.start()
    assert ready.wait(60)
    yield process
    process.kill()
    process.join(60)


def test_a_copy_made_while_a_sweep_runs_is_free(
    tmp_path: Path, other: multiprocessing.context.SpawnProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The lease file in the copy names a living process, which works elsewhere."""
    time.sleep(0.3)  # a few heartbeats
    beside = shutil.ignore_patterns(".partial")  # where files are written that vanish while they are copied
    copy = Location.at(shutil.copytree(tmp_path, tmp_path_factory.mktemp("copies") / "copy", ignore=beside))
    with hold_lease(copy, ignore, expiry=1.0):
        assert holder(copy) is not None
    with pytest.raises(HeldError), hold_lease(Location.at(tmp_path), ignore, expiry=1.0):
        pytest.fail("two hold it")


def test_the_second_is_told_who_holds_it_and_a_killed_holder_is_forgotten_at_once(
    tmp_path: Path, other: multiprocessing.context.SpawnProcess
) -> None:
    place = Location.at(tmp_path)
    with pytest.raises(HeldError, match=rf"process {other.pid} on {socket.gethostname()}"), hold_lease(place, ignore):
        pytest.fail("two hold it")
    who = holder(place)
    assert who is not None
    assert (who.pid, who.host) == (other.pid, socket.gethostname())
    other.kill()
    other.join(60)
    assert holder(place) is None
    with hold_lease(place, ignore):
        mine = holder(place)
        assert mine is not None
        assert mine.pid == os.getpid()
    assert holder(place) is None
    assert list((tmp_path / "lease").iterdir()) == []


@pytest.mark.parametrize("other", ["another machine"], indirect=True)
def test_a_holder_that_slept_is_taken_for_dead_and_gives_way_when_it_wakes(
    tmp_path: Path, other: multiprocessing.context.SpawnProcess
) -> None:
    place = Location.at(tmp_path)
    with pytest.raises(HeldError), hold_lease(place, ignore, beat=0.1, expiry=60.0):
        pytest.fail("it sends heartbeats")
    os.kill(other.pid, signal.SIGSTOP)
    lost = threading.Event()
    with hold_lease(place, lost.set, beat=0.1, expiry=2.0):
        os.kill(other.pid, signal.SIGCONT)
        wait_for(lambda: len(list((tmp_path / "lease").iterdir())) == 1)
        assert not lost.is_set()  # it is the other that gives way
        who = holder(place)
        assert who is not None
        assert who.pid == os.getpid()


def test_whoever_loses_the_lease_is_told_once(tmp_path: Path) -> None:
    place = Location.at(tmp_path)
    told: list[bool] = []
    with hold_lease(place, lambda: told.append(True), beat=0.05, expiry=2.0):
        for claim in (tmp_path / "lease").iterdir():
            claim.unlink()
        wait_for(lambda: told)
        time.sleep(0.5)  # ten beats more
    assert told == [True]


def claim_once(folder: Path, start: multiprocessing.synchronize.Barrier, won: multiprocessing.Queue[bool]) -> None:
    start.wait(60)
    try:
        with hold_lease(Location.at(folder), ignore):
            won.put(True)
            start.wait(60)  # hold it until all have tried
    except HeldError:
        won.put(False)
        start.wait(60)


def test_of_many_that_claim_at_once_one_wins_at_most(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, won = context.Barrier(4), context.Queue()
    claimants = [context.Process(target=claim_once, args=(tmp_path, start, won)) for _ in range(4)]
    for process in claimants:
        process.start()
    wins = sum(won.get(timeout=600) for _ in claimants)
    for process in claimants:
        process.join(60)
        assert process.exitcode == 0
    assert wins <= 1
    with hold_lease(Location.at(tmp_path), ignore):  # and nothing of the contest stays in the way
        assert len(list((tmp_path / "lease").iterdir())) == 1


@pytest.mark.parametrize("written", [-3600.0, 0.0, 3600.0], ids=["an hour ago", "now", "in an hour"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "half"])
def test_a_dead_holders_lease_ends_when_no_heartbeat_was_seen_whatever_the_clocks_say(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, written: float, whole: bool
) -> None:
    file = a_lease_of_another_machine(tmp_path)
    if not whole:
        file.write_bytes(file.read_bytes()[:20])
    os.utime(file, (time.time() + written,) * 2)
    assert holder(Location.at(tmp_path), expiry=0.5) is None
    with hold_lease(Location.at(tmp_path), ignore, expiry=1.0):
        assert WAITS in caplog.text
        assert not file.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"term": 1}',
        *(f'{{"term": {value}}}'.encode() for value in ("1e999", "{}")),
    ],
)
def test_a_lease_file_of_any_content_expires_like_any_other(tmp_path: Path, content: bytes) -> None:
    place = Location.at(tmp_path)
    place.write("lease/odd.json", content)
    with hold_lease(place, ignore, expiry=0.2):
        assert not (tmp_path / "lease" / "odd.json").exists()


def a_lease_of_another_machine(folder: Path, beats: int = 0) -> Path:
    """A whole lease file after so many heartbeats."""
    file = folder / "lease" / "other.json"
    file.parent.mkdir(exist_ok=True)
    new = folder / "new"
    new.write_text(json.dumps({"term": 1, "beats": beats, **asdict(OTHER)}))
    return new.replace(file)


def test_a_driver_of_another_machine_is_known_by_its_heartbeat(tmp_path: Path) -> None:
    a_lease_of_another_machine(tmp_path)
    ended = threading.Event()

    def beat() -> None:
        beats = 0
        while not ended.wait(0.5):
            beats += 1
            os.utime(a_lease_of_another_machine(tmp_path, beats), (0, 0))  # its storage's clock stands still

    heartbeat = threading.Thread(target=beat)
    heartbeat.start()
    try:
        assert holder(Location.at(tmp_path)) == OTHER
        with (
            pytest.raises(HeldError, match="process 7 on elsewhere"),
            hold_lease(Location.at(tmp_path), ignore, expiry=10.0),
        ):
            pytest.fail("it sends heartbeats")
    finally:
        ended.set()
        heartbeat.join()


def test_a_driver_that_slept_within_its_heartbeat_loses_the_lease_that_it_restored(tmp_path: Path) -> None:
    """It saw its file, slept, was taken for dead, woke and wrote the file again; the newer driver deletes it."""
    older = a_lease_of_another_machine(tmp_path).read_bytes()
    lost = threading.Event()
    with hold_lease(Location.at(tmp_path), lost.set, beat=0.05, expiry=0.2):
        (tmp_path / "lease" / "other.json").write_bytes(older)
        wait_for(lambda: not (tmp_path / "lease" / "other.json").exists())
        assert not lost.is_set()


def test_a_process_number_that_is_used_again_is_not_its_former_owner() -> None:
    me = Holder.me()
    assert not me.process_is_gone
    assert Holder(me.host, me.pid, me.machine, "1", me.since, "").process_is_gone
    assert not Holder(me.host, 1 << 22, "another machine", "1", me.since, "").process_is_gone


@pytest.mark.parametrize(
    ("program", "name"),
    [("/a/memsweep/__main__.py", "memsweep"), ("/a/bin/memsweep", "memsweep"), ("/a/mine.py", "mine.py")],
)
def test_a_holder_has_the_name_of_its_program(program: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [program, "sweep", "mine"])
    assert Holder.me().command == f"{name} sweep mine"


def test_of_drivers_that_share_a_study_the_leader_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, leases = Location.at(tmp_path), {}
    with ExitStack() as held:
        for name in ("one", "two", "three"):
            monkeypatch.setattr("sys.argv", [name])
            leases[name] = held.enter_context(hold_lease(place, ignore, shared=True))
        for leader in leases:
            for name, lease in leases.items():
                lease.say(Share(("lead",) if name == leader else ("pack",)))
            who = holder(place)
            assert who is not None
            assert who.command == leader


def test_a_file_that_an_ended_sweep_of_this_process_left_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Location.at(tmp_path)

    def fails(*_: object) -> None:
        raise OSError("the storage is away")

    with monkeypatch.context() as away, hold_lease(place, ignore):
        away.setattr(Location, "delete", fails)
        with pytest.raises(HeldError), hold_lease(place, ignore):
            pytest.fail("two hold it")
    assert len(list((tmp_path / "lease").iterdir())) == 1
    assert holder(place) is None
    with hold_lease(place, ignore):
        assert holder(place) is not None


def test_a_lease_that_could_not_be_had_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, listed = Location.at(tmp_path), list[int]()
    names = Location.names

    def once(self: Location, folder: str = "") -> Any:
        listed.append(1)
        if len(listed) > 1:
            raise OSError("the storage is away")
        return names(self, folder)

    with monkeypatch.context() as away:
        away.setattr(Location, "names", once)
        with pytest.raises((StoreError, OSError)), hold_lease(place, ignore):
            pytest.fail("it is held")
    assert not list((tmp_path / "lease").iterdir())
