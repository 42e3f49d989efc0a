"""``memsweep measure --sequences``: which words it takes, and which files of weights fit a module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from memsweep.cli import main
from memsweep.cli.options import OPTIONS

QUICK = ("perturbation.test_size=4", "perturbation.ascent_steps=1", "perturbation.radii={from: 0.01, to: 1, count: 2}")
NETS = """
from torch import nn

class Tokens(nn.Module):
    def __init__(self, inputs, width=4):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(inputs, width), nn.GRU(width, width, batch_first=True)

    def forward(self, ids):
        return self.rnn(self.embedding(ids))[0]
"""
TOKENS = ("measure", "--factory", "token_nets:Tokens", "--weights", "tokens.pt", "--sequences", "ids.npy")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of ten ids, whose sequences show six of them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token_nets.py").write_text(NETS)
    np.save("ids.npy", np.random.default_rng(0).integers(0, 6, (4, 8)))
    layers = {"embedding": nn.Embedding(10, 4), "rnn": nn.GRU(4, 4)}
    torch.save(nn.ModuleDict(layers).state_dict(), "tokens.pt")
    return tmp_path


VALUES = {"--node": "cpus=1,price=1", "--nodes": "2", "--ray": "", "--address": "auto", "--results": "elsewhere"}
TAKEN = {"--factory", "--weights", "--sequences", "--reference", "--inputs", "--outputs", "--page", "--workspace"}
TAKEN |= {"--trust", "--inline", "--no-page", "overrides"}
REFUSED = [flag for flag, _ in OPTIONS["measure"] if flag not in TAKEN | {"--model", "--task"}]


@pytest.mark.parametrize("flag", REFUSED)
def test_what_a_measurement_would_ignore_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    monkeypatch.setenv("MEMSWEEP_NODE", "cpus=1,price=1")
    words = filter(None, (flag, VALUES.get(flag, "1")))
    assert main([*TOKENS, *words]) == 2
    assert f"leave out {flag}." in " ".join(capsys.readouterr().err.split())


def test_all_that_is_wrong_is_told_at_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--max-hours", "1", "--ray", "--results", "elsewhere", "--outputs", "3", "model.width=4")
    assert main(["measure", "--factory", "hf:any", "--sequences", "ids.npy", *words]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "3 problems" in told
    for said in ("--ray, --max-hours", "leave out --results", "leave out --outputs, model.width=4"):
        assert said in told


@pytest.mark.parametrize("flag", ["--inputs", "--outputs"])
def test_sizes_beside_a_study_are_refused(place: Path, capsys: pytest.CaptureFixture[str], flag: str) -> None:
    assert main(["measure", "quickstart", flag, "3"]) == 2
    assert f"{flag} is of --sequences alone" in capsys.readouterr().err


def test_a_module_may_know_more_ids_than_the_sequences_show(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TOKENS]) == 2
    assert "measure: model.width=, --inputs, --outputs" in " ".join(capsys.readouterr().err.split())
    assert main([*TOKENS, "--inputs", "5"]) == 2
    assert "--inputs 5: the sequences have ids up to 5" in capsys.readouterr().err
    assert main([*TOKENS, "--inputs", "10", *QUICK]) == 0


def test_the_size_of_numbers_is_that_of_the_sequences(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.zeros((4, 8, 2)))
    assert main(["measure", "--factory", "torch.nn:GRU", "--sequences", "x.npy", "--inputs", "3"]) == 2
    assert "--inputs 3: the inputs of the sequences have the size 2" in capsys.readouterr().err
