"""Several drivers on one study: each pack is taken by one of them, and the packs of the dead are free again."""

from __future__ import annotations

import errno
import itertools
import json
import multiprocessing
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from memsweep.cli import main
from memsweep.errors import StorageError
from memsweep.sweep.driver.claims import Claims
from memsweep.sweep.driver.launch import Launch, Limits
from memsweep.sweep.driver.runner import RunSummary, run
from memsweep.sweep.driver.scheduler import PackScheduler
from memsweep.sweep.driver.sharing import Divided, open_packs
from memsweep.sweep.planning.plan import Plan
from memsweep.sweep.store.filesystem import STAGING, Location
from memsweep.sweep.store.journal import Journal, State, TrialStatus, read_statuses
from memsweep.sweep.store.lease import HeldError, Holder, Lease, Share, hold_lease
from memsweep.sweep.store.record import StoredFailure
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import Failure, PackJob, PackReport, Progress
from memsweep.sweep.worker.failure import NODE_LOST
from memsweep.sweep.worker.job import jobs_of
from processes import wait_for
from runner_work import RAISER, obstruct, planned, tiny, troubled
from sweeping import BASE

ELSEWHERE = Holder("elsewhere", 7, "another machine", "1", "then", "memsweep sweep --share")
PACKS = [f"pack {number}" for number in range(12)]


def ignore() -> None:
    pass


@contextmanager
def drivers(place: Location, count: int = 2, expiry: float = 60.0, beat: float = 5.0) -> Iterator[list[Claims]]:
    """Drivers that share a study; their clocks go so fast that none waits between two tries."""
    with ExitStack() as stack:
        leases = [
            stack.enter_context(hold_lease(place, ignore, shared=True, beat=beat, expiry=expiry)) for _ in range(count)
        ]
        yield [Claims(lease, itertools.count(step=10).__next__) for lease in leases]


def contest(place: Location) -> None:
    """Four drivers take all that they can get, at once, and give some of it back: nobody takes what another holds."""
    owners: dict[str, int] = {}
    wrong: list[str] = []
    lock = threading.Lock()

    def take_all(number: int, claims: Claims) -> None:
        for round_ in range(100):
            with lock:
                if len(owners) == len(PACKS):
                    return
            for pack in claims.take(PACKS, 2):
                with lock:
                    wrong.extend([pack] if pack in owners else [])
                    if round_ % 3:
                        owners[pack] = number
                        continue
                claims.release([pack])
            time.sleep(0.01 * (number + 1))

    with drivers(place, 4) as all_of_them:
        threads = [threading.Thread(target=take_all, args=each) for each in enumerate(all_of_them)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert wrong == []
        assert owners.keys() == set(PACKS)
        for number, claims in enumerate(all_of_them):
            assert claims.held == {pack for pack, owner in owners.items() if owner == number}


def test_each_pack_is_taken_once_by_many_drivers_at_once(tmp_path: Path) -> None:
    contest(Location.at(tmp_path))


def test_of_two_that_write_before_either_reads_none_keeps_what_both_want(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[list[str]] = []
    with drivers(Location.at(tmp_path)) as (one, other):
        say = Lease.say

        def slow(lease: Lease, share: Share) -> bool:
            said = say(lease, share)
            monkeypatch.setattr(Lease, "say", say)
            got.append(other.take(["a", "b"], 1))  # between what the first one writes and what it reads
            return said

        monkeypatch.setattr(Lease, "say", slow)
        got.append(one.take(["a"], 1))
        assert got in ([[], []], [["b"], ["a"]])
        assert one.take(["a"], 1) + other.take(["a"], 1) != ["a", "a"]


def test_one_leads_and_when_it_leaves_another_does(tmp_path: Path) -> None:
    place = Location.at(tmp_path)
    with drivers(place, 1) as (second,):
        with drivers(place, 1) as (first,):
            assert first.lead()
            assert not second.lead()
            first.announce("cut")
            found = second.leader()
            assert found is not None
            assert found[1].cut == "cut"
        assert second.leader() is None
        assert second.lead()


def shared_file(folder: Path, *taken: str, beats: int = 0) -> Path:
    """The lease file of a driver on another machine, which has taken this."""
    file = folder / "lease" / "other.json"
    file.parent.mkdir(exist_ok=True)
    content = {"term": 1, "beats": beats, **asdict(ELSEWHERE), "share": asdict(Share(taken))}
    (folder / "new").write_text(json.dumps(content))
    return (folder / "new").replace(file)


def test_a_driver_that_is_silent_gives_its_packs_back_and_one_that_beats_does_not(tmp_path: Path) -> None:
    shared_file(tmp_path, "a")
    with drivers(Location.at(tmp_path), 1, expiry=0.5, beat=0.05) as (claims,):
        for beats in range(1, 5):
            assert claims.take(["a"], 1) == []
            time.sleep(0.2)
            shared_file(tmp_path, "a", beats=beats)
        wait_for(lambda: claims.take(["a"], 1) == ["a"])
        # it had slept within its heartbeat, and restores its file
        shared_file(tmp_path, "a", beats=4)
        assert claims.leader() is None
        assert not (tmp_path / "lease" / "other.json").exists()
        assert claims.held == {"a"}


def test_while_the_storage_takes_nothing_nobody_counts_as_silent(tmp_path: Path) -> None:
    """No driver can send a heartbeat meanwhile; the first one that can must not find all others dead."""
    file = shared_file(tmp_path, "a")
    with drivers(Location.at(tmp_path), 1, expiry=0.3, beat=0.05) as (claims,):
        obstruct(tmp_path)
        assert claims.leader() is None
        time.sleep(0.6)
        assert claims.leader() is None
        assert file.exists()
        (tmp_path / STAGING).unlink()
        wait_for(lambda: claims.take(["a"], 1) == ["a"])  # with the storage, time goes on


@pytest.mark.parametrize("failing", ["others", "say"])
def test_what_another_may_have_taken_too_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Another driver takes the same at the same moment; the storage fails before this one knows, or gives back."""
    real, calls = getattr(Lease, failing), itertools.count()

    def second_fails(lease: Lease, *words: Share) -> object:
        if next(calls) == 1:
            raise OSError(errno.EIO, "Input/output error")
        answer = real(lease, *words)
        shared_file(tmp_path, "a")
        return answer

    with drivers(Location.at(tmp_path), 1) as (claims,):
        with monkeypatch.context() as patch:
            patch.setattr(Lease, failing, second_fails)
            with pytest.raises(StorageError):
                claims.take(["a"], 1)
        assert claims.held == frozenset()
        assert claims.take(["a", "b"], 2) == ["b"]
        (own,) = [file for file in (tmp_path / "lease").iterdir() if file.name != "other.json"]
        assert json.loads(own.read_text())["share"]["taken"] == ["b"]


Told = list[tuple[Mapping[str, str], Mapping[str, StoredFailure]]]


def division(claims: Claims, plan: Plan, folder: Path, **more: Any) -> tuple[Divided, Told]:
    """A division that is to run the packs of a plan, and what it has found of the others."""
    told: Told = []
    divided = Divided(claims, Store(Location.at(folder)), lambda *found: told.append(found), lambda: 1, **more)
    divided.begin(jobs_of(plan, folder, str(folder)))
    return divided, told


def test_a_pack_that_could_not_be_given_back_is_given_back_later(tmp_path: Path) -> None:
    plan = planned([[tiny(1)], [tiny(2)]])
    with drivers(Location.at(tmp_path)) as (one, other):
        divided, _ = division(one, plan, tmp_path)
        assert divided.any()
        (pack,) = one.held
        (trial,) = next(each.trials for each in plan.packs if each.identity == pack)
        obstruct(tmp_path)
        with pytest.raises(StorageError):
            divided.settled(trial.identity)
        (tmp_path / STAGING).unlink()
        assert other.take([pack], 1) == []
        divided.any()
        assert other.take([pack], 1) == [pack]


def test_what_others_hold_or_have_stored_is_not_waited_for(tmp_path: Path) -> None:
    plan = planned([[tiny(1)], [tiny(2)], [tiny(3)]])
    store = Store(Location.at(tmp_path))
    with drivers(Location.at(tmp_path)) as (one, other):
        divided, _ = division(one, plan, tmp_path)
        packs = [pack.identity for pack in plan.packs]
        assert (divided.free(packs), len(open_packs(plan.packs, one, store, {}))) == (3, 3)
        assert len(other.take(packs[:2], 2)) == 2
        assert divided.free(packs) == 1
        assert [pack.identity for pack in open_packs(plan.packs, one, store, {})] == packs[2:]
        other.release(packs[:1])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Store, "identities", lambda store: {trial.identity for trial in plan.packs[2].trials})
            assert [pack.identity for pack in open_packs(plan.packs, one, store, {})] == packs[:1]
        with pytest.MonkeyPatch.context() as patch:
            failed = {trial.identity: {"time": "2"} for trial in plan.packs[2].trials}
            patch.setattr(Store, "failures", lambda store, among=None: failed)
            assert [pack.identity for pack in open_packs(plan.packs, one, store, {})] == packs[:1]
            again = open_packs(plan.packs, one, store, dict.fromkeys(failed, "2"))  # it is tried again
            assert [pack.identity for pack in again] == [packs[0], packs[2]]
        assert divided.first([packs[2]]) == packs[2]
        divided.started(packs[2])
        assert divided.free(packs) == 1  # what runs here waits no more
    assert open_packs(plan.packs, None, store, {}) == plan.packs


def test_a_pack_that_was_taken_does_not_start_before_it_is_known_what_is_stored_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(store: Store, names: object) -> dict[str, str]:
        raise StorageError("cannot read", "Try again.")

    plan = planned([[tiny(1)]])
    (pack,) = plan.packs
    with drivers(Location.at(tmp_path), 1) as (claims,):
        divided, told = division(claims, plan, tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(Store, "outcomes", fails)
            for _ in range(2):
                with pytest.raises(StorageError):
                    divided.any()
        divided.begin(jobs_of(plan, tmp_path, str(tmp_path)))
        assert told == []
        assert divided.first([pack.identity]) == pack.identity
        assert told == [({}, {})]


def test_the_end_of_the_leader_is_seen_also_where_looks_are_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that has ended the study stays for ten seconds; each look at the stored results takes fifty."""
    looks: list[float] = []
    monkeypatch.setattr(Store, "identities", lambda store: looks.append(0.0) or set())
    with drivers(Location.at(tmp_path)) as (one, other):
        plan = planned([[tiny(1)]])
        assert other.take([plan.packs[0].identity], 1)
        divided, _ = division(one, plan, tmp_path, clock=itertools.count(step=50).__next__)
        looks.clear()
        assert [divided.any() for _ in range(3)] == [False] * 3
        assert len(looks) == 3


def test_a_pack_whose_worker_died_before_it_began_is_not_to_be_started(tmp_path: Path) -> None:
    plan = planned([[tiny(1)]])
    place = Location.at(tmp_path / "demo")
    lost: Failure = {"outcome": "failed", "error": "its node was lost", "traceback": "", "cause": NODE_LOST}
    with drivers(place, 1) as (claims,):
        journal = Journal(place, {plan.trials[0].identity: TrialStatus()})
        scheduler = PackScheduler(
            plan, tmp_path, Store(place), journal, lambda shown: None, lambda name: None, claims=claims
        )
        batches = scheduler.batches(lambda: 1)
        (job,), _ = next(batches)
        assert scheduler.first([job.pack]) == job.pack
        scheduler.died(job, lost)
        assert not scheduler.may_start()
        (again,), _ = next(batches)
        assert scheduler.first([again.pack]) == again.pack


def take_until_killed(folder: Path, ready: multiprocessing.synchronize.Event) -> None:
    with drivers(Location.at(folder), 1) as (claims,):
        assert claims.take(["a"], 1) == ["a"]
        ready.set()
        time.sleep(600)


@pytest.mark.more
def test_the_packs_of_a_killed_driver_of_this_machine_are_free_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=take_until_killed, args=(tmp_path, ready))
    process.start()
    assert ready.wait(120)
    with drivers(Location.at(tmp_path), 1) as (claims,):
        assert claims.take(["a", "b"], 2) == ["b"]
        process.kill()
        process.join(60)
        assert claims.take(["a"], 1) == ["a"]


def test_a_driver_that_others_took_for_dead_takes_nothing(tmp_path: Path) -> None:
    with drivers(Location.at(tmp_path), 1) as (claims,):
        assert claims.take(["a"], 1) == ["a"]
        for file in (tmp_path / "lease").iterdir():
            file.unlink()
        assert claims.take(["b"], 1) == []
        assert [*(tmp_path / "lease").iterdir()] == []


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (False, False)])
def test_who_shares_a_study_and_who_does_not_are_never_at_work_together(
    tmp_path: Path, first: bool, second: bool
) -> None:
    place = Location.at(tmp_path)
    with (
        hold_lease(place, ignore, shared=first),
        pytest.raises(HeldError, match="--share"),
        hold_lease(place, ignore, shared=second),
    ):
        pytest.fail("both are at work")


@pytest.mark.parametrize(
    "share", [None, 1, {}, {"taken": [1], "cut": "", "concluded": False}, {"taken": [], "cut": "", "concluded": 0}]
)
def test_a_lease_file_with_an_odd_share_is_of_a_driver_that_shares_nothing(share: object) -> None:
    assert Share.of(share) is None
    whole = Share(("a",), "b", concluded=True)
    assert Share.of(json.loads(json.dumps(asdict(whole)))) == whole


def test_two_drivers_run_each_pack_once_and_a_failure_is_not_tried_by_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second driver works while the first is in the middle of its first pack, until a trial has failed.

    They take packs in their order: where the first driver held the one that fails, the second would wait for it.
    """
    monkeypatch.setattr("memsweep.sweep.driver.claims._some", lambda free, most: free[:most])
    plan = planned([[tiny(1)], [tiny(2), tiny(2, width=3)], [tiny(3)], [tiny(RAISER)], [tiny(4)]])
    place, ran, other = Location.at(tmp_path / "demo"), list[str](), list[RunSummary]()

    def work(job: PackJob, progress: Progress) -> PackReport:
        ran.append(job.pack)
        if len(ran) == 1:
            other.append(driven(second, Limits(failures=1), leads=False))
        return troubled(job, progress)

    def driven(claims: Claims, limits: Limits | None, *, leads: bool) -> RunSummary:
        return run(
            plan,
            workspace=tmp_path,
            results=tmp_path,
            launch=Launch(inline=True),
            work=work,
            limits=limits,
            claims=claims,
            leads=leads,
        )

    with drivers(place) as (first, second):
        whole = driven(first, None, leads=True)
        assert first.held == frozenset()
    (part,) = other
    assert sorted(ran) == sorted(pack.identity for pack in plan.packs)
    assert part.limit
    assert part.elsewhere == frozenset()
    assert whole.elsewhere == part.finished.keys()
    assert len(whole.finished) == 5
    assert whole.failed.keys() == part.failed.keys()
    assert len(whole.failed) == 1
    assert Store(place).identities() == whole.finished.keys()
    states = [status.state for status in read_statuses(place).values()]
    assert sorted(states) == sorted([State.DONE] * 5 + [State.FAILED])


def test_packs_keep_their_name_between_drivers_when_some_of_their_trials_are_done(tmp_path: Path) -> None:
    from memsweep.sweep.planning.plan import make_plan

    plan = planned([[tiny(1), tiny(2), tiny(3)]])
    one = make_plan(plan.sweep, plan.trials, frozenset())
    other = make_plan(plan.sweep, plan.trials, {plan.trials[0].identity})
    assert one.cut == other.cut
    assert one.packs[0].identity != other.packs[0].identity
    assert one.packs[0].whole == other.packs[0].whole
    assert make_plan(plan.sweep, plan.trials[1:], frozenset()).cut != one.cut


def test_what_cannot_be_shared_is_refused_with_all_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "searched.yaml"
    study.write_text(f"{BASE}search: {{trials: 2, training.learning_rate: {{choice: [1e-3, 1e-2]}}}}\n")
    words = ["sweep", str(study), "--share", "--no-reuse", "--inline", "--results"]
    assert main([*words, "s3://no-such-bucket/results"]) == 2
    assert (
        "s3://no-such-bucket/results is a bucket, in which two drivers may take the same pack"
        in capsys.readouterr().err
    )
    assert main([*words, str(tmp_path / "results")]) == 2
    told = capsys.readouterr().err
    assert "is a bucket" not in told
    assert "one driver makes the rounds of a search" in told
    assert "with --no-reuse each driver would set aside" in told
    assert not (tmp_path / "results").exists()


def test_lists_that_leave_files_out_let_nothing_be_taken_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage may do so where a file is new, or is written anew."""
    names = Location.names
    with drivers(Location.at(tmp_path)) as (one, other):
        monkeypatch.setattr(Location, "names", lambda place, folder: {})
        assert one.take(PACKS, 2) == []
        assert not one.held
        monkeypatch.setattr(Location, "names", names)
        taken = one.take(PACKS, 2) + other.take(PACKS, 2)
        (own,) = {*names(tmp_path_of := Location.at(tmp_path), "lease")} - {*other._lease._others._seen}
        monkeypatch.setattr(Location, "names", lambda place, folder: {own: names(tmp_path_of, folder)[own]})
        taken += other.take(PACKS, len(PACKS))
        assert sorted(taken) == sorted({*taken})
        assert len(taken) == len(PACKS)
