"""Several drivers on one study: each pack is taken by one of them, and the packs of the dead are free again."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from memsweep.cli import main
from memsweep.sweep.driver.claims import Claims
from memsweep.sweep.driver.launch import Launch, Limits
from memsweep.sweep.driver.runner import RunSummary, run
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import State, read_statuses
from memsweep.sweep.store.lease import HeldError, Holder, Lease, Share, hold_lease
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import PackJob, PackReport, Progress
from processes import wait_for
from runner_work import RAISER, planned, tiny, troubled
from s3_server import S3Server
from sweeping import BASE

ELSEWHERE = Holder("elsewhere", 7, "another machine", "1", "then", "memsweep sweep --share")
PACKS = [f"pack {number}" for number in range(12)]


def ignore() -> None:
    pass


@contextmanager
def drivers(place: Location, count: int = 2, expiry: float = 60.0) -> Iterator[list[Claims]]:
    """Drivers that share a study; their clocks go so fast that none waits between two tries."""
    with ExitStack() as stack:
        leases = [stack.enter_context(hold_lease(place, ignore, shared=True, expiry=expiry)) for _ in range(count)]
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


@pytest.mark.s3
def test_each_pack_of_a_bucket_is_taken_once_by_many_drivers_at_once(s3: S3Server) -> None:
    contest(Location.at(f"s3://studies/{uuid.uuid4().hex}"))


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
    with drivers(Location.at(tmp_path), 1, expiry=0.5) as (claims,):
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


def test_two_drivers_run_each_pack_once_and_a_failure_is_not_tried_by_both(tmp_path: Path) -> None:
    """The second driver works while the first is in the middle of its first pack, until it has ended three trials."""
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
    words = ["sweep", str(study), "--share", "--no-reuse", "--inline", "--results", str(tmp_path / "results")]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "one driver makes the rounds of a search" in told
    assert "with --no-reuse each driver would set aside" in told
    assert not (tmp_path / "results").exists()
