"""A report says which roles were guessed: a ball of its verdicts moves weights by their roles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

import memsweep as ms
from engine import trial
from memsweep import registry
from memsweep.cli import main
from memsweep.models.module.factory import resolve
from memsweep.report.naming.guesses import guessed_roles
from memsweep.sweep.worker.provenance import of_trial

MIXERS = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gate = nn.Linear(features, features)
        self.still = nn.Parameter(torch.ones(features, features), requires_grad=False)

    def forward(self, x):
        return torch.cumsum(torch.sigmoid(self.gate(x @ self.still)) * x, 1) / x.shape[1]


class Other(Layer):
    pass


class Whole(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.layer = Layer(width)
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        return self.head(self.layer(self.first(x)))
"""
STUDY: dict[str, Any] = {
    "name": "guesses",
    "task": {"name": "linear_functional", "horizon": 6, "kernel": "exponential"},
    "training": {"seeds": 2, "steps": 4, "validate_every": 4},
    "perturbation": {
        "balls": ["recurrent"],
        "radii": {"from": 0.1, "to": 1.0, "count": 2},
        "starts": 0,
        "ascent_steps": 1,
    },
}
MODULE = {"name": "module", "factory": "mixers:Whole", "width": 3}
STACK = {"name": "residual_stack", "width": 3, "features": 3}


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (MODULE, "mixers:Whole are guessed, {why} (encoder: first.weight; recurrent: layer.still, layer.gate.weight)."),
        (STACK | {"unit": {"factory": "mixers:Layer"}}, "mixers:Layer are guessed, {why} (recurrent: gate.weight)."),
        (
            STACK | {"layers": 2, "units": [{"factory": "mixers:Layer"}, {"factory": "mixers:Other"}]},
            "mixers:Layer, mixers:Other are guessed, {why} (recurrent: gate.weight of mixers:Layer, gate.weight of "
            "mixers:Other).",
        ),
    ],
    ids=["module", "unit", "units"],
)
def test_report_and_page_say_which_roles_are_guessed(
    model: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mixers.py").write_text(MIXERS)
    monkeypatch.chdir(tmp_path)
    said = said.format(why="and balls move weights by their roles")
    results = ms.sweep(STUDY | {"model": model}, inline=True, progress=False)
    assert said in " ".join(str(results).split())
    assert said in (tmp_path / "results" / "guesses" / "report" / "index.html").read_text(encoding="utf-8")


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[nn.Module]:
    """A class whose roles are guessed, in a folder with sequences and weights for it."""
    (tmp_path / "mixers.py").write_text(MIXERS)
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).standard_normal((4, 6, 1)))
    made: Any = resolve("mixers:Whole", [tmp_path]).make
    torch.save(made(1, 1, 3).state_dict(), "w.pt")
    return cast("type[nn.Module]", made)


GUESSES = (
    "are guessed, and balls move weights by their roles (encoder: first.weight; recurrent: layer.still, layer.gate"
)
QUICK = (
    "perturbation.radii={from: 0.1, to: 1, count: 2}",
    "perturbation.ascent_steps=1",
    "perturbation.roundings=[]",
    "perturbation.test_size=4",
)
TASK = ("task.horizon=6", *QUICK, "perturbation.balls=[recurrent]")


def test_a_measurement_in_memory_says_which_roles_are_guessed(whole: type[nn.Module]) -> None:
    for found in (
        ms.measure(whole(1, 1, 3), *QUICK, sequences=np.load("x.npy")),
        ms.measure(whole(1, 1, 3), "linear_functional", *TASK),
        ms.measure(whole, "linear_functional", "model.width=3", *TASK),
    ):
        assert GUESSES in " ".join(str(found).split())
        assert GUESSES in found.page().text


COMMAND = ("measure", "--factory", "mixers:Whole", "--weights", "w.pt", "model.width=3")


def test_a_measurement_of_a_file_says_which_roles_are_guessed(
    whole: type[nn.Module], capsys: pytest.CaptureFixture[str]
) -> None:
    on_sequences = (*COMMAND, "--sequences", "x.npy", *QUICK)
    assert main([*on_sequences, "--page", "p.html"]) == 0
    assert GUESSES in " ".join(capsys.readouterr().out.split())
    assert GUESSES in Path("p.html").read_text(encoding="utf-8")
    on_a_task = (*COMMAND, "--task", "linear_functional", *TASK, "--inline", "--no-page")
    for command in (on_sequences, on_a_task):
        assert main([*command, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        (sentence,) = told["measured"][0]["guesses"]
        assert GUESSES in sentence
        assert told["report"] is None or told["report"]["guesses"] == [sentence]


def test_roles_that_cannot_be_told_cost_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    config = trial()
    model = registry.get(registry.MODEL, config.model.name)
    monkeypatch.setattr(model, "guessed_roles", classmethod(lambda cls, trial: {}[trial]))
    assert "guessed_roles" not in of_trial(config)


def test_known_roles_and_results_of_before_are_no_news() -> None:
    assert guessed_roles([{"config": {"model": {"name": "vanilla_rnn"}}, "provenance": {"pack": "a"}}]) == []
