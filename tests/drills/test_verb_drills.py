"""Verbs on a study whose code has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from drill_study import STEPS, STUDY, Drill, study_text
from tally import Tally

pytestmark = pytest.mark.drill


@pytest.mark.long
def test_changed_code_computes_anew_and_says_so(tmp_path: Path, tally: Tally) -> None:
    drill = Drill.make(tmp_path / "drill", study_text([1_000_000]))
    task = drill.folder / "tasks" / "watched.py"
    original = task.read_text()
    assert drill.command("sweep", STUDY, "--inline").returncode == 0
    before = drill.now()
    task.write_text(original.replace("float64))", "float64)) * 1.0"))
    looked = drill.command("plan", STUDY, "--no-probe")
    assert "2 to run" in looked.stdout, looked.stdout + looked.stderr
    assert "not reused: 2 computed by other code" in looked.stdout
    refused = drill.command("resume", STUDY, "--inline")
    assert refused.returncode == 2
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
