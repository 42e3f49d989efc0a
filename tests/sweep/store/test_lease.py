"""One driver at a time: a second is refused with who holds the sweep, and the dead are forgotten."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.lease import HeldError, Holder, hold_lease, holder
from processes import wait_for

LISTENED = "waits for its next heartbeat"
"""Is logged while the heartbeat of a holder on another machine is awaited."""


def ignore() -> None:
    pass


def hold_until_killed(folder: Path, ready: multiprocessing.synchronize.Event) -> None:
    with hold_lease(Location.at(folder), ignore, beat=0.1, expiry=2.0):
        ready.set()
        time.sleep(600)


@pytest.fixture
def other(tmp_path: Path) -> multiprocessing.context.SpawnProcess:
    """Another process that holds the lease."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=hold_until_killed, args=(tmp_path, ready))
    process.start()
    assert ready.wait(60)
    yield process
    process.kill()
    process.join(60)


def test_the_second_is_told_who_holds_it_and_a_killed_holder_is_forgotten_at_once(
    tmp_path: Path, other: multiprocessing.context.SpawnProcess
) -> None:
    place = Location.at(tmp_path)
    with pytest.raises(HeldError, match=rf"process {other.pid} on {socket.gethostname()}"), hold_lease(place, ignore):
        pytest.fail("two hold it")
    who = holder(place)
    assert who is not None
    assert (who[0].pid, who[0].host) == (other.pid, socket.gethostname())
    other.kill()
    other.join(60)
    assert holder(place) is None
    with hold_lease(place, ignore):
        mine = holder(place)
        assert mine is not None
        assert mine[0].pid == os.getpid()
    assert holder(place) is None
    assert list((tmp_path / "lease").iterdir()) == []


def test_a_holder_that_slept_is_taken_for_dead_and_gives_way_when_it_wakes(
    tmp_path: Path, other: multiprocessing.context.SpawnProcess
) -> None:
    place = Location.at(tmp_path)
    os.kill(other.pid, signal.SIGSTOP)
    with pytest.raises(HeldError), hold_lease(place, ignore, beat=0.1, expiry=60.0):
        pytest.fail("it was heard a moment ago")
    time.sleep(2.5)
    lost = threading.Event()
    with hold_lease(place, lost.set, beat=0.1, expiry=2.0):
        os.kill(other.pid, signal.SIGCONT)
        wait_for(lambda: len(list((tmp_path / "lease").iterdir())) == 1)
        assert not lost.is_set()  # it is the other that gives way
        who = holder(place)
        assert who is not None
        assert who[0].pid == os.getpid()


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
    start, won = context.Barrier(6), context.Queue()
    claimants = [context.Process(target=claim_once, args=(tmp_path, start, won)) for _ in range(6)]
    for process in claimants:
        process.start()
    wins = sum(won.get(timeout=600) for _ in claimants)
    for process in claimants:
        process.join(60)
        assert process.exitcode == 0
    assert wins <= 1
    with hold_lease(Location.at(tmp_path), ignore):  # and nothing of the contest stays in the way
        assert len(list((tmp_path / "lease").iterdir())) == 1


def test_a_claim_that_a_power_cut_left_half_counts_until_it_is_old(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Location.at(tmp_path)
    place.write("lease/half.json", b'{"host": "a')
    with hold_lease(place, ignore, expiry=1.0):
        assert LISTENED in caplog.text
    place.write("lease/half.json", b'{"host": "a')
    old = time.time() - 3600
    os.utime(tmp_path / "lease" / "half.json", (old, old))
    caplog.clear()
    with hold_lease(place, ignore):
        assert not (tmp_path / "lease" / "half.json").exists()
        assert LISTENED not in caplog.text


def a_claim_of_another_machine(folder: Path) -> Path:
    claim = folder / "lease" / "other.json"
    claim.parent.mkdir()
    claim.write_text(json.dumps(asdict(Holder("elsewhere", 7, "another machine", "1", "then", "memsweep sweep"))))
    return claim


def test_a_driver_of_another_machine_is_known_by_its_heart(tmp_path: Path) -> None:
    claim, ended = a_claim_of_another_machine(tmp_path), threading.Event()

    def beat() -> None:
        while not ended.wait(0.5):
            claim.touch()

    heart = threading.Thread(target=beat)
    heart.start()
    try:
        with (
            pytest.raises(HeldError, match="process 7 on elsewhere"),
            hold_lease(Location.at(tmp_path), ignore, expiry=10.0),
        ):
            pytest.fail("its heart beats")
    finally:
        ended.set()
        heart.join()


def test_a_driver_of_another_machine_that_died_just_now_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    claim = a_claim_of_another_machine(tmp_path)
    with hold_lease(Location.at(tmp_path), ignore, expiry=1.0):
        assert LISTENED in caplog.text
        assert not claim.exists()


def test_a_process_number_that_is_used_again_is_not_its_former_owner() -> None:
    me = Holder.me()
    assert not me.process_is_gone
    assert Holder(me.host, me.pid, me.machine, "1", me.since, "").process_is_gone
    assert not Holder(me.host, 1 << 22, "another machine", "1", me.since, "").process_is_gone
