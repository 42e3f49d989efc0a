"""Every command against a program that a document names: it runs nowhere without a word, and reading never runs it."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import memsweep as ms
from memsweep import registry
from memsweep.cli import main
from memsweep.cli.arguments import parse
from memsweep.cli.options import OPTIONS
from memsweep.cli.usage import COMMANDS
from memsweep.commands.console import trust_of
from memsweep.commands.submit import checked_job
from memsweep.config.load.study import load_study, study_of
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import TrustError
from memsweep.report.read.weights import ReplicaWeights
from memsweep.search.round_log import Round, Stage
from memsweep.search.study_search import StudySearch
from memsweep.studies.locations import find_study, plan_to_run, remember_plan, stored_plan
from memsweep.studies.python.in_memory import trained_module
from memsweep.sweep.planning.plan import Plan, PlannedTrial, identified
from memsweep.sweep.planning.plan_file import write_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store
from memsweep.sweep.submit.job import Job
from memsweep.trust.gate import Trust

EVIL = """\
from pathlib import Path
Path(__file__).with_name("RAN").touch()
from torch import nn
class Net(nn.Module):
    pass
"""
STUDY = """\
name: foreign
task: {{name: linear_functional, kernel: exponential, horizon: 8}}
model: {{name: module, factory: "{factory}"}}
training: {{seeds: 1, steps: 1}}
"""
RUN = {
    "plan": ["{study}", "--no-probe"],
    "sweep": ["{study}", "--inline"],
    "extend": ["{study}", "--inline"],
    "decide": ["{study}", "--inline"],
    "resume": ["foreign", "--inline"],
    "retry": ["foreign", "--inline"],
    "measure": ["foreign", "perturbation.starts=1", "--inline"],
    "submit": ["{study}"],
}
"""Commands that would call what the documents name."""
READ = {
    "status": ["foreign"],
    "report": ["foreign"],
    "weights": ["foreign"],
    "sync": ["foreign"],
    "describe": ["{study}"],
    "list": ["studies"],
    "schema": [],
    "data": ["list"],
    "upgrade": ["{results}"],
}
"""Commands that read, and call nothing."""
OF_RESULTS = ("status", "report", "weights", "sync")
NAMES_ONE = {"audit", "atlas", "init"}
"""Commands that take code that was typed, or write a folder. The rows that ``atlas --add`` reads:
``tests/commands/test_atlas_files.py``."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty workspace; beside it somebody's program, their study, and their results with a stored plan."""
    before, folders = list(sys.path), registry.folders()
    (tmp_path / "work").mkdir()
    (tmp_path / "other").mkdir()
    evil = tmp_path / "other" / "evil.py"
    evil.write_text(EVIL)
    (tmp_path / "other" / "study.yaml").write_text(STUDY.format(factory=f"{evil}:Net"))
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MEMSWEEP_RESULTS", str(tmp_path / "results"))
    plain = study_of({"name": "foreign", "task": {"name": "linear_functional"}, "model": "vanilla_rnn"}, (), Path(), "")
    (trial,) = identified(plain)
    foreign = dataclasses.replace(trial.config, model=_module(f"{evil}:Net"))
    sweep = dataclasses.replace(plain, rows=(foreign,))
    plan = Plan(sweep, (PlannedTrial(trial.identity, foreign),), frozenset(), ())
    write_plan(tmp_path / "results" / "foreign", plan, {"started": "", "code_revision": ""})
    assert not (tmp_path / "other" / "RAN").exists()
    yield tmp_path
    sys.path[:], registry._folders[:] = before, folders


def _module(factory: str) -> object:
    return registry.get(registry.MODEL, "module").Config(factory=factory)


def test_every_command_is_looked_at() -> None:
    assert RUN.keys() | READ.keys() | NAMES_ONE == COMMANDS.keys()


@pytest.mark.parametrize("json_too", [False, True])
@pytest.mark.parametrize("verb", RUN)
def test_no_command_runs_what_a_foreign_document_names(
    place: Path, capsys: pytest.CaptureFixture[str], verb: str, json_too: bool
) -> None:
    words = [word.format(study=place / "other" / "study.yaml") for word in RUN[verb]]
    assert main([verb, *words, *(["--json"] if json_too else [])]) == 2
    told = capsys.readouterr()
    assert not (place / "other" / "RAN").exists()
    said = json.loads(told.out)["error"]["message"] if json_too else told.err
    assert f"evil.py:Net ({place}/other/evil.py)" in " ".join(said.split())
    assert "--trust" in said
    assert not (place / "state" / "memsweep" / "trusted.json").exists()


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=pytest.mark.more) if verb == "sync" else verb for verb in READ]
)
def test_no_command_that_reads_imports_it(place: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    """Of stored results, not even the tasks beside them: whoever unpacks somebody's folder may read it."""
    (place / "work" / "tasks").mkdir()
    if verb in OF_RESULTS:
        (place / "work" / "tasks" / "theirs.py").write_text(EVIL)
    words = [word.format(study=place / "other" / "study.yaml", results=place / "results") for word in READ[verb]]
    main([verb, *words])
    capsys.readouterr()
    assert not (place / "other" / "RAN").exists()
    assert not (place / "work" / "tasks" / "RAN").exists()


PYTHON = {"plan", "sweep", "decide", "extend", "measure", "retry"}
"""Functions that would call what the documents name; the others read, or are given a module."""


def test_every_function_of_python_is_looked_at() -> None:
    functions = {name for name in ms.__all__ if name.islower()}
    assert functions == PYTHON | {"audit", "compare", "describe", "results", "status"}


def test_python_refuses_like_the_command_line(place: Path) -> None:
    theirs = place / "other" / "study.yaml"
    for call in (ms.plan, ms.sweep, ms.decide, ms.extend):
        with pytest.raises(TrustError):
            call(theirs)
    with pytest.raises(TrustError):
        ms.measure("foreign", "perturbation.starts=1")
    with pytest.raises(TrustError):
        ms.retry("foreign")
    assert len(ms.results("foreign").missing) == 1
    assert ms.status("foreign").left == 1
    (config,) = ms.results("foreign").contents.study.rows.values()
    kept = ReplicaWeights("0" * 64, 0, config, {})
    with pytest.raises(TrustError, match=r"evil\.py:Net"):
        trained_module(kept, "foreign", str(place / "results"), place / "work", Trust())
    assert not (place / "other" / "RAN").exists()


def test_a_word_for_a_plan_is_kept(place: Path) -> None:
    store = Store(Location.at(place / "results" / "foreign"))
    with pytest.raises(TrustError, match="this user has not planned it"):
        plan_to_run(store, Trust())
    plan_to_run(store, Trust(given=True))
    plan = plan_to_run(store, Trust())
    assert not (place / "other" / "RAN").exists()  # the plan is read: nothing is called yet
    (place / "other" / "evil.py").write_text(EVIL + "\nVERSION = 2\n")
    with pytest.raises(TrustError):
        plan_to_run(store, Trust())
    assert plan.study == "foreign"


def test_who_planned_a_study_may_continue_it(place: Path) -> None:
    """Also where the file of the workspace has changed since: what changes is one's own."""
    nets = place / "work" / "nets.py"
    nets.write_text(EVIL)
    shutil.copytree(place / "results", place / "work" / "results")
    store = Store(Location.at(place / "work" / "results" / "foreign"))
    sweep = stored_plan(store).sweep()
    rows = [dataclasses.replace(row, model=_module("nets:Net")) for row in sweep.rows]
    plan = Plan(dataclasses.replace(sweep, rows=tuple(rows)), _planned(rows), frozenset(), ())
    write_plan(store.location, plan, {"started": "", "code_revision": ""})
    with pytest.raises(TrustError):
        plan_to_run(store, Trust())
    assert plan_to_run(store, Trust(), rows).rows  # of a study file that was admitted
    remember_plan("foreign", rows, None)
    nets.write_text(EVIL + "# a comment\n")
    assert plan_to_run(store, Trust()).rows
    other = [dataclasses.replace(rows[0], model=dataclasses.replace(rows[0].model, tokens=True))]
    write_plan(store.location, dataclasses.replace(plan, trials=_planned(other)), {})
    with pytest.raises(TrustError):  # another call of the same file
        plan_to_run(store, Trust())


def _planned(rows: Iterable[TrialConfig]) -> tuple[PlannedTrial, ...]:
    return tuple(PlannedTrial(f"{number:032x}", row) for number, row in enumerate(rows))


def test_submit_carries_the_word_of_who_submits(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = place / "work"
    (work / "search_spaces").mkdir()
    (work / "nets.py").write_text("import evil\nfrom torch import nn\nNet, make = nn.RNN, evil.make\n")
    installed = place / "site-packages"  # which every node has, so that the upload needs none of it
    installed.mkdir()
    (installed / "evil.py").write_text(
        "from torch import nn\ndef make(inputs, outputs):\n    return nn.RNN(inputs, outputs, batch_first=True)\n"
    )
    monkeypatch.syspath_prepend(str(installed))
    model = '{name: module, factory: "evil:make", width_argument: null}'
    (work / "search_spaces" / "mine.yaml").write_text(
        f"task: {{name: linear_functional, kernel: exponential, horizon: 8}}\nmodel: {model}\n"
    )

    def job(*words: str) -> Job:
        args = parse(["submit", "mine", *words], dict.fromkeys(OPTIONS))
        args.discover = registry.discover
        return checked_job(args)[0]

    with pytest.raises(TrustError, match="evil:make"):
        job()
    assert job("--trust").command.endswith(" --trust")
    submitted = job()
    assert not submitted.command.endswith("--trust")
    # the job, which knows nothing but what came along
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "node"))
    with pytest.raises(TrustError):
        load_study("mine", (), work)
    told = {"metadata": {"trusted": submitted.metadata["trusted"]}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(told))
    trust = trust_of(Namespace(trust=False, json=False))
    assert trust.ask is None  # nobody is there to answer
    rows = load_study("mine", (), work, trust=trust).rows
    assert rows
    plan = Plan(load_study("mine", (), work, trust=trust), _planned(rows), frozenset(), ())
    write_plan(place / "results" / "mine", plan, {})
    assert plan_to_run(find_study("mine", Location.at(place / "results")), trust).rows
    assert to_dict(rows[0].model)["factory"] == "evil:make"


def test_a_log_of_a_search_sets_nothing_that_is_not_searched(place: Path) -> None:
    written = {
        "name": "searched",
        "task": {"name": "linear_functional"},
        "model": "vanilla_rnn",
        "search": {"trials": 2, "training.learning_rate": {"log_uniform": [1e-4, 1e-1]}},
    }
    store = Store(Location.at(place / "results" / "searched"))
    search = StudySearch(study_of(written, (), Path(), ""), store)
    assert search._suggested(Round(stages=(Stage(0, 0, {"training.learning_rate": 0.01}),)))
    for values in ({"model.factory": "os:system"}, {"training.learning_rate": "os:system"}):
        assert not search._suggested(Round(stages=(Stage(0, 0, values),)))


@pytest.mark.parametrize(
    ("answer", "runs"), [("y\n", True), ("yes\n", True), ("\n", False), ("n\n", False), ("", False)]
)
def test_on_a_terminal_the_person_is_asked(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, runs: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    store = Store(Location.at(place / "results" / "foreign"))
    trust = trust_of(Namespace(trust=False, json=False))
    if runs:
        assert plan_to_run(store, trust).rows
    else:
        with pytest.raises(TrustError):
            plan_to_run(store, trust)
    told = capsys.readouterr().err
    assert "evil.py:Net" in "".join(told.split("\n")).replace(" ", "")
    assert told.rstrip().endswith("[y/N]")


def test_nobody_is_asked_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Namespace(trust=False, json=False)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert trust_of(asked).ask is None  # standard error is no terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert trust_of(asked).ask is not None
    assert trust_of(Namespace(trust=False, json=True)).ask is None
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert trust_of(asked).ask is None
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR")
    monkeypatch.setattr(sys, "stdin", None)
    assert trust_of(asked).ask is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
