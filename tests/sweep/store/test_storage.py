"""One behaviour of ``Location`` and all that stands on it, on a local disk and in a bucket of a real S3 server."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_store import A, B, make_record, make_tables

from memsweep.errors import StoreError
from memsweep.sweep.planning.reuse import find_elsewhere
from memsweep.sweep.store import lease
from memsweep.sweep.store.filesystem import STAGING, Location
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.results import Store
from tally import Tally

ODD = ("a b+c", "ü%20é 100%.json", "名前.parquet", "x&y=z;it's", "~tilde,dot.")
LARGE = 21 * 10**6


@pytest.fixture(params=["disk", pytest.param("bucket", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """A place of its own for each test, on each kind of storage; nothing is there yet."""
    if request.param == "disk":
        return Location.at(tmp_path / "results")
    request.getfixturevalue("s3")
    return Location.at(f"s3://studies/{uuid.uuid4().hex}/results")


def test_what_was_written_is_read(place: Location) -> None:
    place.write("plan.json", b"one")
    place.write("records/a.json", bytes(range(256)))
    place.write("empty", b"")
    assert place.read("plan.json") == b"one"
    assert place.read("records/a.json") == bytes(range(256))
    assert place.read("empty") == b""
    place.write("plan.json", b"another, longer")
    assert place.read("plan.json") == b"another, longer"
    assert Location.at(place.uri).read("plan.json") == b"another, longer"
    assert (place / "records").read("a.json") == bytes(range(256))


def test_what_is_not_there(place: Location) -> None:
    for there in (False, True):
        with pytest.raises(FileNotFoundError):
            place.read("records/a.json")
        with pytest.raises(FileNotFoundError):
            place.move("records/a.json", "b.json")
        assert not place.exists("records/a.json")
        assert place.names("records") == {}
        assert there or set(place.folders()) <= {STAGING}
        place.delete("records/a.json")
        (place / "records").delete_all()
        place.write("records.json", b"a neighbour by its first letters")
    assert place.names() == {"records.json": 32}


def test_names_sizes_and_folders(place: Location) -> None:
    place.write_all({"a": b"1", "records/b": b"22", "records/deeper/c": b"333", "curves/d": b""})
    assert place.names() == {"a": 1}
    assert place.names("records") == {"b": 2}
    assert place.names("records/deeper") == {"c": 3}
    assert place.names("curves") == {"d": 0}
    assert place.names("a") == {}
    assert [name for name in place.folders() if name != STAGING] == ["curves", "records"]
    assert (place / "records").folders() == ["deeper"]
    assert place.exists("records/b")
    assert not place.exists("records")


def test_a_folder_that_is_being_made_is_empty_or_has_its_files(tmp_path: Path) -> None:
    """Arrow looks twice, and fails where a folder comes between."""
    place, folder, done = Location(str(tmp_path)), tmp_path / "lease", threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            folder.mkdir()
            folder.rmdir()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        assert all(place.names("lease") == {} for _ in range(20_000))
    finally:
        done.set()
        other.join()


@pytest.mark.drill
@pytest.mark.long
def test_more_names_than_one_page_of_a_listing(place: Location) -> None:
    """S3 lists a thousand names at a time."""
    count = 1010
    with ThreadPoolExecutor(32) as threads:
        list(threads.map(lambda number: place.write(f"records/{number:04}.json", b"x"), range(count)))
    assert place.names("records") == {f"{number:04}.json": 1 for number in range(count)}
    (place / "records").delete_all()
    assert place.names("records") == {}


def test_names_with_every_kind_of_letter(place: Location) -> None:
    for name in ODD:
        place.write(f"folder/{name}", name.encode())
        (place / name).write("inside", name.encode())
    assert place.names("folder") == {name: len(name.encode()) for name in ODD}
    assert set(place.folders()) - {STAGING} == {*ODD, "folder"}
    for name in ODD:
        assert place.exists(f"folder/{name}")
        assert place.read(f"folder/{name}") == name.encode()
        assert (place / name).read("inside") == name.encode()
        place.move(f"folder/{name}", f"moved/{name}")
        assert place.read(f"moved/{name}") == name.encode()
        place.delete(f"moved/{name}")
    assert place.names("folder") == place.names("moved") == {}


@pytest.mark.parametrize("study", ["a/b", "été 100% #1?", "..", "x" * 250, "%2F"])
def test_a_study_of_any_name_is_found_again_by_its_uri(place: Location, study: str) -> None:
    folder = place / folder_name(study)
    folder.write("plan.json", study.encode())
    assert Location.at(folder.uri).read("plan.json") == study.encode()
    assert folder_name(study) in place.folders()
    assert folder.parent == place
    assert folder.name == folder_name(study)


def test_move_and_delete(place: Location) -> None:
    place.write_all({"a/1": b"one", "a/2": b"two", "ab/3": b"three"})
    place.move("a/1", "set-aside/deep/1")
    assert place.names("a") == {"2": 3}
    assert place.read("set-aside/deep/1") == b"one"
    place.write("a/1", b"anew")
    place.move("a/1", "set-aside/deep/1")
    assert place.read("set-aside/deep/1") == b"anew"
    (place / "a").delete_all()
    assert place.names("a") == {}
    assert place.read("ab/3") == b"three"  # not taken for a part of a/
    place.delete_all()
    place.delete_all()
    assert place.names("ab") == {}
    assert place.folders() == []


def test_large_files(place: Location) -> None:
    data = random.Random(0).randbytes(LARGE)
    place.write("large", data)
    assert place.names() == {"large": LARGE}
    assert place.read("large") == data


def uniform(data: bytes, size: int) -> bool:
    """Whether it is one whole write: so many bytes, all the same."""
    return len(data) == size and data == data[:1] * size


def test_of_many_writers_of_one_name_one_wins_whole(place: Location) -> None:
    size, rounds, reads, writers = 200_000, 5, 5, 4
    place.write("name", b"." * size)
    seen: list[bool] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            seen.append(uniform(place.read("name"), size))

    def write(letter: int) -> None:
        place.write("name", bytes([letter]) * size)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with ThreadPoolExecutor(writers) as threads:
            # A bucket may answer one read while many writes come: the writers go on until enough was read.
            for number in itertools.count():
                first = 65 + writers * (number % rounds)
                list(threads.map(write, range(first, first + writers)))
                if number + 1 >= rounds and (len(seen) >= reads or not reader.is_alive()):
                    break
    finally:
        ended.set()
        reader.join()
    assert len(seen) >= reads
    assert all(seen)
    last = place.read("name")
    assert uniform(last, size)
    assert last[0] in range(first, first + writers)
    assert place.names(STAGING) == {}


TWO_PARTS = 11 * 10**6
WRITER = f"""
import itertools, sys
from memsweep.sweep.store.filesystem import Location
place = Location.at(sys.argv[1])
for number in itertools.count():
    letter = bytes([65 + number % 26])
    place.write("again", letter * {TWO_PARTS})
    files = {{"a": letter * 10**6, "b": letter * {TWO_PARTS}, "done": letter}}
    place.write_all({{f"{{number}}/{{name}}": data for name, data in files.items()}})
    print(number, flush=True)
"""


@pytest.mark.drill
def test_a_killed_writer_leaves_nothing_half(place: Location, tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL at seeded moments: a name holds one whole write, and a commit point stands only on whole files."""
    dice = random.Random(5)
    place.write("again", b"." * TWO_PARTS)
    for _ in range(3):
        with process(WRITER, place.uri) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(dice.uniform(0.0, 1.0 if place.local else 3.0))
            writer.kill()
        assert uniform(place.read("again"), TWO_PARTS)
        numbers = [name for name in place.folders() if name.isdigit()]
        assert numbers
        for number in numbers:
            if place.exists(f"{number}/done"):
                letter = bytes([65 + int(number) % 26])
                assert place.read(f"{number}/done") == letter
                assert place.read(f"{number}/a") == letter * 10**6
                assert place.read(f"{number}/b") == letter * TWO_PARTS
            (place / number).delete_all()
    tally.record(f"writer killed ({'disk' if place.local else 'S3'})", injected=3, lost=0, rerun=0, equal=True)
    if place.local is not None:
        left = list((place.local / STAGING).iterdir())
        for path in left:
            os.utime(path, (0, 0))
        place.clean()
        assert sorted((place.local / STAGING).iterdir()) == sorted(left)  # another may be writing them, by any clock
        seen = time.monotonic()
        monkeypatch.setattr("memsweep.sweep.store.filesystem.time.monotonic", lambda: seen + 3601.0)
        place.clean()
        assert list((place.local / STAGING).iterdir()) == []


def process(code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_store_keeps_results(place: Location) -> None:
    store, other = Store(place / "one"), Store(place / "two")
    assert store.identities() == frozenset()
    store.fail(A, {"outcome": "failed", "error": "first try", "traceback": ""})
    assert store.failures()[A]["error"] == "first try"
    assert store.write(A, make_record(A), make_tables(A))
    assert not store.write(A, make_record(A, study="never"), make_tables(A))
    assert store.write(B, make_record(B), make_tables(B))
    assert store.failures() == {}
    assert store.identities() == {A, B}
    assert store.record(A)["study"] == "s"
    assert [record["identity"] for record in store.records()] == [A, B]
    for name, frame in make_tables(A).items():
        assert len(store.table(name)) == 2 * len(frame)
        assert store.tables(A)[name].shape[0] == len(frame)
    assert find_elsewhere(place, [A, B]) == {A: store.location, B: store.location}
    assert other.copy_from(store, A)
    assert not other.copy_from(store, A)
    assert other.location.read(f"curves/{A}.parquet") == store.location.read(f"curves/{A}.parquet")
    with pytest.raises(StoreError, match="holds no result"):
        other.copy_from(store, "c" * 32)
    assert store.check([A, B]) == other.check([A]) == {}


def test_a_store_knows_what_is_damaged(place: Location) -> None:
    store = Store(place)
    for identity in (A, B):
        store.write(identity, make_record(identity), make_tables(identity))
    whole = place.read(f"curves/{A}.parquet")
    place.write(f"curves/{A}.parquet", whole[: len(whole) // 2])
    assert list(store.check([A, B])) == [A]
    assert f"curves/{A}.parquet is damaged" in store.check([A])[A]
    with pytest.raises(StoreError, match="damaged"):
        Store(place.parent / "third").copy_from(store, A)
    store.set_aside(A)
    assert store.identities() == {B}
    assert not place.exists(f"curves/{A}.parquet")
    aside = place / ".set-aside" / (place / ".set-aside").folders()[0]
    assert aside.read("curves.parquet") == whole[: len(whole) // 2]
    assert store.write(A, make_record(A), make_tables(A))
    assert store.check([A, B]) == {}


def test_a_store_keeps_checkpoints(place: Location) -> None:
    store = Store(place)
    slot = store.slot("pack")
    assert slot.read() is None
    slot.write(b"a state")
    assert store.slot("pack").read() == b"a state"
    slot.delete()
    slot.delete()
    assert slot.read() is None
    slot.write(b"another")
    store.forget_checkpoints()
    store.forget_checkpoints()
    assert slot.read() is None


def test_of_eight_threads_that_claim_a_lease_at_once_one_gets_it(tmp_path: Path) -> None:
    place = Location.at(tmp_path)
    start, settled = threading.Barrier(8), threading.Barrier(8)

    def claim(_: int) -> str:
        start.wait()
        try:
            with lease.hold_lease(place, lambda: None):
                settled.wait(timeout=600)
                return "won"
        except lease.HeldError as refused:
            settled.wait(timeout=600)
            return str(refused)

    with ThreadPoolExecutor(8) as threads:
        said = sorted(threads.map(claim, range(8)))
    assert said.count("won") == 1
    assert sum("another driver is at work" in word for word in said) == 7
    assert lease.holder(place) is None
    with lease.hold_lease(place, lambda: None):
        assert lease.holder(place) is not None


CLAIMANT = """
import sys
from memsweep.sweep.store.lease import HeldError, hold_lease
from memsweep.sweep.store.filesystem import Location
place = Location.at(sys.argv[1])
place.names()
print("ready", flush=True)
sys.stdin.readline()
try:
    with hold_lease(place, lambda: None):
        print("won", flush=True)
        sys.stdin.readline()
except HeldError:
    print("refused", flush=True)
"""


@pytest.mark.drill
def test_of_eight_processes_that_claim_a_lease_at_once_one_gets_it(place: Location) -> None:
    claimants = [process(CLAIMANT, place.uri) for _ in range(8)]
    try:
        assert [ask(claimant) for claimant in claimants] == ["ready"] * 8
        for claimant in claimants:
            tell(claimant)
        assert sorted(ask(claimant) for claimant in claimants) == ["refused"] * 7 + ["won"]
    finally:
        for claimant in claimants:
            claimant.kill()
            claimant.wait()
    assert lease.holder(place) is None  # it was killed while it held


def ask(claimant: subprocess.Popen[str]) -> str:
    assert claimant.stdout is not None
    return claimant.stdout.readline().strip()


def tell(claimant: subprocess.Popen[str]) -> None:
    assert claimant.stdin is not None
    claimant.stdin.write("go\n")
    claimant.stdin.flush()
