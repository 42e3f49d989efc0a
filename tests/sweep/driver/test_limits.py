"""A run stops at its limits, keeps what is finished, and goes from plan to plan without starting anew."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memsweep.cli import main
from memsweep.config.schema.resource_rules import ResourceRule
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import Exit
from memsweep.sweep.driver.launch import ActiveLimits, Launch, Limits
from memsweep.sweep.driver.progress import Snapshot
from memsweep.sweep.driver.runner import RunSummary, run
from memsweep.sweep.planning.plan import Plan
from memsweep.sweep.store.journal import State, read_statuses
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import PackJob, PackReport, Progress, execute_pack
from paths import ROOT, python_path
from processes import wait_for
from runner_work import HOG, RAISER, endless, planned, tiny, troubled
from sweeping import BASE, sweep

INLINE = Launch(inline=True)


@pytest.fixture
def workers_see_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path())


class Rounds:
    """Plans that follow a first one, each with one pack more; notes what it is told."""

    def __init__(self, *packs: list[TrialConfig]) -> None:
        self.packs, self.told = list(packs), list[RunSummary]()
        self.first = planned([packs[0]])

    def __call__(self, summary: RunSummary) -> Plan | None:
        self.told.append(summary)
        if len(self.told) == len(self.packs):
            return None
        whole = planned(self.packs[: len(self.told) + 1])
        return replace(whole, done=frozenset(summary.finished), packs=whole.packs[-1:])


def check_rounds(folder: Path, launch: Launch, between: Callable[[], object] = lambda: None) -> None:
    rounds = Rounds([tiny(0), tiny(1)], [tiny(2)], [tiny(RAISER), tiny(3)])
    seen: list[Snapshot] = []
    summary = run(
        rounds.first,
        workspace=ROOT,
        results=folder,
        launch=launch,
        on_progress=seen.append,
        work=troubled,
        next_plan=lambda summary: (between(), rounds(summary))[1],
    )
    assert (len(summary.finished), len(summary.failed), summary.interrupted, summary.limit) == (4, 1, False, "")
    assert [len(told.finished) for told in rounds.told] == [2, 3, 4]
    assert [len(told.failed) for told in rounds.told] == [0, 0, 1]
    assert [snapshot.total for snapshot in (seen[0], seen[-1])] == [2, 5]
    assert (seen[-1].finished, seen[-1].failed, seen[-1].reused, seen[-1].fraction) == (4, 1, 0, pytest.approx(1.0))
    store = Store(folder / "demo")
    assert store.identities() == set(summary.finished)
    assert sorted(row.state for row in read_statuses(store.location).values()) == ["done"] * 4 + ["failed"]


@pytest.mark.more
def test_plans_follow_one_another(tmp_path: Path) -> None:
    check_rounds(tmp_path, INLINE)


@pytest.mark.drill
@pytest.mark.long
def test_plans_follow_one_another_on_ray(tmp_path: Path, workers_see_the_tests: None) -> None:
    before = signal.getsignal(signal.SIGINT)
    heard: list[bool] = []
    check_rounds(tmp_path, Launch(), lambda: heard.append(signal.getsignal(signal.SIGINT) is before))
    assert heard == [True] * 3  # Ctrl-C between two experiments of Tune is not lost
    assert signal.getsignal(signal.SIGINT) is before


class Widening:
    """A first plan of narrow trials; a second one with a wide trial, for which a rule asks for something else."""

    def __init__(self) -> None:
        self.first, self.asked = self._with([[tiny(0)]]), 0

    def _with(self, packs: list[list[TrialConfig]]) -> Plan:
        rule = ResourceRule(field="model.width", above=4.0, cpus=0.5, node_memory=0.1)
        plan = planned(packs)
        return replace(plan, sweep=replace(plan.sweep, resources=replace(plan.sweep.resources, rules=(rule,))))

    def __call__(self, summary: RunSummary) -> Plan | None:
        self.asked += 1
        whole = self._with([[tiny(0)], [tiny(1), tiny(2)], [tiny(3, width=6)]])
        return replace(whole, done=frozenset(summary.finished), packs=whole.packs[1:]) if self.asked == 1 else None


@pytest.mark.more
def test_trials_that_come_later_may_ask_for_what_none_asked_for_before(
    tmp_path: Path, workers_see_the_tests: None
) -> None:
    rounds = Widening()
    summary = run(rounds.first, workspace=ROOT, results=tmp_path, launch=Launch(), next_plan=rounds)
    assert (len(summary.finished), len(summary.failed), summary.interrupted) == (4, 0, False)


@pytest.mark.more
def test_what_follows_is_asked_before_anything_starts_where_nothing_is_to_run(tmp_path: Path) -> None:
    plan = planned([[tiny(0)]])
    run(plan, workspace=ROOT, results=tmp_path, launch=INLINE)
    over = replace(plan, packs=(), done=frozenset(trial.identity for trial in plan.trials))
    calls: list[RunSummary] = []

    def follow(summary: RunSummary) -> Plan | None:
        calls.append(summary)
        return over if len(calls) == 1 else None

    # Ray could not start with these resources: nothing has tried
    impossible = replace(over, sweep=replace(over.sweep, resources=replace(over.sweep.resources, cpus=4096)))
    assert run(impossible, workspace=ROOT, results=tmp_path, next_plan=follow) == RunSummary()
    assert len(calls) == 2


def test_so_many_rows_get_a_result_and_the_same_command_goes_on(tmp_path: Path) -> None:
    plan = planned([[tiny(0), tiny(1)], [tiny(2), tiny(RAISER), tiny(3)], [tiny(4)]])
    first = run(plan, workspace=ROOT, results=tmp_path, launch=INLINE, work=troubled, limits=Limits(trials=4))
    assert len(first.finished) == 4  # the pack with the row that fails was cut, and its lack made good
    assert first.interrupted
    assert "--max-trials 4" in first.limit
    rows = read_statuses(Store(tmp_path / "demo").location)
    assert sorted(row.state for row in rows.values()) == ["done"] * 4 + ["failed", "queued"]

    left = replace(plan, done=frozenset(first.finished), packs=plan.packs[-1:])
    second = run(left, workspace=ROOT, results=tmp_path, launch=INLINE, limits=Limits(trials=1))
    assert (len(second.finished), second.interrupted, second.limit) == (1, False, "")  # nothing was left


@pytest.mark.more
def test_a_limit_holds_across_the_plans_that_follow(tmp_path: Path) -> None:
    rounds = Rounds([tiny(0), tiny(1)], [tiny(2)], [tiny(3), tiny(4)])
    summary = run(
        rounds.first, workspace=ROOT, results=tmp_path, launch=INLINE, next_plan=rounds, limits=Limits(trials=3)
    )
    assert len(summary.finished) == 3
    assert "--max-trials 3" in summary.limit
    states = [row.state for row in read_statuses(Store(tmp_path / "demo").location).values()]
    assert sorted(states) == ["done"] * 3 + ["queued"] * 2

    last = Rounds([tiny(0), tiny(1)], [tiny(2)])
    whole = run(
        last.first, workspace=ROOT, results=tmp_path / "b", launch=INLINE, next_plan=last, limits=Limits(trials=3)
    )
    assert (len(whole.finished), whole.interrupted) == (3, False)  # reached, and nothing was left to stop


def check_failures(folder: Path, launch: Launch) -> None:
    packs = [[tiny(RAISER)], [tiny(RAISER, width=3)], *([tiny(seed)] for seed in range(1, 5))]
    plan = planned(packs, max_concurrent=1)
    summary = run(plan, workspace=ROOT, results=folder, launch=launch, work=troubled, limits=Limits(failures=2))
    assert summary.interrupted
    assert "--max-failures 2: 2 failed for good" in summary.limit
    assert len(summary.failed) == 2
    assert len(summary.finished) < 4
    states = {row.state for row in read_statuses(Store(folder / "demo").location).values()}
    assert states <= {State.FAILED, State.QUEUED, State.PREEMPTED, State.DONE}


def test_so_many_failures_stop_a_run(tmp_path: Path) -> None:
    check_failures(tmp_path, INLINE)
    last = run(
        planned([[tiny(9)], [tiny(HOG)]], "last"),
        workspace=ROOT,
        results=tmp_path,
        launch=INLINE,
        work=troubled,
        limits=Limits(failures=1),
    )
    assert (len(last.failed), last.interrupted, last.limit) == (1, False, "")  # it was the last row anyway


@pytest.mark.drill
def test_so_many_failures_stop_a_run_on_ray(tmp_path: Path, workers_see_the_tests: None) -> None:
    check_failures(tmp_path, Launch())


def check_hours(folder: Path, launch: Launch, hours: float) -> None:
    (folder / "tasks").symlink_to(ROOT / "tasks")
    summary = run(
        planned([[tiny(1)], [tiny(2)], [tiny(3)], [tiny(4)]]),
        workspace=folder,
        results=folder,
        launch=launch,
        work=endless,
        limits=Limits(hours=hours),
    )
    assert (summary.interrupted, len(summary.failed)) == (True, 0)
    assert "--max-hours" in summary.limit
    store = Store(folder / "demo")
    states = [row.state for row in read_statuses(store.location).values()]
    assert states.count(State.DONE) == len(summary.finished) == len(store.identities()) <= 1
    assert State.PREEMPTED in states or not list(folder.glob("busy-*"))  # on a busy machine Ray may start too late
    assert State.RUNNING not in states


def test_when_the_hours_are_over_what_runs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class HoursUntilSomethingRuns(threading.Thread):
        """A timer whose hours are over as soon as work is at work that never ends by itself."""

        def __init__(self, seconds: float, over: Callable[[], None]) -> None:
            super().__init__()
            self._over = over

        def run(self) -> None:
            wait_for(lambda: list(tmp_path.glob("busy-*")))
            self._over()

        def cancel(self) -> None:
            pass

    monkeypatch.setattr(threading, "Timer", HoursUntilSomethingRuns)
    check_hours(tmp_path, INLINE, 1.0)
    states = [row.state for row in read_statuses(Store(tmp_path / "demo").location).values()]
    assert sorted(states) == sorted([State.DONE, State.PREEMPTED, State.QUEUED, State.QUEUED])


@pytest.mark.drill
def test_when_the_hours_are_over_what_runs_is_stopped_on_ray(tmp_path: Path, workers_see_the_tests: None) -> None:
    check_hours(tmp_path, Launch(), 20 / 3600)


def test_hours_that_are_over_start_nothing(tmp_path: Path) -> None:
    plan, started = planned([[tiny(0)]]), list[PackJob]()

    def note(job: PackJob, progress: Progress) -> PackReport:
        started.append(job)
        return execute_pack(job, progress)

    summary = run(plan, workspace=ROOT, results=tmp_path, launch=INLINE, work=note, limits=Limits(hours=1e-9))
    assert (summary.interrupted, len(summary.finished), started) == (True, 0, [])
    assert "--max-hours" in summary.limit
    assert [row.state for row in read_statuses(Store(tmp_path / "demo").location).values()] == [State.QUEUED]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("node", "--max-node-hours 0.000138889: so many hours of nodes were used"),
        ("core", "--max-core-hours 0.000138889: so much was used in this run"),  # of packs that say no progress
    ],
)
def test_when_what_runs_has_cost_what_it_may_it_is_stopped(limit: str, said: str, tmp_path: Path) -> None:
    plan, limits = planned([[tiny(0)], [tiny(1)]]), Limits(**{f"{limit}_hours": 0.5 / 3600})
    summary = run(plan, workspace=tmp_path, results=tmp_path, launch=INLINE, work=endless, limits=limits)
    assert (summary.interrupted, len(summary.failed)) == (True, 0)
    assert said in summary.limit


@pytest.mark.parametrize(
    ("limits", "hours", "words"),
    [
        (Limits(node_hours=2.0), 2.0, "--max-node-hours 2"),
        (Limits(cost=3.0), 3.0, "--max-cost, which pays for 3 hours of nodes"),
        (Limits(node_hours=2.0, cost=3.0), 2.0, "--max-node-hours 2"),
        (Limits(node_hours=4.0, cost=3.0), 3.0, "--max-cost, which pays for 3 hours of nodes"),
    ],
)
def test_of_two_limits_of_nodes_the_smaller_one_counts(limits: Limits, hours: float, words: str) -> None:
    assert limits.paid_hours == (hours, words)


STUDY = f"# Four small trials.\n{BASE}grid: {{model.width: [2, 3], task.horizon: [8, 10]}}\n"


@pytest.mark.drill
def test_the_command_says_what_is_left_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, results = tmp_path / "small.yaml", tmp_path / "results"
    study.write_text(STUDY)
    assert sweep(study, results, "--inline", "--max-trials", "3") == Exit.LIMIT
    told = capsys.readouterr().out
    assert "stopped at a limit: --max-trials 3" in told
    assert "1 trial left" in told
    assert "memsweep resume small" in told
    assert len(Store(results / "small").identities()) == 3
    plan = (results / "small" / "plan.json").read_text()
    assert '"max_trials"' not in plan  # it is that run's, and not the study's
    words = [
        "resume",
        "small",
        "--inline",
        "--max-trials",
        "1",
        "--results",
        str(results),
        "--workspace",
        str(ROOT),
    ]
    assert main(words) == 0  # reached, and nothing was left
    assert "4/4 done, 3 of them reused" in capsys.readouterr().out


@pytest.mark.parametrize(("limits", "said"), [({"core_hours": 1e-6}, "core"), ({"gpu_hours": 1e-6}, "gpu")])
def test_so_much_work_stops_a_run_and_is_counted_while_packs_run(limits: dict[str, float], said: str) -> None:
    now = [0.0]
    active = ActiveLimits(Limits(**limits), lambda: now[0])
    assert not active.over(0, 0)
    active.started("a", 2.0, 0.5)
    now[0] = 1e-6 * 3600.0 * 0.4
    assert not active.over(0, 0)
    active.ended("a")
    active.started("b", 2.0, 0.5)
    now[0] *= 10.0
    assert active.worked_out()
    assert active.over(0, 0)
    assert active.reached == f"--max-{said}-hours 1e-06: so much was used in this run"


def test_limits_that_are_reached_together_stop_a_run_by_one_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one would cut short Ray's graceful end."""
    told, now = list[int](), [0.0]
    monkeypatch.setattr("memsweep.sweep.driver.launch.os.kill", lambda process, number: told.append(number))
    active = ActiveLimits(Limits(hours=0.3 / 3600, core_hours=100.0), lambda: now[0])
    active.started("a")
    with active.watch(), active.watch_packs():
        wait_for(lambda: told)
        active.started("b", 2.0)
        now[0] = 3600.0 * 100.0  # now the core hours are used up as well
        assert active.worked_out()
        active.stop()
    assert told == [signal.SIGTERM]
    assert active.reached.startswith("--max-hours")


def test_core_hours_that_are_used_up_stop_what_waits(tmp_path: Path) -> None:
    plan = planned([[tiny(0)], [tiny(1)], [tiny(2)]])
    summary = run(plan, workspace=ROOT, results=tmp_path, launch=INLINE, limits=Limits(core_hours=1e-9))
    assert summary.limit.startswith("--max-core-hours 1e-09")
    assert len(summary.finished) < 3
