"""Every command that the product prints runs as printed: in another workspace, with a study file and --results."""

from __future__ import annotations

import html
import os
import re
import shlex
from pathlib import Path

import pytest

from memsweep.cli import main
from memsweep.report.read.study import load_study
from memsweep.sweep.store.filesystem import Location
from sweeping import BASE

STUDY = f"name: an other\n{BASE}grid: {{task.horizon: [8, 10]}}\n"
TASK = "# a folder of tasks makes this a workspace\n"
COMMAND = re.compile(r"memsweep (?:resume|extend|retry|report|weights|sync|sweep|status) [^\n<;]*")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a study that was swept from another folder into a folder of its own, one trial missing."""
    elsewhere, workspace = tmp_path / "elsewhere", tmp_path / "work space"
    for folder in (elsewhere, workspace / "tasks"):
        folder.mkdir(parents=True)
    (workspace / "tasks" / "own.py").write_text(TASK)
    (workspace / "of mine.yaml").write_text(STUDY)
    monkeypatch.chdir(elsewhere)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code of a command and all that it printed."""
    try:
        code = main(list(words))
    except SystemExit as error:
        code = int(error.code or 0)
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def advised(text: str) -> set[str]:
    """The commands in a text; a sentence may end behind one, or go on behind a comma or a word."""
    found = (
        re.split(r"\)|, (?=\w)| (?:writes|adds|recomputes|draws|brings) |\.$|\. ", each)[0]
        for each in COMMAND.findall(text)
    )
    return {each.strip().rstrip(".") for each in found}


@pytest.mark.more
def test_every_advice_runs_as_it_is_printed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = place / "results here"
    where = ["--results", str(results), "--workspace", str(place / "work space")]
    study = os.path.relpath(place / "work space" / "of mine.yaml")
    code, said = run(capsys, "sweep", study, "training.seeds=1", *where, "--inline", "--max-trials", "1", "--no-page")
    assert code == 3
    folder = results / "an%20other"
    told = [said]
    told += [
        run(capsys, *words)[1] for words in (["status", "an other", *where[:2]], ["weights", "an other", *where[:2]])
    ]
    stored = load_study(Location.at(folder))
    told += [stored.extended_by("model.width=3"), stored.resume]
    told.append(html.unescape((folder / "report" / "index.html").read_text()).replace("</code>", "\n"))
    commands = sorted(set().union(*map(advised, told)))
    assert {shlex.split(command)[1] for command in commands} >= {"resume", "extend", "report", "weights"}
    assert all(str(results) in command for command in commands if "report" not in command), commands
    for command in commands:
        verb, *words = shlex.split(command)[1:]
        more = ["--inline", "--no-page"] if verb in ("resume", "extend", "sweep", "retry") else []
        code, said = run(capsys, verb, *words, *more)
        assert code == 0, f"{command}\n{said}"
    stored = load_study(Location.at(folder))
    assert (len(stored.records), stored.missing) == (stored.planned, ())
