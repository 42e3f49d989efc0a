"""Every command that the product prints runs as printed: in another workspace, with a study file and --results."""

from __future__ import annotations

import html
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import memsweep as ms
from memsweep.cli import main
from memsweep.cli.options import OPTIONS
from memsweep.commands.console import shown
from memsweep.report.read.command_line import in_place
from memsweep.report.read.study import load_study
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.typed import LAUNCHES, called, typed
from sweeping import BASE

STUDY = f"name: an other\n{BASE}grid: {{task.horizon: [8, 10]}}\n"
TASK = "# a folder of tasks makes this a workspace\n"
COMMAND = re.compile(r"memsweep (?:decide|resume|extend|retry|report|weights|sync|sweep|status) [^\n<;]*")


def test_a_command_can_be_named_where_its_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a job's, which its cluster deletes."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    said = typed("resume", "small", Location.at(tmp_path / "kept"), workspace=tmp_path)
    assert said == f"memsweep resume small --results {tmp_path / 'kept'} --workspace {tmp_path}"


def test_paths_are_whole_where_the_process_has_gone_to_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose folder was deleted goes there, and a person's shell is elsewhere."""
    monkeypatch.chdir("/")
    assert shown(Path("/some/results")) == "/some/results"
    monkeypatch.chdir("/usr")
    assert shown(Path("/usr/results")) == "results"


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


WEIGHTS = "memsweep measure --factory my_nets:Net --weights 'of mine.pt' --task parity"
MODULE = "memsweep decide my_nets:Net --kernel polynomial"
OF_WORDS = (
    (
        f"{WEIGHTS} training.seeds=1",
        "",
        f"{WEIGHTS} model.width=3 training.seeds=2",
        "",
    ),
    ("memsweep atlas a:Net", "", "memsweep atlas a:Net model.width=3 training.seeds=2", ""),
    (
        f"{MODULE} --max-core-hours 0.2 --max-nodes 2 --max-trials=3 model.width=2",
        "my_nets:Net",
        f"{MODULE} --max-nodes 2 model.width=3 training.seeds=2",
        f"{MODULE} --max-nodes 2 model.width=2 --max-core-hours 1",
    ),
    (MODULE, "my_nets:Net", f"{MODULE} model.width=3 training.seeds=2", f"{MODULE} --max-core-hours 1"),
)
"""Commands that make a study of their words: the study as they name it, what adds trials, and what goes on with it."""


def test_advice_to_a_study_that_is_a_dict_is_the_call_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no file that a command could name: the call runs as it is printed, with the same dict."""
    monkeypatch.chdir(tmp_path)
    study = {
        **yaml.safe_load(f"name: mine\n{BASE}".replace("1e-3", "0.001")),
        "model": {"name": "diagonal_rnn", "width": 2},
    }
    folder = tmp_path / "kept here"
    ms.sweep(study, {"training.steps": 2, "training.seeds": 1}, results=folder, inline=True, progress=False)
    stored = replace(load_study(Location.at(folder / "mine")), address="head:6379")
    assert stored.resume == f"memsweep resume mine --results '{folder}' --address head:6379"
    assert "--address" not in stored.typed("report", "mine")
    stored = replace(stored, address="")  # there is no such cluster to join
    advice = stored.extended_by("model.width=3 training.seeds=2")
    assert advice == f"ms.extend(study, 'training.steps=2', 'model.width=3', 'training.seeds=2', results='{folder}')"
    for line, source, more, until in OF_WORDS:
        typed_in = replace(stored, command=line, source=source, overrides=())
        assert typed_in.extended_by("model.width=3 training.seeds=2") == more
        assert typed_in.until_decided == until
        replaced = replace(typed_in, replaced={"0": {}})  # by a round, in trials with other settings
        assert replaced.extended_by("model.width=3 training.seeds=2") == until
    found = eval(advice, {"ms": ms, "study": study})
    assert (len(found.contents.study.records), found.missing.empty) == (2, True)


def test_advice_on_a_cluster_names_it_where_the_verb_computes() -> None:
    """The verbs are those of the command line, so that a later one that computes is not forgotten."""
    joins = {verb for verb, options in OPTIONS.items() if "--address" in dict(options)} - {"submit"}
    assert joins == LAUNCHES
    for verb in OPTIONS:
        command = typed(verb, "s", Location.at("results"), address="head:6379")
        assert ("--address head:6379" in command) == (verb in joins)
        call = called(verb, Location.at("results"), address="head:6379")
        assert ("address='head:6379'" in call) == (verb in joins)


def test_a_word_takes_the_place_of_one_of_its_path_and_of_what_removed_its_section() -> None:
    made = ["task.horizon=20", "grid.model.width=[2,3]", "~grid.training", "name=small"]
    added = ["grid.task.horizon=[20, 40]", "model.width=4", "training.seeds=6"]
    assert in_place(made, added) == ["name=small", *added]
    assert in_place(made, []) == made


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
    told += [stored.extended_by("model.width=3"), stored.resume, stored.until_decided]
    told.append(html.unescape((folder / "report" / "index.html").read_text()).replace("</code>", "\n"))
    commands = sorted(set().union(*map(advised, told)))
    assert {shlex.split(command)[1] for command in commands} >= {"decide", "resume", "extend", "report", "weights"}
    assert all(str(results) in command for command in commands if "report" not in command), commands
    for command in commands:
        verb, *words = shlex.split(command)[1:]
        more = ["--inline", "--no-page"] if verb in LAUNCHES else []
        code, said = run(capsys, verb, *words, *more)
        assert code == 0, f"{command}\n{said}"
    stored = load_study(Location.at(folder))
    assert (len(stored.records), stored.missing) == (stored.planned, ())


def test_another_job_finishes_what_a_job_began(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cluster deletes a job's own folder: no command may need it."""
    results = str(place / "kept")
    monkeypatch.chdir(place / "work space")
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"metadata": {"job_submission_id": "memsweep-other-1"}}')
    words = ("training.seeds=1", "--results", results, "--inline", "--max-trials", "1", "--no-page")
    assert run(capsys, "sweep", "of mine.yaml", *words)[0] == 3
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR")
    monkeypatch.chdir(place)
    told = run(capsys, "status", "an other", "--results", results)[1]
    assert f"to finish it: memsweep submit 'an other' --do resume --results {results}\n" in told
    assert load_study(Location.at(results) / "an%20other").resume == f"memsweep resume 'an other' --results {results}"


def test_a_name_of_results_that_no_file_has_is_told_with_its_file(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--results", str(place / "kept")]
    file = str(place / "work space" / "of mine.yaml")
    words = ("training.seeds=1", "--inline", "--max-trials", "1", "--no-page")
    assert run(capsys, "sweep", file, *words, *where)[0] == 3
    for verb in ("extend", "decide"):
        code, told = run(capsys, verb, "an other", "training.seeds=2", *where)
        assert code == 2
        (command,) = advised(told)
        assert command.startswith(f"memsweep {verb} '{file}' training.seeds=2 --results ")
        assert run(capsys, *shlex.split(command)[1:], *(["--plan"] if verb == "decide" else ["--inline"]))[0] == 0
    assert "Built-in studies" in run(capsys, "extend", "neither", *where)[1]
