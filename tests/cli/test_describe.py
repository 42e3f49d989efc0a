"""``memsweep describe`` of a module of one's own: what a study would refuse is told, and in the exit code; slips."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsweep.cli import main

NETS = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.core, self.readout = nn.GRU(inputs, width, batch_first=True), nn.Linear(width, outputs)

    def forward(self, inputs):
        return self.readout(self.core(inputs)[0])


class Nothing(Net):
    def forward(self, inputs):
        return super().forward(inputs) * 0 / 0


class Overflows(Net):
    def forward(self, inputs):
        return torch.exp(1e4 * super().forward(inputs).abs())


class Root(Net):
    def forward(self, inputs):
        return super().forward(inputs.sqrt())


class Anticipates(Net):
    def forward(self, inputs):
        return super().forward(inputs.flip(1)).flip(1)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_nets.py").write_text(NETS)
    (tmp_path / "broken.py").write_text("import torch\n\n\ndef f(:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        ("Net", 0, ""),
        ("Nothing", 1, "gives outputs that are not finite, for random inputs of 32 steps, before any training."),
        ("Overflows", 1, "gives outputs that are not finite"),
        ("Root", 0, "not finite, for random inputs of 32 steps, before any training; for inputs from 0 to 1 they are"),
        ("Anticipates", 1, "is not causal"),
    ],
)
def test_a_refused_module_is_told_by_the_exit_code(
    folder: Path, name: str, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["describe", f"own_nets:{name}"]) == code
    assert sentence in " ".join(capsys.readouterr().out.split())


def test_a_study_refuses_outputs_that_are_not_finite(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decide", "own_nets:Nothing", "task.horizon=8", "--plan"]) == 2
    assert "gives outputs that are not finite" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("verb", ["describe", "plan", "decide"])
@pytest.mark.parametrize("name", ["own_nets", "own_nets.py"])
def test_a_file_without_its_class_is_told_the_classes(
    folder: Path, verb: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, name]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert told.endswith("A module is named with its class, such as own_nets:Net.")
    assert main([verb, "broken"]) == 2, "a file without a class of torch's is none"
    assert "is named with its class" not in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("verb", "name"), [("describe", "linear_functionl"), ("plan", "quickstrat")])
def test_a_near_name_is_told_without_all_others(
    folder: Path, verb: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, name]) == 2
    assert " ".join(capsys.readouterr().err.split()).endswith("?")


def test_a_field_of_what_is_no_module_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "linear_functional", "rate=2"]) == 2
    assert "rate=2 changes nothing of linear_functional" in " ".join(capsys.readouterr().err.split())


def test_a_memory_is_named_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["task.kernel=polynomial", "--kernel", "exponential", "--plan"]
    assert main(["decide", "own_nets:Net", *words]) == 2
    assert "kernel exponential and task.kernel=polynomial both name the memory" in capsys.readouterr().err


def test_a_memory_without_a_time_scale_needs_horizons(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decide", "own_nets:Net", "--kernel", "sine", "--plan"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert (
        "This one has none: within 4,096 steps it does not fall as fast as a power of -1/2. Name the horizons" in told
    )
