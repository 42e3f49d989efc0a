"""A node that is lost is no fault of the trials that ran on it, however often; until it is too often for chance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from memsweep.sweep.backend import Events
from memsweep.sweep.driver import scheduler
from memsweep.sweep.driver.progress import Snapshot
from memsweep.sweep.driver.runner import hand_out
from memsweep.sweep.store.journal import Journal
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import PackJob, execute_pack
from memsweep.sweep.worker.failure import NODE_LOST
from memsweep.sweep.worker.job import PackReport, leave_report
from paths import ROOT
from runner_work import planned, tiny

LOST = {"outcome": "failed", "error": "its node was lost", "traceback": "", "cause": NODE_LOST}


class Spot:
    """A cluster whose nodes are taken away while packs run; it notes whether packs were to run one by one."""

    slots, absent = 4, 0.0

    def __init__(self, losses: int, *, early: bool = False) -> None:
        self.left, self.early, self.one_by_one = losses, early, list[bool]()
        self.seen = list[Snapshot]()

    def run(self, jobs: Sequence[PackJob], events: Events, *, one_by_one: bool = False) -> None:
        self.one_by_one.append(one_by_one)
        for job in jobs:
            if not (self.left and self.early):
                events.started(job)
            if self.left:
                self.left -= 1
                events.died(job, LOST)
            else:
                events.finished(job, execute_pack(job, lambda *_: None))


def run(folder: Path, losses: int, *, early: bool = False) -> tuple[scheduler.PackScheduler, Spot, Journal]:
    plan = planned([[tiny(0)], [tiny(1), tiny(1, width=3)]])
    store, spot = Store(folder), Spot(losses, early=early)
    journal = Journal(store.location, {})
    ran = scheduler.PackScheduler(plan, ROOT, store, journal, spot.seen.append, lambda name: None)
    hand_out(ran, spot)
    return ran, spot, journal


def test_rows_whose_node_is_lost_again_and_again_go_on_side_by_side(tmp_path: Path) -> None:
    ran, spot, journal = run(tmp_path, losses=14)
    assert ran.failures == {}
    assert len(ran.results) == 3
    assert {row.failures for row in journal.trials.values()} == {0}
    assert set(spot.one_by_one) == {False}


def test_a_worker_that_was_lost_before_it_started_runs_its_pack_once(tmp_path: Path) -> None:
    ran, spot, _ = run(tmp_path, losses=1, early=True)
    assert len(ran.results) == 3
    assert (spot.seen[-1].finished, spot.seen[-1].total) == (3, 3)
    assert len(spot.one_by_one) == 2


def test_a_pack_that_takes_every_node_with_it_fails_at_last(tmp_path: Path) -> None:
    ran, _, _ = run(tmp_path, losses=1000)
    assert len(ran.failures) == 3
    assert ran.results == {}


@pytest.mark.parametrize("left", [PackReport().to_json(), '{"cut o'])
def test_an_error_of_the_driver_is_no_report_that_was_cut_off(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store = planned([[tiny(1)]]), Store(tmp_path / "demo")
    journal = Journal(store.location, {})
    ran = scheduler.PackScheduler(plan, ROOT, store, journal, lambda shown: None, lambda name: None)
    ((job, *_), _) = next(ran.batches(lambda: 1))

    def broken(*_: object) -> None:
        raise KeyError("the driver's own")

    monkeypatch.setattr(ran, "finished", broken)
    leave_report(store, job.pack, left)
    if left.startswith('{"cut'):
        ran.died(job, LOST)  # as if there were none: the pack waits for another node
        assert [each.pack for each in ran._retry] == [job.pack]
        return
    with pytest.raises(KeyError, match="the driver's own"):
        ran.died(job, LOST)
