"""A driver of a shared study that does not lead, beside a leader that the test plays by the leader's own lease file."""

from __future__ import annotations

import errno
import io
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import memsweep as ms
from engine import trial
from memsweep.config.load.study import load_study
from memsweep.config.schema.study import ResourcesConfig, SweepConfig
from memsweep.errors import BlockedError, ConfigError
from memsweep.studies.continuation import trials_of
from memsweep.studies.ending import Ending
from memsweep.studies.locations import Place
from memsweep.studies.sharing.run import SharedRun
from memsweep.studies.trials import Request
from memsweep.sweep.driver.claims import Claims
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.plan_file import write_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import Journal, State, TrialStatus
from memsweep.sweep.store.lease import Lease, Share, hold_lease
from memsweep.sweep.store.record import now
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.unwritable import fallback_folder
from sweeping import BASE

TIME = "2026-06-15T00:00:00+00:00"


@dataclass
class Leader:
    """A leader that has written its plan and begun its journal."""

    claims: Claims
    lease: Lease
    request: Request
    store: Store

    @property
    def names(self) -> list[str]:
        return [each.identity for each in self.request.trials]

    def conclude(self) -> None:
        self.lease.say(replace(self.lease.share, concluded=True))

    def fail(self, name: str) -> None:
        self.store.fail(
            name, {"outcome": "failed", "error": "ValueError", "traceback": "", "study": "s", "time": now()}
        )


def a_request(*first_seeds: int) -> Request:
    rows = tuple(trial(training={"first_seed": seed, "seeds": 1, "steps": 20}) for seed in first_seeds)
    sweep = SweepConfig(name="shared", rows=rows, grid={}, resources=ResourcesConfig())
    return Request(sweep, identified(sweep))


@contextmanager
def leading(results: Path, request: Request) -> Iterator[Leader]:
    store = Store(Location.at(results / request.sweep.name))
    plan = make_plan(request.sweep, request.trials, frozenset())
    write_plan(store.location, plan, {"started": TIME}, {})
    with hold_lease(store.location, lambda: None, shared=True) as lease:
        claims = Claims(lease)
        assert claims.lead()
        claims.announce(plan.cut)
        yield Leader(claims, lease, request, store)


class Watched(io.StringIO):
    """A stream that calls ``act`` at a line with these words, each time."""

    def __init__(self, words: str, act: Callable[[], None]) -> None:
        super().__init__()
        self._words, self._act = words, act

    def write(self, text: str) -> int:
        if self._words in text:
            self._act()
        return super().write(text)


def follow(results: Path, request: Request, stream: io.StringIO | None = None) -> Ending:
    place = Place(Location.at(results), launch=Launch(inline=True))
    return SharedRun(request, place, stream or io.StringIO()).execute()


def test_what_failed_since_the_leader_began_is_not_tried_by_a_driver_that_joins(tmp_path: Path) -> None:
    with leading(tmp_path, a_request(1, 2)) as leader:
        failed, other = leader.names
        leader.fail(failed)
        Journal(leader.store.location, {failed: TrialStatus(State.FAILED, now(), 1), other: TrialStatus()})
        ended = follow(tmp_path, leader.request, Watched("is to write the report", leader.conclude))
    assert ended.code == 1
    assert (ended.summary.finished.keys(), ended.summary.failed.keys()) == ({other}, {failed})
    assert ended.left == 0


def test_what_failed_before_the_leader_began_is_tried_again(tmp_path: Path) -> None:
    with leading(tmp_path, a_request(1)) as leader:
        (name,) = leader.names
        leader.fail(name)
        Journal(leader.store.location, {name: TrialStatus(State.FAILED, "2026-01-01T00:00:00+00:00", 1)})
        ended = follow(tmp_path, leader.request, Watched("is to write the report", leader.conclude))
    assert (ended.code, [*ended.summary.finished]) == (0, [name])


def test_failures_are_not_forgotten_when_another_driver_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader leaves while this driver waits for the report, and another one is quicker to lead."""
    take_lead, lead_again = Claims.lead, False
    with leading(tmp_path, a_request(1)) as leader:
        (name,) = leader.names
        Journal(leader.store.location, {name: TrialStatus()})

        def leave() -> None:
            nonlocal lead_again
            if lead_again:
                leader.conclude()
            else:
                leader.claims.release(["lead"])
                lead_again = True

        def too_late(claims: Claims) -> bool:
            if lead_again:
                assert take_lead(leader.claims)
            return False

        def fails(*ignored: object, **others: object) -> None:
            raise ValueError("a fault of the task")

        monkeypatch.setattr(Claims, "lead", too_late)
        monkeypatch.setattr("memsweep.sweep.worker.execute._run_pack", lambda: fails)
        ended = follow(tmp_path, leader.request, Watched("is to write the report", leave))
    assert (ended.code, [*ended.summary.failed], ended.left) == (1, [name], 0)


def test_what_a_driver_ran_before_it_leads_is_not_reused(tmp_path: Path) -> None:
    """The leader is gone when the packs have ended: the report alone is left, and the work was this driver's."""
    with leading(tmp_path, a_request(1, 2)) as leader:
        first, second = leader.names
        Journal(leader.store.location, {first: TrialStatus(State.RUNNING), second: TrialStatus()})
        stream = Watched("is to write the report", lambda: leader.claims.release(["lead"]))
        ended = follow(tmp_path, leader.request, stream)
    assert (ended.code, ended.trials, ended.reused, ended.left) == (0, 2, 0, 0)
    assert ended.summary.finished.keys() == {first, second}
    assert ended.summary.profile.work > 0
    assert ended.seconds >= ended.summary.profile.makespan
    assert ended.report is not None
    assert "queued again" not in stream.getvalue()


def test_a_driver_takes_over_what_an_earlier_one_could_not_store(tmp_path: Path) -> None:
    with leading(tmp_path, a_request(1)) as leader:
        follow(tmp_path, leader.request, Watched("is to write the report", leader.conclude))
        (name,) = leader.names
        kept = fallback_folder(leader.store.location).local
        assert kept is not None
        shutil.copytree(leader.store.folder, kept, ignore=shutil.ignore_patterns("lease"))
        leader.store.set_aside(name)
        ended = follow(tmp_path, leader.request)
    assert (ended.code, ended.reused, [*ended.summary.finished]) == (0, 1, [])


@pytest.mark.parametrize("state", ["at work", "concluded", "not the leader"])
def test_a_driver_with_other_trials_is_refused(tmp_path: Path, state: str) -> None:
    with leading(tmp_path, a_request(1)) as leader:
        if state == "concluded":
            leader.conclude()
        if state == "not the leader":
            leader.claims.release(["lead"])
        before = leader.store.location.read("plan.json")
        with pytest.raises(BlockedError, match="would run other trials"):
            follow(tmp_path, a_request(1, 2))
        assert leader.store.location.read("plan.json") == before


@pytest.mark.parametrize(("failing", "after"), [("others", "is to write the report"), ("say", "leads; this one takes")])
def test_a_storage_that_fails_once_between_packs_ends_no_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, after: str
) -> None:
    monkeypatch.setenv("MEMSWEEP_STORAGE_RETRY", "0.2")
    real, failed = getattr(Lease, failing), []

    def fails(lease: Lease, *words: Share) -> object:
        if after in stream.getvalue() and not failed:
            failed.append(True)
            raise OSError(errno.EIO, "Input/output error")
        return real(lease, *words)

    with leading(tmp_path, a_request(1)) as leader:
        stream = Watched("is to write the report", leader.conclude)
        monkeypatch.setattr(Lease, failing, fails)
        assert follow(tmp_path, leader.request, stream).code == 0
    assert failed


def test_in_python_a_driver_that_does_not_lead_returns_the_whole_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "shared.yaml"
    study.write_text(BASE)
    sweep = load_study(str(study), (), tmp_path)
    with leading(tmp_path, Request(sweep, trials_of(sweep))) as leader:
        stream = Watched("is to write the report", leader.conclude)
        monkeypatch.setattr(sys, "stdout", stream)
        found = ms.sweep(study, results=tmp_path, workspace=tmp_path, inline=True, share=True)
    assert "leads; this one takes packs of the study, too" in stream.getvalue()
    assert [*found.trials["identity"]] == leader.names
    assert len(found.missing) == 0
    with pytest.raises(ConfigError, match="--share"):
        ms.sweep(study, results=tmp_path, workspace=tmp_path, inline=True, share=True, no_reuse=True)
