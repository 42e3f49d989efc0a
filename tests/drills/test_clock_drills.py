"""The clock of driver and workers is set while they run: nothing waits, nothing is lost, nothing runs twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from drill_study import STUDY, Drill, Outcome, study_text
from tally import Tally
from wrong_clock import WrongClock

pytestmark = pytest.mark.drill

TWO_HOURS = 7200


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(TWO_HOURS, id="ahead, then behind"),
        pytest.param(-TWO_HOURS, id="behind, then ahead", marks=pytest.mark.long),
    ],
)
def test_a_clock_that_is_set_in_the_middle_costs_nothing(tmp_path: Path, tally: Tally, first: int) -> None:
    text = study_text([1000, 1100, 1200])
    calm = Drill.make(tmp_path / "calm", text)
    assert calm.command("sweep", STUDY, "--inline").returncode == 0
    drill, clock = Drill.make(tmp_path / "drill", text), WrongClock.make(tmp_path / "clock")
    drill.environment.update(clock.environment)
    drill.slow()
    with drill.running("sweep", STUDY) as sweep:
        drill.reach(sweep, lambda: drill.asked())
        clock.set(first)
        asked = len(drill.asked())
        drill.reach(sweep, lambda: len(drill.asked()) > asked + 10)
        clock.set(-first)
        drill.reach(sweep, lambda: drill.store.identities())
        time.sleep(6)  # a heartbeat by the clock of now, and a journal that is written
        drill.kill_all()
        clock.set(first)  # the lease file and the journal are four hours away
    before = drill.now()
    assert before.whole
    drill.quick()
    resumed = drill.command("resume", STUDY, "--inline")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    lost, rerun = drill.cost_since(before)
    equal = Outcome.of(drill).equals(Outcome.of(calm))
    tally.record("clock set while driver and workers run", 3, lost, rerun, equal)
    assert (lost, rerun, equal) == (0, 0, True)
