"""What is done with a study after its first run: rows that fail, rows that are added, code that has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from drill_study import STEPS, STUDY, Drill, study_text
from tally import Tally

pytestmark = pytest.mark.drill


@pytest.mark.long
def test_a_trial_that_fails_three_times_in_one_way_is_left_alone_until_forced(tmp_path: Path, tally: Tally) -> None:
    drill = Drill.make(tmp_path / "drill", study_text([1000], "model.width: [2], task.mood: [12, 13]"))
    before = drill.now()
    for verb in ("sweep", "resume", "retry"):
        before = drill.now()
        failed = drill.command(verb, STUDY, "--inline")
        assert failed.returncode == 1, failed.stdout + failed.stderr
        assert "ZeroDivisionError: a mood of 13" in failed.stderr
    assert len(before.whole) == 1
    alone = drill.command("resume", STUDY, "--inline")
    assert alone.returncode == 1
    assert "gave up after 3 failures in the same way: failed: ZeroDivisionError" in alone.stdout
    assert f"to try anyway: memsweep retry {STUDY} --force" in alone.stdout
    assert "ZeroDivisionError" not in alone.stderr  # nothing was tried
    assert "(3 times in the same way)" in drill.command("status", STUDY).stdout
    forced = drill.command("retry", STUDY, "--force", "--inline")
    assert forced.returncode == 1
    assert "ZeroDivisionError: a mood of 13" in forced.stderr
    lost, rerun = drill.cost_since(before)
    tally.record("trial that always fails", 4, lost, rerun, drill.whole() == before.whole)
    assert (lost, rerun) == (0, 0)


def test_added_widths_and_seeds_are_computed_and_nothing_else(tmp_path: Path, tally: Tally) -> None:
    drill = Drill.make(tmp_path / "drill", study_text([1000, 1100]))
    first = drill.command("sweep", STUDY, "--inline")
    assert first.returncode == 0, first.stdout + first.stderr
    start = before = drill.now()
    for words, rows, trainings in (("model.width=2,3,4", 6, 2), ("training.seeds=3", 10, 2)):
        wider = drill.command("extend", STUDY, words, "--inline")
        assert wider.returncode == 0, wider.stdout + wider.stderr
        assert f"{STUDY}: {rows} trials: {len(before.whole)} done" in wider.stdout
        assert f"{rows}/{rows} done" in wider.stdout
        new = [row for name, row in drill.store_configs().items() if name not in before.whole]
        if words.startswith("model"):
            assert sorted(row["model"]["width"] for row in new) == [4, 4]
        else:
            assert {(row["training"]["first_seed"], row["training"]["seeds"]) for row in new} == {(2, 1)}
        assert len(drill.asked()) - before.asked == trainings * STEPS
        kept = before.whole.items() <= drill.whole().items()
        tally.record("trials added", 1, 0 if kept else 1, len(drill.asked()) - before.asked - trainings * STEPS, kept)
        assert kept
        before = drill.now()
    assert start.whole.items() <= before.whole.items()


def test_changed_code_computes_anew_and_says_so(tmp_path: Path, tally: Tally) -> None:
    drill = Drill.make(tmp_path / "drill", study_text([1000]))
    task = drill.folder / "tasks" / "watched.py"
    original = task.read_text()
    assert drill.command("sweep", STUDY, "--inline").returncode == 0
    before = drill.now()
    task.write_text(original.replace("float64))", "float64)) * 1.0"))
    looked = drill.command("plan", STUDY, "--no-probe")
    assert "2 to run" in looked.stdout, looked.stdout + looked.stderr
    assert "not reused: 2 computed by other code" in looked.stdout
    refused = drill.command("resume", STUDY, "--inline")
    assert refused.returncode in (1, 2)
    assert "2 of the 2 trials" in refused.stderr
    assert len(drill.asked()) == before.asked
    anew = drill.command("sweep", STUDY, "--inline")
    assert anew.returncode == 0, anew.stdout + anew.stderr
    assert "reused" not in anew.stdout
    assert len(drill.asked()) == before.asked + STEPS
    task.write_text(original)
    back = drill.command("sweep", STUDY, "--inline")
    assert "2/2 done, 2 of them reused" in back.stdout, back.stdout + back.stderr
    assert len(drill.asked()) == before.asked + STEPS
    kept = before.whole.items() <= drill.whole().items()
    tally.record("code changed between two runs", 2, 0 if kept else 1, 0, kept)
    assert kept
    asked_for = drill.command("sweep", STUDY, "--inline", "--no-reuse")
    assert "reused" not in asked_for.stdout, asked_for.stdout + asked_for.stderr
    assert len(drill.asked()) == before.asked + 2 * STEPS
