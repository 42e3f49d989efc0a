"""Weights come out of a study, and are measured again without training."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from memsweep.cli import main
from memsweep.models.base import Signature
from memsweep.models.module.factory import resolve
from memsweep.studies.locations import stored_plan
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.results import Store
from paths import ROOT
from sweeping import BASE


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the results of a study of two widths."""
    folder = tmp_path_factory.mktemp("weights")
    (folder / "mine.yaml").write_text(BASE + "grid: {model.width: [2, 3]}\n")
    assert run(folder, "sweep", str(folder / "mine.yaml"), "--inline") == 0
    return folder


def run(place: Path, *words: str) -> int:
    try:
        return main([*words, "--results", str(place / "results"), "--workspace", str(ROOT)])
    except SystemExit as ended:
        return int(str(ended.code))


def test_the_list_names_what_the_command_takes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(place, "weights", "mine") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[1] for line in lines[:2]] == ["seeds 0-1", "seeds 0-1"]
    assert {line.split()[-1] for line in lines[:2]} == {"m=2", "m=3"}  # as MLflow names the runs
    # the file may stand behind the flags, as a person writes it
    out = str(place / "first.safetensors")
    assert run(place, "weights", "mine", lines[0].split()[0], "--seed", "1", out) == 0
    width = int(lines[0][-1])
    assert load_file(out)["recurrent_weight"].shape == (width,)
    assert f"recurrent_weight  [{width}]  float64" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["model.width=2", "x.st"], ["--seed", "0", "out"], ["x.pt", "y.safetensors"]])
def test_a_file_of_another_ending_is_named_so(
    place: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(place, "weights", "mine", *words) == 2
    told = capsys.readouterr().err
    assert "is neither a field with its value (model.width=8) nor the beginning of an identity" in told
    assert "The name of a file to be written ends in .safetensors." in told


def test_a_file_that_is_there_stays(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = place / "taken.safetensors"
    out.write_text("mine")
    assert run(place, "weights", "mine", "model.width=2", "--seed", "0", str(out)) == 2
    assert out.read_text() == "mine"
    assert "is there already, and stays" in capsys.readouterr().err


@pytest.mark.more
def test_a_study_is_measured_again_as_a_study_of_its_own(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a training step was done")

    monkeypatch.setattr("memsweep.learning.loop._step", refuse)
    words = ("measure", "mine", "perturbation.norm=spectral,entrywise", "perturbation.starts=2", "--inline")
    assert run(place, *words) == 0
    assert "4 of them only measured, from stored weights" in capsys.readouterr().out
    store = Store(place / "results" / folder_name("mine perturbation.norm=spectral,entrywise perturbation.starts=2"))
    assert sorted(store.table("curves")["norm"].unique()) == ["entrywise", "spectral"]
    before = Store(place / "results" / "mine").table("replicas")
    after = store.table("replicas")
    pd.testing.assert_series_equal(
        before.set_index(["width", "seed"])["validation_loss"].sort_index(),
        after.set_index(["width", "seed"])["validation_loss"].sort_index()[::2],
    )
    assert run(place, *words) == 0
    assert "4 done, nothing to run" in capsys.readouterr().out
    assert len(stored_plan(Store(place / "results" / "mine")).rows) == 2
    # its weights are those of the study that trained them
    name = store.location.name
    out = place / "measured.safetensors"
    choice = ("model.width=2", "perturbation.norm=entrywise")
    assert run(place, "weights", str(place / "results" / name), *choice, "--seed", "0", str(out)) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["mine", "training.steps=3"], "training.steps: is no setting of a measurement"),
        (["mine", "perturbation.norm=foo"], "perturbation.norm: must be one of entrywise, spectral"),
        (["mine", "perturbation.error=exact", "~task.horizon"], "task.horizon: is no setting of a measurement"),
        (["mine", "~perturbation.norm"], "perturbation.norm: cannot be removed from a stored study"),
        (["mine", "name=-rf"], "name: must not begin with a hyphen"),
        (["mine", "perturbation=3"], "perturbation: must be a mapping of fields"),
        (["yours", "perturbation.norm=entrywise"], "there are no results of a study 'yours'"),
        (["perturbation.norm=entrywise"], "takes one study, got none"),
    ],
)
def test_what_is_no_measurement_is_refused(
    words: list[str], told: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(place, "measure", *words, "--inline") in (1, 2)
    assert told in capsys.readouterr().err
    assert sorted(path.name for path in (place / "results").iterdir() if path.name.startswith("yours")) == []


@pytest.mark.more
def test_a_study_says_which_of_several_weights_in_a_file_it_takes(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, both = tmp_path / "out.safetensors", tmp_path / "both.pt"
    assert run(place, "weights", "mine", "model.width=2", "--seed", "0", str(out)) == 0
    state = load_file(out)
    said = f"training.weights: {len(state)} tensors of both.pt below model; as many fit, and were not taken: ema: *"
    words = (str(place / "mine.yaml"), "model.width=2", f"training.weights={both}", "training.steps=0")
    for factor, told in ((2.0, said), (1.0, "")):
        torch.save({"model": state, "ema": {name: factor * value for name, value in state.items()}}, both)
        for command in (("plan", *words), ("sweep", *words, "--inline", f"name=of_{factor:g}")):
            capsys.readouterr()
            assert run(place, *command) == 0
            printed = " ".join(capsys.readouterr().out.split())
            assert told in printed
            assert ("were not taken" in printed) == bool(told)


def test_a_study_that_kept_nothing_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bare.yaml").write_text(BASE + "keep: none\n")
    assert run(tmp_path, "sweep", str(tmp_path / "bare.yaml"), "--inline") == 0
    assert not (tmp_path / "results" / "bare" / "weights").exists()
    assert stored_plan(Store(tmp_path / "results" / "bare")).keep == "none"
    assert run(tmp_path, "measure", "bare", "perturbation.norm=entrywise") == 2
    assert "none of the 1 trials of 'bare' has stored weights that fit" in capsys.readouterr().err
    assert run(tmp_path, "weights", "bare", str(tmp_path / "out.safetensors"), "--seed", "0") == 4
    assert "were not kept (keep: none)" in capsys.readouterr().err
    assert run(tmp_path, "plan", str(tmp_path / "bare.yaml"), "keep=some") == 2
    assert "keep: must be one of none, weights" in capsys.readouterr().err


SMALL = (
    *("task.horizon=8", "model.width=3", "training.validation_size=16", "perturbation.balls=[all]", "--inline"),
    *(
        "perturbation.radii.count=2",
        "perturbation.starts=0",
        "perturbation.ascent_steps=1",
        "perturbation.test_size=16",
    ),
)


@pytest.mark.more
def test_a_checkpoint_is_measured_as_it_is_and_another_under_its_name_is_another_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memsweep.learning.loop._step", None)  # a training step fails
    monkeypatch.chdir(tmp_path)
    nets = ROOT / "tests" / "support" / "nets" / "min_gru.py"
    words = ("measure", "--factory", f"{nets}:MinGRU", "--weights", "ckpt.pt", "--task", "linear_functional", *SMALL)
    module = resolve(f"{nets}:MinGRU").build(Signature(1, 1, 8), 3)
    told = []
    for factor in (1.0, 0.5, 1.0):
        torch.save({"state_dict": {name: factor * value for name, value in module.state_dict().items()}}, "ckpt.pt")
        assert run(tmp_path, *words) == 0
        told.append(capsys.readouterr().out)
    errors = [next(line for line in text.splitlines() if line.startswith("error ")) for text in told]
    assert errors[0] == errors[2] != errors[1]
    assert "1 done, nothing to run" in told[2]
    assert "Trained on: nothing (0 steps, the weights of ckpt.pt)." in told[0]
    assert "perturbation error, ball all: 0: " in told[0]
    assert "radius when all weights move (ball all, norm spectral): " in told[0]
    assert "memory function by lag: 63 % of its weight within" in told[0]
    assert "To decide" not in told[0]
    assert "no verdict, and no trials to decide it: a file of weights (training.weights) has one width" in told[0]
    assert "no longer in the report" not in told[0]
    other = "of an earlier measurement of this name, whose results stay. To keep both reports, name one of them"
    assert all(other in " ".join(text.split()) for text in told[1:])
    assert run(tmp_path, *words, "task.horizon=5") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 trial of an earlier measurement of this name, whose results stay. To have all in one report" in said
    assert "write task.horizon=8,5. To keep both reports, name one of them (name=...)." in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--factory", "x:Y", "--task", "linear_functional"], "--weights is missing"),
        (["mine", "--model", "lru", "--task", "linear_functional", "--weights", "w"], "a study (mine) is another"),
        (["--model", "lru", "--task", "linear_functional", "--weights", "absent.pt"], "there is no such file"),
        (["--model", "lru", "--task", "linear_functional", "--weights", __file__], "neither safetensors"),
        (
            ["--model", "lru", "--task", "linear_functional", "--weights", __file__, "training.steps=9"],
            "trains nothing",
        ),
    ],
)
def test_what_is_no_checkpoint_is_refused(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "measure", *words) in (1, 2)
    assert told in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
