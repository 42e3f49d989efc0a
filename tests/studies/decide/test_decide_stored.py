"""``memsweep decide`` of stored results: renamed folders, trials that failed too often, and the words of its advice."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memsweep.cli import main
from memsweep.report.read.study import load_study as load_stored
from memsweep.studies.decide.reading import Subject
from memsweep.studies.ending import Ending, stopped
from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import GIVE_UP_AFTER, Journal, State, TrialStatus, read_statuses
from memsweep.sweep.store.layout import record_file
from sweeping import BASE, memsweep

STUDY = f"""# One condition.
{BASE}
grid: {{model.width: [2, 3], task.horizon: [8, 10]}}
"""
WHERE = ("--inline", "--no-page")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with a study, and its results of one trial of four."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(STUDY)
    assert main(["sweep", "small.yaml", *WHERE, "--max-trials", "1"]) == 3
    capsys.readouterr()
    return tmp_path


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The output since the last look, on one line."""
    shown = capsys.readouterr()
    return re.sub(r"\s+", " ", shown.out + shown.err)


@pytest.mark.parametrize("named", ["results/backup", "backup", "results/the copy", "the copy"])
@pytest.mark.parametrize("there", [True, False])
def test_a_copied_or_renamed_folder_is_refused_and_no_other_one_is_taken(
    place: Path, named: str, there: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = place / "results" / Path(named).name
    shutil.copytree(place / "results/small", folder)
    if not there:
        shutil.rmtree(place / "results/small")
    before = sorted(place.rglob("*"))
    for words in (["decide", named, "--plan"], ["decide", named, *WHERE], ["resume", named, *WHERE]):
        assert main(words) == 2
        assert f"{folder.name} holds the study 'small', whose folder is called small" in said(capsys)
    assert main(["status", named]) == 0
    assert "not running; its folder was copied or renamed: call it small to go on" in said(capsys)
    assert sorted(place.rglob("*")) == before


def test_trials_that_failed_too_often_are_no_plan_of_decide_and_status_names_retry(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    location = Location.at(place / "results/small")
    assert main(["resume", "small", *WHERE]) == 0
    plan = read_plan(location)
    assert plan is not None
    gone = next(iter(plan.rows))
    (place / "results/small" / record_file(gone)).unlink()
    failed = TrialStatus(State.FAILED, "", GIVE_UP_AFTER, "failed: RuntimeError")
    Journal(location, {**read_statuses(location), gone: failed})
    shutil.rmtree(place / "results/small/kept", ignore_errors=True)
    capsys.readouterr()
    assert main(["status", "small"]) == 0
    again = re.search(r"to try them once more: memsweep (\S.*--force)", said(capsys))
    assert again is not None
    assert main(["decide", "small", "--plan", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["trials_left"], {one["state"] for one in shown["decisions"]} & {"open"}) == (0, set())
    assert main([*shlex.split(again[1]), *WHERE]) == 0


def test_what_a_run_says_of_a_question_with_trials_left_is_what_a_look_says(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that failed in this run has no result, and is tried again by the next one."""
    from memsweep import trial

    monkeypatch.setattr(trial, "run_pack", broken)
    assert main(["decide", "small.yaml", *WHERE, "--json"]) == 1
    run = json.loads(capsys.readouterr().out)
    assert main(["decide", "small.yaml", "--plan", "--json"]) == 0
    look = json.loads(capsys.readouterr().out)
    assert run["trials_left"] == look["trials_left"] > 0
    assert [one["state"] for one in run["decisions"]] == [one["state"] for one in look["decisions"]]
    assert not run["hopeless"]


def broken(*words: Any, **more: Any) -> None:
    raise RuntimeError("broken")


def test_after_decide_by_name_the_advice_of_a_study_still_names_its_file(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("sweep", "small.yaml", 'name="other"', *WHERE)
    assert memsweep(*words, cwd=place).returncode == 0
    monkeypatch.setattr(Subject, "is_open", property(lambda subject: False))
    assert main(["decide", "other", *WHERE]) == 0
    plan = read_plan(place / "results/other")
    assert plan is not None
    assert plan.provenance["source"] == "small.yaml"
    advice = load_stored(Location.at(place / "results/other")).extended_by("training.seeds=3")
    assert main([*shlex.split(advice)[1:], *WHERE, "--max-trials", "1"]) == 3


@pytest.mark.parametrize(("left", "names_resume"), [(0, False), (3, True)])
@pytest.mark.parametrize("how", [{"interrupted": True}, {"lost": "taken over"}, {"limit": "3 trials"}])
def test_an_end_between_rounds_names_no_resume_which_would_begin_none(
    how: dict[str, Any], left: int, names_resume: bool
) -> None:
    summary = SimpleNamespace(**{"outage": "", "lost": "", "limit": "", "interrupted": False, **how})
    ending = cast(Ending, SimpleNamespace(summary=summary, left=left, resume="memsweep resume small"))
    assert "Run the same command again" in stopped(ending)
    assert ("memsweep resume small" in stopped(ending)) is names_resume
