"""Searches whose every process is killed again and again: the same suggestions, the same decisions, the same table."""

from __future__ import annotations

from pathlib import Path

import pytest

from drill_study import PERTURBATION, STUDY, TRAINING, Drill, Outcome
from tally import Tally

pytestmark = pytest.mark.drill

SCHEDULERS = {
    "asha": "{name: asha, grace: 20, reduction: 2}",
    "pbt": "{name: pbt, interval: 20}",
}


def text(scheduler: str) -> str:
    """Two searches of four suggestions; their batches are slow where the drill says so."""
    return (
        f"task: {{name: watched, horizon: 1000}}\nmodel: {{name: diagonal_rnn, width: 2}}\n{TRAINING}\n{PERTURBATION}\n"
        "grid: {model.parameterization: [direct, exp]}\n"
        "search:\n  training.learning_rate: {log_uniform: [1e-3, 0.3]}\n  trials: 4\n  batch: 2\n  startup: 2\n"
        f"  scheduler: {SCHEDULERS[scheduler]}\n"
        "confirm: {seeds: 2, top: 1}\n"
    )


def round_log(drill: Drill) -> dict[str, bytes]:
    """What was suggested and decided."""
    folder = drill.results / STUDY / "search"
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.json"))}


@pytest.mark.long
@pytest.mark.parametrize("scheduler", ["asha", "pbt"])
def test_a_search_survives_the_death_of_everything(tmp_path: Path, tally: Tally, scheduler: str) -> None:
    alone = Drill.make(tmp_path / "alone", text(scheduler))
    ended = alone.command("sweep", STUDY, "--inline")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    drill, faults, lost, rerun = Drill.make(tmp_path / "drill", text(scheduler)), 0, 0, 0
    before = drill.now()
    drill.slow()
    for _ in range(2):
        with drill.running("sweep", STUDY) as process:
            goal = len(drill.asked()) + 90
            drill.reach(process, lambda goal=goal: process.poll() is not None or len(drill.asked()) >= goal)
            assert process.poll() is None, process.communicate()
            drill.kill_all()
        faults += 1
        gone, again = drill.cost_since(before)
        lost, rerun, before = lost + gone, rerun + again, drill.now()
    drill.quick()
    ended = drill.command("resume", STUDY)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    gone, again = drill.cost_since(before)
    equal = Outcome.of(drill).equals(Outcome.of(alone)) and round_log(drill) == round_log(alone)
    tally.record(f"everything killed in a search ({scheduler})", faults, lost + gone, rerun + again, equal)
    assert equal
    assert (lost + gone, rerun + again) == (0, 0)


@pytest.mark.long
def test_what_failed_in_a_search_is_told_as_failed_and_can_be_tried_again(tmp_path: Path) -> None:
    fails = text("asha").replace("training.learning_rate: {log_uniform: [1e-3, 0.3]}", "task.mood: {choice: [12, 13]}")
    drill = Drill.make(tmp_path / "drill", fails)
    ended = drill.command("sweep", STUDY, "--inline")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "ZeroDivisionError: a mood of 13" in ended.stderr
    assert "4 of 8 suggestions ended, 2 failed" in ended.stdout  # the space has no more
    before, asked = round_log(drill), len(drill.asked())
    again = drill.command("retry", STUDY, "--inline")
    assert again.returncode == 1
    assert "ZeroDivisionError: a mood of 13" in again.stderr
    assert round_log(drill) == before
    assert len(drill.asked()) == asked  # nothing but what failed was tried
    assert "2 failed" in drill.command("status", STUDY).stdout
    assert drill.command("resume", STUDY, "--inline").returncode == 0  # the search itself is over
