"""Calls that a study may name without trust, calls that need it, and how trust is kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memsweep.config.load.study import load_study
from memsweep.errors import ConfigError, TrustError
from memsweep.trust.calls import Call, calls_of, in_workspace
from memsweep.trust.gate import Trust, kept_file, known

NETS = """\
import functools
import os
import subprocess
import torch
from pathlib import Path
from torch import nn
from parts import imported

Path(__file__).with_name("RAN").touch()

class Net(nn.Module):
    def __init__(self, inputs, outputs, width=3):
        super().__init__()
        self.cell, self.readout = nn.RNN(inputs, width, batch_first=True), nn.Linear(width, outputs)
    def forward(self, x):
        return self.readout(self.cell(x)[0])

def make(inputs, outputs, width=3):
    return Net(inputs, outputs, width)

class Maker:
    @staticmethod
    def make(inputs, outputs, width=3):
        return Net(inputs, outputs, width)

partly = functools.partial(Net, width=2)
"""
STUDY = """\
task: {{name: linear_functional, kernel: exponential, horizon: 8}}
model: {{name: module, factory: "{factory}", width_argument: null, arguments: {arguments}}}
training: {{seeds: 1, steps: 1, batch_size: 4, validation_size: 8}}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workspace with a module, and beside it a folder of somebody else."""
    before = list(sys.path)
    work, other = tmp_path / "work", tmp_path / "other"
    for folder in (work, other):
        (folder / "search_spaces").mkdir(parents=True)
        (folder / "nets.py").write_text(NETS)
        (folder / "parts.py").write_text(
            "def imported(inputs, outputs):\n    from nets import Net\n    return Net(1, 1)\n"
        )
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path
    sys.path[:] = before


def study(folder: Path, factory: str, arguments: str = "{}") -> str:
    file = folder / "search_spaces" / "mine.yaml"
    file.write_text(STUDY.format(factory=factory, arguments=arguments))
    return str(file)


@pytest.mark.parametrize(
    "factory",
    ["nets:Net", "nets:make", "nets:Maker.make", "nets:partly", "nets:imported", "nets.py:make", "./nets.py:Net"],
)
def test_a_study_of_the_workspace_may_name_what_its_files_define(place: Path, factory: str) -> None:
    assert load_study(study(place / "work", factory), (), place / "work").rows
    assert not kept_file().exists()


def test_a_study_of_the_workspace_may_name_a_class_of_modules_of_a_package(place: Path) -> None:
    arguments = "{hidden_size: 1, batch_first: true}, inputs_argument: input_size"
    assert load_study(study(place / "work", "torch.nn:RNN", arguments), (), place / "work").rows


CALLS = {
    "subprocess:getoutput": "{cmd: 'touch RAN'}",
    "os:system": "{command: 'touch RAN'}",
    "subprocess:Popen": "{args: 'touch RAN', shell: true}",
    "builtins:exec": '{source: \'open("RAN", "w")\'}',
    "torch.utils.cpp_extension:load": "{name: x, sources: []}",
    "torch.hub:load": "{repo_or_dir: a/b, model: c}",
    "nets:os.system": "{command: 'touch RAN'}",
    "nets:subprocess.getoutput": "{cmd: 'touch RAN'}",
    "nets:Path.touch": "{self: RAN}",
    "{other}/nets.py:Net": "{}",
    "../other/nets.py:Net": "{}",
    "link:Net": "{}",
    "linked/nets.py:Net": "{}",
    "linked.nets:Net": "{}",
}


@pytest.mark.parametrize("factory", CALLS)
def test_anything_else_is_refused_before_it_is_called(place: Path, factory: str) -> None:
    work, other = place / "work", place / "other"
    (work / "link.py").symlink_to(other / "nets.py")
    (work / "linked").symlink_to(other)
    name = factory.replace("{other}", str(other))
    with pytest.raises(TrustError, match="would run") as caught:
        load_study(study(work, name, CALLS[factory]), (), work)
    assert name in str(caught.value)
    assert "--trust" in str(caught.value)
    assert str(caught.value).count("\n") == 0
    assert not (other / "RAN").exists()
    assert (work / "RAN").exists() == factory.startswith("nets:")  # the workspace's own file is imported
    assert not kept_file().exists()


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        ("grid: {model.factory: ['os:system', 'os:popen']}", ()),
        ("grid: {model: [{name: module, factory: 'os:system'}]}", ()),
        ("grid: {rows: [{model: {name: module, factory: 'os:system'}}]}", ()),
        ("search: {trials: 2, model.factory: {choice: ['os:system', 'os:popen']}}", ()),
        ("name: os:system\ngrid: {model.factory: ['${name}']}", ()),
        ("", ("+part=theirs",)),
    ],
)
def test_wherever_a_study_names_it(place: Path, text: str, overrides: tuple[str, ...]) -> None:
    work = place / "work"
    (work / "search_spaces" / "part").mkdir()
    (work / "search_spaces" / "part" / "theirs.yaml").write_text(
        "# @package _global_\nmodel: {name: module, factory: 'os:system'}\n"
    )
    file = work / "search_spaces" / "mine.yaml"
    file.write_text(f"task: {{name: linear_functional, horizon: 8}}\nmodel: {{name: vanilla_rnn}}\n{text}\n")
    with pytest.raises(TrustError, match="os:system"):
        load_study("mine", overrides, work)


def test_a_study_from_elsewhere_has_nothing_imported(place: Path) -> None:
    work, theirs = place / "work", study(place / "other", "nets:make")
    with pytest.raises(TrustError, match="a study from elsewhere names it"):
        load_study(theirs, (), work)
    assert not (work / "RAN").exists()
    assert load_study(theirs, ("model.factory='nets:make'",), work).rows  # what is typed is one's own
    Path(theirs).write_text("task: {name: linear_functional, horizon: 8}\nmodel: {name: vanilla_rnn}\n")
    assert load_study(theirs, (), work).rows  # a study that names no code is data


def test_a_word_is_kept_for_this_study_and_these_files(place: Path) -> None:
    work, theirs = place / "work", study(place / "other", f"{place}/other/nets.py:Net")
    questions = list[str]()

    def asked(question: str) -> bool:
        questions.append(question)
        return len(questions) > 1

    with pytest.raises(TrustError):
        load_study(theirs, (), work, trust=Trust(ask=asked))
    assert not (place / "other" / "RAN").exists()
    load_study(theirs, (), work, trust=Trust(ask=asked))
    load_study(theirs, ("training.steps=2",), work)  # kept
    assert len(questions) == 2
    assert "nets.py" in questions[0]
    assert kept_file().stat().st_mode & 0o777 == 0o600
    for changed in ("nets.py", "parts.py", "search_spaces/mine.yaml"):  # another program from here on
        load_study(theirs, (), work, trust=Trust(given=True))
        with (place / "other" / changed).open("a") as file:
            file.write("\nchain: null\n" if changed.endswith("yaml") else "\nVERSION = 2\n")
        with pytest.raises(TrustError):
            load_study(theirs, (), work)


def test_a_word_of_others_does_not_count(place: Path) -> None:
    work, theirs = place / "work", study(place / "other", f"{place}/other/nets.py:Net")
    load_study(theirs, (), work, trust=Trust(given=True))
    kept_file().chmod(0o666)
    assert known() == frozenset()
    with pytest.raises(TrustError):
        load_study(theirs, (), work)
    for text in ("", "[]", '{"trusted": 3}', '{"trusted": {"x": {}}}', "[" * 100_000):
        kept_file().write_text(text)
        kept_file().chmod(0o600)
        assert known() == frozenset()


def test_where_nothing_can_be_kept_the_word_counts_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "full").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "full"))
    work, theirs = place / "work", study(place / "other", f"{place}/other/nets.py:Net")
    assert load_study(theirs, (), work, trust=Trust(given=True)).rows
    with pytest.raises(TrustError):
        load_study(theirs, (), work)


def test_a_home_folder_is_no_workspace_for_what_lies_deep_in_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memsweep import registry

    monkeypatch.setattr(registry, "_folders", [place, place / "search_spaces"])
    assert in_workspace(place / "other" / "nets.py")
    monkeypatch.setenv("HOME", str(place))
    assert not in_workspace(place / "other" / "nets.py")
    assert in_workspace(place / "nets.py")
    assert in_workspace(place / "search_spaces" / "mine.yaml")
    assert in_workspace(place / "search_spaces" / "room" / "mine.yaml")
    assert not in_workspace(place / "search_spaces" / "room" / "deeper" / "mine.yaml")
    assert not in_workspace(place.parent / "nets.py")


def test_packages_that_lie_in_the_workspace_are_packages(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = place / "work"
    packages = work / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "installed_here.py").write_text("def make(inputs, outputs):\n    raise SystemExit\n")
    monkeypatch.syspath_prepend(str(packages))
    with pytest.raises(TrustError, match="installed_here"):
        load_study(study(work, "installed_here:make"), (), work)


def test_the_same_call_has_one_digest_and_another_has_another() -> None:
    section = {"name": "module", "factory": "a:B", "width": 3, "arguments": {"x": 1}}
    (digest,) = calls_of([section, {**section, "width": 4}])
    assert calls_of(json.loads(json.dumps(section))).keys() == {digest}
    assert len(calls_of([section, {**section, "arguments": {"x": 2}}, {**section, "factory": "a:C"}])) == 3
    assert Call("a:B", "one").digest != Call("a:B", "two").digest


def test_what_cannot_be_found_is_told_by_the_study(place: Path) -> None:
    for factory in ("nowhere:Net", "nets:Nothing", "missing/nets.py:Net"):
        with pytest.raises(ConfigError, match=r"there is no|has no"):
            load_study(study(place / "work", factory), (), place / "work")
