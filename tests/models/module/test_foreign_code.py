"""Wherever code of others is called, its fault is one sentence with its file and line; no command shows a traceback."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from memsweep import registry
from memsweep.cli import main

NET = """
import torch
from torch import nn

PLACE = {place!r}


def fault(place):
    if place == PLACE:
        raise {error}


fault("import")


class Back(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        fault("backward")
        return gradient


class Net(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        fault("constructor")
        self.rnn = nn.GRU(inputs, width, batch_first=True)
        self.head = nn.Linear(width, outputs)
        self.head.weight.register_hook(lambda gradient: fault("parameter hook"))

    def forward(self, x):
        fault("forward")
        fault("training" if self.training else "evaluation")
        return Back.apply(self.head(self.rnn(x)[0]))

    def train(self, mode=True):
        fault("train()")
        return super().train(mode)

    def named_buffers(self, *args, **options):
        fault("buffers")
        return super().named_buffers(*args, **options)

    def state_dict(self, *args, **options):
        fault("state_dict")
        return super().state_dict(*args, **options)

    @property
    def step(self):
        fault("step")
        return None
"""
PLACES = (
    *("import", "constructor", "forward", "training", "evaluation", "backward", "parameter hook"),
    *("train()", "buffers", "state_dict", "step"),
)
STUDY = """
name: faulty
task: {{name: linear_functional, kernel: exponential, horizon: 6}}
model: {{name: module, factory: "{factory}", width: 3}}
training: {{seeds: 1, steps: 2, batch_size: 4, validation_size: 4}}
perturbation: {{balls: [all], radii: {{count: 2}}, starts: 0, ascent_steps: 1, test_size: 4}}
"""
SIZES = ("--width", "3", "--horizon", "6", "--inputs", "1", "--outputs", "1")
NOT_CALLED = {"describe": {"step"}}
"""Methods that a verb has no reason to call."""


def words_of(verb: str, folder: Path, factory: str) -> list[str]:
    if verb in ("plan", "sweep"):
        (folder / "faulty.yaml").write_text(STUDY.format(factory=factory))
        return [verb, str(folder / "faulty.yaml"), *(["--inline"] if verb == "sweep" else ["--no-probe"])]
    if verb == "measure":
        (folder / "w.pt").write_bytes(b"none")
        sizes = ("--task", "linear_functional", "model.width=3", "task.horizon=6", "perturbation.balls=[all]")
        return [verb, "--factory", factory, "--weights", str(folder / "w.pt"), *sizes]
    return [verb, factory, *SIZES, *(["--seconds", "0.1"] if verb == "audit" else [])]


@pytest.mark.parametrize("verb", ["describe", "plan", "sweep", "audit", "measure"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("error", ["RuntimeError('of mine')", "SystemExit('of mine')", "Silent()"])
def test_a_fault_of_a_module_is_a_sentence_with_its_line(
    verb: str, place: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = NET.format(place=place, error=error)
    if error == "Silent()":  # an error whose own text cannot be had
        text += "\n\nclass Silent(Exception):\n    def __str__(self):\n        raise ValueError\n"
        if place == "import":
            pytest.skip("the class is not there yet")
    file = tmp_path / f"net_{abs(hash((verb, place, error)))}.py"
    file.write_text(text)
    words = words_of(verb, tmp_path, f"{file}:Net")
    places = [] if verb == "audit" else ["--workspace", str(tmp_path)]
    places += ["--results", str(tmp_path / "results")] if verb in ("plan", "sweep", "measure") else []
    code = main([*words, *places, "--json"])
    out, told = capsys.readouterr()
    assert "Traceback" not in told + out
    assert json.loads(out)["exit_code"] == code
    if place not in NOT_CALLED.get(verb, ()):
        line = next(number for number, each in enumerate(text.splitlines(), 1) if each.strip() == f"raise {error}")
        assert ("its text cannot be had" if error == "Silent()" else f"({file.name}, line {line})") in told + out
        assert code in ((0, 1, 2, 3) if verb == "audit" else (2,))


TASK = """
from dataclasses import dataclass
from memsweep.data.api import Task
from memsweep.registry import register_task


@register_task("{name}")
class Mine(Task):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        def problems(self):
            {problems}
            return []

    def __init__(self, config):
        {constructor}
        super().__init__(config)

    @property
    def horizon(self):
        {horizon}
        return 6

    def draw(self, stream, index, size):
        raise NotImplementedError

    def loss(self, outputs, batch):
        raise NotImplementedError

    def chance(self):
        return 1.0

    def oracle(self, batch):
        raise NotImplementedError
"""


@pytest.mark.parametrize("verb", ["plan", "sweep"])
@pytest.mark.parametrize("place", ["problems", "constructor", "horizon"])
def test_a_fault_of_a_task_is_a_sentence_with_its_line(
    verb: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.get(registry.MODEL, "vanilla_rnn")  # imported once a process: one that the copy alone has is lost
    monkeypatch.setattr(registry, "_parts", {kind: dict(parts) for kind, parts in registry._parts.items()})
    places = dict.fromkeys(("problems", "constructor", "horizon"), "pass") | {place: "raise RuntimeError('of mine')"}
    name = f"mine_{verb}_{place}"
    text = TASK.format(name=name, **places)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / f"{name}.py").write_text(text)
    (tmp_path / "faulty.yaml").write_text(f"task: {name}\nmodel: vanilla_rnn\ntraining: {{steps: 2}}\n")
    words = [verb, str(tmp_path / "faulty.yaml"), "--workspace", str(tmp_path), "--results", str(tmp_path / "r")]
    assert main([*words, "--json", *(["--inline"] if verb == "sweep" else ["--no-probe"])]) == 2
    out, told = capsys.readouterr()
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "raise RuntimeError" in each)
    assert f"RuntimeError ({name}.py, line {line}): of mine" in told
    assert "Traceback" not in told
    assert json.loads(out)["exit_code"] == 2


@pytest.fixture(autouse=True)
def path_as_before() -> object:
    before = list(sys.path)
    yield
    sys.path[:] = before
