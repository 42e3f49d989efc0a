"""The influence of parameters over time: growth with the lag, and the groups of the optimizer by pattern."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path

import pytest

from memsweep import registry
from memsweep.cli import main
from memsweep.models.base import Group, Signature
from memsweep.models.module.anatomy import anatomy
from memsweep.models.module.config import ModuleConfig
from memsweep.models.module.influence import CARRIED, carried_over_time
from memsweep.sweep.planning.fingerprint import CONDITIONAL
from memsweep.sweep.planning.statements import _BRANCHES

RATES = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.encoder = nn.Linear(inputs, width, bias=False)
        self.pace = nn.Parameter(torch.rand(width) * 3 - 4)
        self.pace._optim = {"lr": 0.001, "weight_decay": 0.0}
        self.gamma_log = nn.Parameter(torch.zeros(width))
        self.readout = nn.Linear(width, outputs, bias=False)

    def forward(self, x):
        decay, h, states = torch.exp(-self.pace.exp()), 0, []
        for t in range(x.shape[1]):
            h = decay * h + self.gamma_log.exp() * self.encoder(x[:, t])
            states.append(h)
        return self.readout(torch.stack(states, 1))
"""
SIZES = Signature(2, 2, 32)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleConfig:
    (tmp_path / "rates.py").write_text(textwrap.dedent(RATES))
    monkeypatch.chdir(tmp_path)
    registry.discover(tmp_path)
    return ModuleConfig(factory="rates:Net", width=4)


def test_a_parameter_of_the_decay_grows_and_one_that_acts_once_does_not(config: ModuleConfig) -> None:
    growth = carried_over_time(config, SIZES)
    assert growth["pace"] > 10 * CARRIED
    assert all(0.3 < growth[name] < CARRIED for name in ("encoder.weight", "gamma_log", "readout.weight"))


def test_describe_shows_the_number_and_advises(config: ModuleConfig, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "rates:Net", "--width", "4"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert 'write model.roles.recurrent: ["pace"]' in said
    assert "growth 1.0" in said
    assert "_optim: pace learning_rate 0.001 and weight_decay 0" in said


READS = RATES.replace(
    "self.readout = nn.Linear(width, outputs, bias=False)", "self.read = nn.Parameter(torch.randn(width, outputs))"
)
READS = READS.replace("self.readout(torch.stack(states, 1))", "torch.stack(states, 1) @ self.read")


def test_describe_says_which_guess_of_a_recurrence_acts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reads.py").write_text(textwrap.dedent(READS))
    monkeypatch.chdir(tmp_path)
    registry.discover(tmp_path)
    words = ["describe", "reads:Net", "--width", "4"]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "read is recurrent by a guess, and the effect does not grow with the lag (growth), as that of what" in said
    assert 'write model.roles.encoder or model.roles.readout: ["read"]' in said
    assert main([*words, 'roles.readout=["read"]']) == 0
    assert "acts once" not in capsys.readouterr().out


def test_patterns_put_parameters_into_groups_of_the_optimizer(config: ModuleConfig) -> None:
    asked = dataclasses.replace(config, recurrent_group=("pa*",), input_group=("encoder.*",))
    groups = {each.name: each.role.group for each in anatomy(asked, SIZES).tensors}
    assert groups["pace"] is Group.RECURRENT
    assert groups["encoder.weight"] is Group.INPUT
    assert groups["readout.weight"] is Group.REST
    assert {each.role.group for each in anatomy(config, SIZES).tensors} == {Group.REST}
    assert "asks_groups" in _BRANCHES
    assert "memsweep.models.module.config.asks_groups" in CONDITIONAL, "trials without groups keep their identity"
