"""``memsweep decide`` of a module: its stored study by name, and what goes on once the module's file is another."""

from __future__ import annotations

import importlib
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import memsweep as ms
from memsweep.cli import main
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.studies.decide.round_log import Round, RoundLog
from memsweep.studies.decide.smallest import smallest
from memsweep.studies.python.decided import module_of
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.plan_file import read_plan, write_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import folder_name
from sweeping import memsweep, ready

LEAKY = """
import torch
from torch import nn


class Leaky(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.rate = nn.Parameter(torch.full((width,), 0.5))
        self.encoder, self.readout = nn.Linear(inputs, width), nn.Linear(width, outputs)

    def forward(self, x):
        drive = self.encoder(x)
        states = [torch.zeros_like(drive[:, 0])]
        for t in range(x.shape[1]):
            states.append(self.rate * states[-1] + drive[:, t])
        return self.readout(torch.stack(states[1:], 1))
"""
SHORT = ("training.steps=2", "perturbation.ascent_steps=1", "perturbation.starts=0", "perturbation.test_size=16")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "leaky_nets.py").write_text(LEAKY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_stored_study_of_a_module_is_known_by_its_name_and_goes_on_after_an_edit_under_another(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["decide", "leaky_nets:Leaky", "--kernel", "exponential", "--inline", "--no-page", *SHORT]
    assert memsweep(*words, "--max-trials", "1", cwd=place).returncode == 3  # the plan keeps the line that was typed
    assert main(["decide", "leaky_nets:Leaky, exponential", "--plan"]) == 0
    assert "the planned 6 trials without a result" in re.sub(r"\s+", " ", capsys.readouterr().out)
    # other commands go on with the study, and its advice keeps the words that made it
    assert (
        memsweep("resume", "leaky_nets:Leaky, exponential", "--inline", "--max-trials", "1", cwd=place).returncode == 3
    )
    with (place / "leaky_nets.py").open("a") as file:
        file.write("\n\ndef later(x):\n    return x\n")
    assert main([*words, "--plan"]) == 2
    said = re.sub(r"\s+", " ", capsys.readouterr().err)
    typed = re.search(r"run the study with this one: memsweep (.*) \(it needs another name\)", said)
    assert typed is not None, said
    again = shlex.split(typed[1])
    assert "--no-page" not in again
    assert again[again.index("--max-trials") + 1] == "1"  # what begins anew has the limit that a person set
    assert main([*again, "--plan"]) == 0
    assert "leaky_nets_Leaky_exponential_2" in capsys.readouterr().out


def test_other_settings_begin_anew_before_a_round_and_are_refused_after_one(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trials of two trainings in one study would be two questions; a person typed one."""
    words = ["decide", "leaky_nets:Leaky", "--kernel", "exponential", "--inline", "--no-page"]
    other = [*SHORT[1:], "training.steps=3"]
    assert main([*words, *SHORT, "--max-hours", "1e-6", "--max-trials", "1"]) == 3  # the plan alone is stored
    capsys.readouterr()
    assert main([*words, *other, "--plan"]) == 0
    told = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "its own plan, 7 trials (anew, because 7 trials that it asks for have other settings (training.steps" in told
    folder = place / "results" / folder_name("leaky_nets:Leaky, exponential")
    plan = read_plan(folder)
    assert plan is not None
    name, row = next(iter(plan.rows.items()))
    longer = trial_from_dict({**row, "training": {**row["training"], "steps": 4}})  # in the place of one trial
    rounds = RoundLog(Location.at(folder), [longer])
    rounds.write(0, Round(10, (), (longer,), (name,)))
    assert main([*words, *SHORT, "--plan"]) == 0
    capsys.readouterr()
    assert main([*words, *other, "--plan"]) == 2
    said = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert re.search(
        r"7 trials that it asks for have other settings \(training.steps: 3\b[^)]*\) than those that are", said
    )
    assert {"(training.steps: 2, 4)", "(training.steps: 4, 2)"} & {*re.findall(r"\(training.steps: [^)]*\)", said)}
    typed = re.search(r"adds seeds and sizes itself, by: memsweep (.*?)\. To begin", said)
    assert typed is not None, said
    assert main([*words, *other, "task.rate=0.7", "--plan"]) == 2
    assert "task.rate: 0.7" in capsys.readouterr().err  # what was asked for is named with the other settings
    assert main([*shlex.split(typed[1]), "--plan"]) == 0
    # an earlier version checked the search of all trials, and a round may have replaced every one
    rows = [trial_from_dict(row) for row in plan.rows.values()]
    checked = [replace(row, perturbation=replace(row.perturbation, stronger_every=5)) for row in rows]
    gone = identified(replace(plan.sweep(), rows=tuple(checked)))
    stronger = [replace(row, perturbation=replace(row.perturbation, starts=4)) for row in checked]
    rounds.write(0, Round(10, (), tuple(stronger), tuple(trial.identity for trial in gone)))
    trials = identified(replace(plan.sweep(), rows=tuple(stronger)))
    write_plan(folder, make_plan(replace(plan.sweep(), rows=tuple(stronger)), trials, frozenset()), {})
    capsys.readouterr()
    assert main([*words, *SHORT, "--plan"]) == 0
    assert f"the planned {len(rows)} trials without a result" in re.sub(r"\s+", " ", capsys.readouterr().out)


@pytest.mark.parametrize("place_of", [0, -1])
def test_what_an_earlier_version_began_with_other_widths_goes_on(
    place_of: int, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["decide", "leaky_nets:Leaky", "--kernel", "exponential", *SHORT]
    study = smallest("leaky_nets:Leaky", "exponential", SHORT, place)
    begun = study.earlier[place_of]
    before = replace(study, rows=begun.rows, grid=begun.grid)
    folder = place / "results" / folder_name(study.name)
    write_plan(folder, make_plan(before, identified(before), frozenset()), {})
    assert main([*words, "--plan"]) == 0
    told = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"the planned {len(begun.rows)} trials without a result" in told


def test_a_module_that_cannot_have_the_widths_is_told_how_to_name_others(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "wide_nets.py").write_text(LEAKY.replace("super", "assert width % 16 == 0\n        super"))
    assert main(["decide", "wide_nets:Leaky", "--plan"]) == 2
    said = re.sub(r"\s+", " ", capsys.readouterr().err)
    typed = re.search(r"4, 8, 16, 32 were tried\. The model runs at others: name them \((\S+)\)", said)
    assert typed is not None, said
    assert main(["decide", "wide_nets:Leaky", "--plan", typed[1]]) == 0


def test_plan_of_a_study_of_a_module_names_the_command_that_shows_it(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "leaky_nets:Leaky, exponential"]) == 2
    typed = re.search(r"which memsweep (.*) shows", re.sub(r"\s+", " ", capsys.readouterr().err))
    assert typed is not None
    assert main(shlex.split(typed[1])) == 0


@pytest.mark.parametrize("verb", ["plan", "sweep"])
def test_a_module_in_the_place_of_a_study_is_answered_by_the_command_that_takes_one(
    verb: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "leaky_nets:Leaky"]) == 2
    assert "memsweep decide leaky_nets:Leaky" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:stopped at a limit")
def test_python_decides_a_module_as_the_command_does(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ready(place / "results")
    names: dict[str, Any] = {}
    exec(LEAKY, names)  # as a cell of a notebook has it
    few = {"task.horizon": 12, "model.width": [2, 3], "perturbation.radii.count": 2, "training.seeds": 2}
    given = {"max_trials": 1, "inline": True, "progress": False}
    found = ms.decide("leaky_nets:Leaky", *SHORT, few, kernel="shift", **given)
    assert found.name == "leaky_nets:Leaky, shift"
    advice = found.contents.study.extended_by("training.seeds=3")
    assert main([*shlex.split(advice)[1:], "--plan"]) == 0
    assert "(anew" not in capsys.readouterr().out
    with pytest.raises(ms.ConfigError, match="A study of a class is a dict"):
        ms.decide(names["Leaky"])
    with pytest.raises(ms.ConfigError, match="A study of a class is a dict"):
        ms.sweep(names["Leaky"])
    with pytest.raises(ms.ConfigError, match="kernel is the memory for a module"):
        ms.decide("quickstart", kernel="shift")
    with pytest.raises(ms.ConfigError, match="both name the memory"):
        ms.decide("leaky_nets:Leaky", "task.kernel=shift", kernel="shift")
    of_file = importlib.import_module("leaky_nets").Leaky
    assert module_of(of_file, "shift") == "leaky_nets:Leaky"


def test_a_study_of_a_module_is_called_by_the_kernel_that_a_word_names(place: Path) -> None:
    for kernel, words in ((None, ["task.kernel=polynomial"]), ("polynomial", list[str]())):
        study = smallest("leaky_nets:Leaky", kernel, [*SHORT, *words], place)
        assert study.name == "leaky_nets:Leaky, polynomial"
        assert "polynomial" in study.description
        assert {to_dict(row.task)["kernel"] for row in study.rows} == {"polynomial"}
