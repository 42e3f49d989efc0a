"""Processes are killed, frozen and told to end, and a sweep ends with the table that it would have had anyway.

Every drill runs the real command line on a study of twelve trials in six packs. It counts the batches that the task
was asked for, and so it knows who trained what, from which step on.
"""

from __future__ import annotations

import itertools
import random
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from drill_study import CHECKPOINT_EVERY, STEPS, STUDY, Asked, Drill, Moment, Outcome, kill, study_text
from memsweep.sweep.store.journal import State, read_statuses
from tally import Tally

pytestmark = pytest.mark.drill

HORIZONS = [1_000_000, 1_100_000, 1_200_000, 1_300_000, 1_400_000, 1_500_000]

Process = subprocess.Popen[str]
When = Callable[[Drill, Moment], bool]
"""Whether a command, since a moment, has come so far that it is to be broken."""
Blow = Callable[[Drill, Process], None]
"""Breaks a running command; nothing of it runs any more when this returns."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The results of the study when nothing happens to it."""
    drill = Drill.make(tmp_path_factory.mktemp("undisturbed") / "drill", study_text(HORIZONS))
    ended = drill.command("sweep", STUDY, "--ray")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(drill.asked()) == STEPS * len(HORIZONS)
    return Outcome.of(drill)


@pytest.fixture
def drill(tmp_path: Path) -> Drill:
    return Drill.make(tmp_path / "drill", study_text(HORIZONS))


def segments(asked: list[Asked]) -> dict[int, list[list[Asked]]]:
    """The trainings of each horizon: the batches that one process asked for, one training after the other."""
    found: dict[int, list[list[Asked]]] = {}
    for horizon in {batch.horizon for batch in asked}:
        own = [batch for batch in asked if batch.horizon == horizon]
        found[horizon] = [list(group) for _, group in itertools.groupby(own, lambda batch: batch.pid)]
    return found


def all_continued(asked: list[Asked]) -> bool:
    """Whether every training that another process took over went on from the last checkpoint or the one before.

    A pack that was broken while it stored its results leaves trials that train anew, from the start: they never
    trained without those that are stored.
    """
    for parts in segments(asked).values():
        for earlier, later in itertools.pairwise(parts):
            reached, first = max(batch.step for batch in earlier), later[0].step
            newest = reached // CHECKPOINT_EVERY * CHECKPOINT_EVERY
            if first not in (newest, max(0, newest - CHECKPOINT_EVERY)) and not (reached == STEPS - 1 and first == 0):
                return False
    return True


def in_the_middle(batches: int) -> When:
    """A command has asked for so many batches, or is a second before the end of a trial: fewer may have been left."""

    def reached(drill: Drill, before: Moment) -> bool:
        asked = drill.asked()[before.asked :]
        return len(asked) >= batches or any(batch.step >= STEPS - 10 for batch in asked)

    return reached


def between_trials(drill: Drill, before: Moment) -> bool:
    """A command has just stored a result."""
    return len(drill.store.identities()) > len(before.whole)


def driver_killed(drill: Drill, process: Process) -> None:
    """SIGKILL for the driver alone; all that it started must end by itself."""
    process.kill()
    process.wait(timeout=30)
    drill.all_end()


def power_cut(drill: Drill, process: Process) -> None:
    """SIGKILL for everything at once."""
    drill.kill_all()
    process.wait(timeout=30)


def told(number: signal.Signals) -> Blow:
    """A polite signal: the driver ends in good order, and says how to go on."""

    def blow(drill: Drill, process: Process) -> None:
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 130, out + err
        assert f"memsweep resume {STUDY}" in out
        drill.all_end()

    return blow


def cluster_killed(drill: Drill, process: Process) -> None:
    """SIGKILL for all of Ray (its control store, its node, its workers) while the driver lives."""
    for pid in drill.processes():
        if pid != process.pid:
            kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 4, out + err
    assert f"memsweep resume {STUDY}" in out + err
    drill.all_end()


MIDDLE, BETWEEN = "driver killed in the middle of trials", "driver killed between trials"
CUT, CLUSTER = "all processes killed at once", "Ray killed, driver alive"
TERM, INT = "driver told to end (SIGTERM)", "driver interrupted (SIGINT)"
BLOWS: dict[str, Blow] = {
    MIDDLE: driver_killed,
    BETWEEN: driver_killed,
    CUT: power_cut,
    CLUSTER: cluster_killed,
    TERM: told(signal.SIGTERM),
    INT: told(signal.SIGINT),
}


@pytest.mark.parametrize(
    ("verb", "kinds"),
    [
        pytest.param("resume", (MIDDLE, BETWEEN, TERM), marks=pytest.mark.long),
        ("sweep", (BETWEEN, CUT, MIDDLE, INT)),
        pytest.param("resume", (CLUSTER, CLUSTER), marks=pytest.mark.long),
    ],
    ids=["driver-resume", "driver-sweep", "cluster"],
)
def test_broken_again_and_again_a_sweep_ends_as_if_nothing_had_happened(
    verb: str, kinds: tuple[str, ...], drill: Drill, undisturbed: Outcome, tally: Tally
) -> None:
    luck = random.Random(f"{verb} {kinds}")
    drill.slow()
    costs: list[tuple[int, int]] = []
    before = drill.now()
    for number, kind in enumerate(kinds):
        when = between_trials if kind == BETWEEN else in_the_middle(luck.randrange(10, 100))
        with drill.running(verb if number else "sweep", STUDY, "--ray") as process:
            drill.reach(process, lambda when=when, before=before: when(drill, before))
            BLOWS[kind](drill, process)
        costs.append(drill.cost_since(before))
        before = drill.now()
        if kind in (MIDDLE, CUT):  # a dead driver's own word is that some rows still run
            assert State.RUNNING in {row.state for row in read_statuses(drill.store.location).values()}
            looked = drill.command("status", STUDY)
            assert looked.returncode == 0, looked.stderr
            assert "not running" in looked.stdout
            assert " running " not in looked.stdout
    drill.quick()
    ended = drill.command(verb, STUDY, "--ray")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    kept = f"{len(before.whole)} done, " if before.whole else ""
    assert f"{STUDY}: 12 trials: {kept}" in ended.stdout
    costs[-1] = tuple(map(sum, zip(costs[-1], drill.cost_since(before), strict=True)))
    equal = Outcome.of(drill).equals(undisturbed)
    for kind, (lost, rerun) in zip(kinds, costs, strict=True):
        tally.record(kind, 1, lost, rerun, equal)
    assert equal
    assert [cost for cost in costs if any(cost)] == []
    assert all_continued(drill.asked())


def test_a_killed_worker_is_replaced_by_one_that_goes_on(drill: Drill, undisturbed: Outcome, tally: Tally) -> None:
    far = 4 * CHECKPOINT_EVERY

    def both_far() -> list[Asked]:
        ready = {batch.pid: batch for batch in drill.asked() if batch.step >= far}
        return list(ready.values()) if len(ready) == 2 else []

    drill.slow()
    with drill.running("sweep", STUDY, "--ray") as process:
        drill.reach(process, both_far)
        victims = both_far()
        for victim in victims:
            kill(victim.pid, signal.SIGKILL)
        before = drill.now()
        drill.quick()
        out, err = process.communicate(timeout=180)
    assert process.returncode == 0, out + err
    lost, rerun = drill.cost_since(before)
    equal = Outcome.of(drill).equals(undisturbed)
    tally.record("worker killed", len(victims), lost, rerun, equal)
    assert equal
    assert (lost, rerun) == (0, 0)
    assert all_continued(drill.asked())
    for victim in victims:
        first, second = segments(drill.asked())[victim.horizon]
        assert first[0].pid == victim.pid
        assert second[0].step >= far - CHECKPOINT_EVERY
        assert len(first) + len(second) <= STEPS + 2 * CHECKPOINT_EVERY


@pytest.mark.long
def test_one_driver_at_a_time_also_while_it_is_frozen(drill: Drill, undisturbed: Outcome, tally: Tally) -> None:
    """A living process of this machine keeps its lease; a campaign has the takeover from another machine."""
    drill.slow()
    before = drill.now()
    with drill.running("sweep", STUDY, "--ray") as first:
        drill.reach(first, lambda: len(drill.asked()) > 10)
        for verb in ("sweep", "resume"):
            first.send_signal(signal.SIGSTOP)
            second = drill.command(verb, STUDY, "--ray")
            assert second.returncode == 4, second.stdout + second.stderr
            assert f"process {first.pid} on {socket.gethostname()}" in second.stderr
            first.send_signal(signal.SIGCONT)
        drill.quick()
        out, err = first.communicate(timeout=600)
    assert first.returncode == 0, out + err
    (lost, rerun), equal = drill.cost_since(before), Outcome.of(drill).equals(undisturbed)
    tally.record("second driver on one sweep", 2, lost, rerun, equal)
    assert equal
    assert (lost, rerun) == (0, 0)
