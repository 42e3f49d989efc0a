"""Counting the work of a run, estimating its end, and showing it on a terminal or in a log."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest

from engine import trial
from memsweep.sweep.driver import progress
from memsweep.sweep.driver.metrics import Gauges
from memsweep.sweep.driver.progress import (
    LONG,
    PLAIN_INTERVAL,
    LiveView,
    PlainView,
    Snapshot,
    WorkCounter,
    describe,
    duration,
    open_view,
    phase,
    time_left,
)
from memsweep.sweep.worker.timing import report_interval, throttled
from runner_work import planned


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def snapshot(**changes: object) -> Snapshot:
    base = {"total": 120, "finished": 54, "reused": 6, "failed": 1, "running": 2, "fraction": 0.5, "eta": 63.0}
    return Snapshot(**(base | changes))  # type: ignore[arg-type]


def test_costs_weigh_the_fraction_and_the_remaining_time() -> None:
    clock = Clock()
    ledger = WorkCounter(total=5, reused=1, work=40.0, clock=clock)
    ledger.started("long", 30.0)
    clock.now += 50.0  # the start of its process, which counts for nothing
    ledger.advanced("long", 1 / 30)
    assert ledger.snapshot().eta is None
    clock.now += 9.0
    ledger.advanced("long", 1 / 3)
    now = ledger.snapshot()
    assert now.fraction == pytest.approx(0.25)
    assert now.eta == pytest.approx(30.0)  # 9 of 40 in 9 s, 30 are left
    assert (now.total, now.finished, now.reused, now.failed, now.running) == (5, 0, 1, 0, 1)


def test_no_time_left_is_guessed_before_a_training_that_may_end_early_has_ended() -> None:
    """Half of a chain was done in a second, because its trainings ended early; the rest need not."""
    clock = Clock()
    ledger = WorkCounter(total=4, reused=0, work=4.0, clock=clock, guesses=False)
    ledger.started("chain", 2.0)
    for fraction in (0.01, 0.5, 1.0):
        clock.now += 1.0
        ledger.advanced("chain", fraction)
        assert ledger.snapshot().eta is None
    ledger.ended("chain")
    ledger.settled(1.0)
    ledger.settled(1.0)
    assert ledger.snapshot().eta == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize(
    ("training", "early"),
    [
        ({}, False),
        ({"stop_below": 0.1}, True),
        ({"patience": 3}, True),
        ({"smallest_rate": 1e-6}, False),
        ({"schedule": "plateau", "smallest_rate": 1e-6}, True),
        ({"schedule": "plateau"}, False),
    ],
)
def test_which_trainings_may_end_early(training: dict[str, Any], early: bool) -> None:
    assert planned([[trial(training=training)]]).may_end_early is early


def test_the_end_is_not_before_the_slowest_running_pack() -> None:
    clock = Clock()
    ledger = WorkCounter(total=2, reused=0, work=20.0, clock=clock)
    ledger.started("a", 10.0)
    ledger.started("b", 10.0)
    for fraction in (0.0, 0.1):
        clock.now += 10.0
        ledger.advanced("a", 10 * fraction + 0.001)
        ledger.advanced("b", fraction + 0.001)
        now = ledger.snapshot()
    assert now.eta == pytest.approx(89.9)  # b alone: 10 s for a tenth; by rate it would be 8 s


def test_a_failed_pack_gives_its_work_back_and_a_settled_trial_keeps_its_share() -> None:
    ledger = WorkCounter(total=4, reused=0, work=4.0, clock=Clock())
    ledger.started("pack", 4.0)
    ledger.advanced("pack", 0.9)
    before = ledger.snapshot()
    ledger.ended("pack")
    assert ledger.snapshot().fraction == before.fraction == 0.9  # a bar never runs back
    assert ledger.snapshot().eta is None
    for failed in (False, False, False, True):
        ledger.settled(1.0, failed=failed)
    end = ledger.snapshot()
    assert (end.fraction, end.eta, end.finished, end.failed, end.running) == (1.0, 0.0, 3, 1, 0)


def test_a_fraction_never_goes_back_nor_above_one() -> None:
    ledger = WorkCounter(total=1, reused=0, work=1.0, clock=Clock())
    ledger.started("p", 1.0)
    seen = []
    for fraction in (0.5, 0.2, 7.0):
        ledger.advanced("p", fraction)
        seen.append(ledger.snapshot().fraction)
    assert seen == [0.5, 0.5, 1.0]
    ledger.advanced("never started", 0.5)  # a late report of a pack that is over


def test_a_bar_does_not_run_back_when_a_search_suggests_more_trials() -> None:
    clock = Clock()
    ledger = WorkCounter(total=10, reused=0, work=10.0, expected=40, clock=clock)
    ledger.started("first round", 10.0)
    seen = []
    for rounds in range(1, 5):
        for _ in range(10):
            ledger.settled(1.0)
            clock.now += 1.0
            seen.append(ledger.snapshot())
        ledger.ended("first round")
        ledger.grow(10 * (rounds + 1), 0, 10.0)
    assert {each.total for each in seen} == {40}
    fractions = [each.fraction for each in seen]
    assert fractions == sorted(fractions)
    assert fractions[9] == pytest.approx(0.25)  # after the first of four rounds
    assert seen[9].eta == pytest.approx(30.0, rel=0.2)


def test_trials_that_were_replaced_are_counted_no_longer() -> None:
    ledger = WorkCounter(total=2, reused=0, work=2.0, clock=Clock())
    ledger.settled(1.0)
    ledger.settled(1.0)
    ledger.grow(2, 0, 2.0, replaced=2)
    ledger.settled(1.0)
    seen = ledger.snapshot()
    assert (seen.finished, seen.total) == (1, 2)


def test_the_time_left_is_a_range_that_narrows() -> None:
    words = [time_left(snapshot(finished=count, failed=0, eta=600.0)) for count in (0, 3, 15, 99)]
    assert words == ["5 to 20 min left", "6 to 15 min left", "8 to 13 min left", "10 min 0 s left"]
    assert time_left(snapshot(finished=0, failed=0, eta=20.0)) == "10 to 40 s left"
    assert time_left(snapshot(finished=0, failed=0, eta=9000.0)) == "1 to 5 h left"
    assert time_left(snapshot(eta=None)) == time_left(snapshot(eta=0.0)) == ""


def test_a_phase_stands_on_a_terminal_while_it_lasts_and_in_a_log_if_it_was_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live, plain = Terminal(), io.StringIO()
    with phase("planning", live):
        assert live.getvalue() == "\rplanning …\x1b[K"
    assert live.getvalue().endswith("\r\x1b[K")
    with phase("planning", plain):
        pass
    assert plain.getvalue() == ""
    monkeypatch.setattr(progress, "SHORT", 0.0)
    with phase("planning", plain):
        pass
    assert plain.getvalue() == "planning: 0 s\n"


def test_a_long_pack_says_its_step_and_a_short_one_does_not() -> None:
    clock = Clock()
    ledger = WorkCounter(total=3, reused=0, work=3.0, clock=clock)
    ledger.started("long", 1.0)
    clock.now += LONG - 0.1
    ledger.advanced("long", 0.1, "step 100 of 1,000")
    ledger.started("short", 1.0)
    ledger.advanced("short", 0.5, "measuring")
    assert ledger.snapshot().doing == ""
    clock.now += 0.1
    assert describe(ledger.snapshot()) == "0/3 trials, step 100 of 1,000, 2 packs running"
    ledger.ended("long")
    assert ledger.snapshot().doing == ""


def test_words_for_a_person() -> None:
    assert describe(snapshot()) == "61/120 trials, 1 min 3 s left, 1 failed, 2 packs running, 6 reused"
    plain = snapshot(reused=0, running=1, eta=None, note="3 trials again")
    assert describe(plain) == "55/120 trials, 1 failed, 1 pack running, 3 trials again"
    assert describe(snapshot(reused=0, failed=0, eta=None)) == "54/120 trials, 2 packs running"
    assert [duration(s) for s in (0.4, 59.4, 60, 3599, 7500)] == [
        "0 s",
        "59 s",
        "1 min 0 s",
        "59 min 59 s",
        "2 h 5 min",
    ]


def test_without_a_terminal_there_is_a_line_at_the_start_one_per_interval_and_one_at_the_end() -> None:
    clock, stream = Clock(), io.StringIO()
    with PlainView("demo", stream, clock) as view:
        for _ in range(100):
            view.update(snapshot())
            clock.now += PLAIN_INTERVAL / 50
        view.say("a verdict\x1b[2J")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4  # start, one after 30 s, the verdict, end
    assert lines[2] == r"a verdict\x1b[2J"
    assert lines[-1].endswith("ended after 1 min 0 s")


def test_a_reader_that_went_away_does_not_stop_the_sweep() -> None:
    stream = io.StringIO()
    view = PlainView("demo", stream)
    stream.close()
    view.update(snapshot())
    view.say("nobody hears this")


def test_a_terminal_gets_a_bar_and_names_are_not_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    view = open_view("study [bold]", stream)
    assert isinstance(view, LiveView)
    with view:
        view.update(snapshot())
        view.say("verdict [red]unstable[/red]\x07")
    shown = stream.getvalue()
    assert "study [bold]" in shown
    assert r"verdict [red]unstable[/red]\x07" in shown
    assert "50%" in shown
    assert "61/120 trials, 1 min 3 s left" in shown  # even at 80 columns
    assert isinstance(open_view("study", io.StringIO()), PlainView)


def test_reports_that_come_too_soon_are_dropped() -> None:
    clock, seen = Clock(), []
    report = throttled(seen.append, interval=1.0, clock=clock)
    for step in range(100):
        report(step / 100)
        clock.now += 0.1
    assert len(seen) == 9
    assert seen == sorted(seen)


def test_a_report_of_other_work_is_not_dropped() -> None:
    clock, seen = Clock(), list[tuple[float, str]]()
    report = throttled(lambda fraction, doing="": seen.append((fraction, doing)), interval=1.0, clock=clock)
    for step in range(4):
        report(step / 10, f"step {step} of 4")
    report(0.8, "measuring")
    report(0.9, "measuring")
    assert seen == [(0.0, "step 0 of 4"), (0.8, "measuring")]


@pytest.mark.parametrize(
    "record", sorted((Path(__file__).parent / "recorded").glob("*.json")), ids=lambda path: path.stem
)
def test_the_time_left_is_right_within_a_factor_of_two(record: Path) -> None:
    """Events of a run on Ray at a load of 15 on two processors, at the times at which they came."""
    clock, events = Clock(), json.loads(record.read_text())
    ledger, end, ratios = WorkCounter(*events[0][2:], clock=clock), events[-1][0], []
    for at, name, *values in events[1:]:
        clock.now = at
        if name != "snapshot":
            getattr(ledger, name)(*values)
        elif (now := ledger.snapshot()).fraction >= 0.1 and end - at > 10.0:
            ratios.append((now.eta or 0.0) / (end - at))
    assert len(ratios) > 20
    assert min(ratios) >= 0.5
    assert max(ratios) <= 2.0


def test_however_many_packs_run_their_reports_stay_few() -> None:
    assert report_interval(2) == report_interval(200) == 1.0
    assert 32_000 / report_interval(32_000) == pytest.approx(200)


def test_a_log_says_what_is_done_before_the_first_work(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, ledger = io.StringIO(), WorkCounter(total=2, reused=0, work=2.0, clock=Clock())
    with PlainView("demo", stream, Clock(), "starting Ray") as view:
        view.update(ledger.snapshot())
        ledger.started("pack", 2.0)
        view.update(ledger.snapshot())
        view.update(ledger.snapshot())
        ledger.advanced("pack", 0.1)
        view.update(ledger.snapshot())
    assert stream.getvalue().splitlines()[:3] == [
        "demo: starting Ray",
        "demo: 0/2 trials, 1 pack running, starting",
        "demo: 0/2 trials, 1 pack running",
    ]
    monkeypatch.setattr(progress, "SILENT", 0.0)
    with phase("planning", stream):
        time.sleep(0.05)
    assert stream.getvalue().splitlines()[4] == "planning …"


def test_what_the_driver_does_between_rounds_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at 72 questions takes half a minute, and nothing runs meanwhile."""
    monkeypatch.setattr(progress, "SILENT", 0.0)
    log, terminal = io.StringIO(), Terminal()
    with PlainView("demo", log, Clock()) as plain, plain.during("choosing"):
        time.sleep(0.05)
    assert log.getvalue().splitlines() == ["choosing …"]
    with open_view("demo", terminal) as live:
        live.update(snapshot())
        with live.during("choosing"):
            told = terminal.getvalue()
        after = terminal.getvalue()[len(told) :]
    assert "choosing" in told.splitlines()[-1]
    assert "61/120 trials" in after


@pytest.mark.parametrize(
    ("study", "label"),
    [
        ("drill", "drill"),
        ("two words", "two words"),
        ("ü", "%C3%BC"),
        ("%C3%BC", "%25C3%25BC"),
        ("\udcff", "%ED%B3%BF"),
    ],
)
def test_the_label_of_a_gauge_is_ascii_as_ray_wants_it(study: str, label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray.util.metrics

    labels = []
    monkeypatch.setattr(ray.util.metrics.Gauge, "set_default_tags", lambda self, tags: labels.append(tags["study"]))
    Gauges(study)
    assert set(labels) == {label}
