"""The influence of parameters over time: growth with the lag, the roles that it decides, and groups by pattern."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path

import pytest

from memsweep import registry
from memsweep.cli import main
from memsweep.config.schema.canonical import trial_from_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.models.base import Group, Part, Signature
from memsweep.models.module.anatomy import anatomy, build_module
from memsweep.models.module.config import ModuleConfig, RolesConfig
from memsweep.models.module.influence import CARRIED, carried_over_time
from memsweep.models.module.model import Module
from memsweep.sweep.planning.fingerprint import CONDITIONAL, code_closure
from memsweep.sweep.planning.sources.statements import _BRANCHES

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


def write(folder: Path, monkeypatch: pytest.MonkeyPatch, **modules: str) -> None:
    """A workspace with these modules, in which the test goes on."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.chdir(folder)
    registry.discover(folder)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleConfig:
    write(tmp_path, monkeypatch, rates=RATES)
    return ModuleConfig(factory="rates:Net", width=4)


def test_a_parameter_of_the_decay_grows_and_one_that_acts_once_does_not(config: ModuleConfig) -> None:
    growth = carried_over_time(config, SIZES, build_module)
    assert growth["pace"] > CARRIED
    assert all(0.5 < growth[name] < 1.5 for name in ("encoder.weight", "gamma_log", "readout.weight"))


def test_the_decay_is_recurrent_under_any_name_at_every_size_and_a_pattern_of_the_study_decides(
    config: ModuleConfig,
) -> None:
    for width, horizon in ((1, 2), (5, 40)):
        sized = dataclasses.replace(config, width=width)
        role = anatomy(sized, Signature(3, 1, horizon)).roles["pace"]
        assert (role.part, role.diagonal, role.from_influence) == (Part.RECURRENT, True, True)
    told = dataclasses.replace(config, roles=RolesConfig(gain=("pace",)))
    assert anatomy(told, SIZES).roles["pace"].part is Part.GAIN


def test_describe_and_plan_say_the_growth_and_what_it_decides(
    config: ModuleConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["describe", "rates:Net", "--width", "4"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "pace 4 recurrent its effect grows with the lag; growth" in said
    assert "_optim: pace learning_rate 0.001 and weight_decay 0" in said
    notes = [*Module.notes_of_code(trial(config.factory), "cpu")]
    assert "rates:Net: roles by measured influence, where names said another: pace recurrent" in notes


MODES = """
import torch
from torch import nn


class Modes(nn.Module):
    '''Modes in parallel cancel one another soon after a push; the slowest is left alone later.'''

    def __init__(self, inputs, outputs, width, bend=False):
        super().__init__()
        self.bend = bend
        self.decay = nn.Parameter(torch.linspace(0.3, 0.95, width))
        self.B = nn.Parameter(torch.ones(width, inputs))
        self.C = nn.Parameter(torch.ones(outputs, width) / width)

    def forward(self, x):
        h, states = x.new_zeros(len(x), len(self.decay)), []
        for t in range(x.shape[1]):
            h = self.decay * h + x[:, t] @ self.B.T
            states.append(h)
        outputs = torch.stack(states, 1) @ self.C.T
        return torch.tanh(outputs + 0.5) if self.bend else outputs


class Refusing(Modes):
    def forward(self, x):
        if self.B.max() > 1.2:
            raise ValueError("too large")
        return super().forward(x)
"""


def test_a_module_that_refuses_a_scaled_weight_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, monkeypatch, modes=MODES)
    growth = carried_over_time(trial("modes:Refusing").model, SIZES, build_module)
    assert growth["decay"] > CARRIED
    assert growth["B"] > CARRIED  # nobody knows better


@pytest.mark.parametrize("bend", [False, True])
def test_the_encoder_of_modes_in_parallel_acts_once(
    bend: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, monkeypatch, modes=MODES)
    config = trial("modes:Modes", arguments={"bend": bend}).model
    growth = carried_over_time(config, SIZES, build_module)
    assert growth["decay"] > CARRIED
    assert growth["B"] < CARRIED > growth["C"]
    parts = {name: role.part for name, role in anatomy(config, SIZES).roles.items()}
    assert parts == {"decay": Part.RECURRENT, "B": Part.ENCODER, "C": Part.READOUT}


MAPS = """
import torch
from torch import nn


class Maps(nn.Module):
    '''A recurrent matrix between two others that are named as it is; attention holds a memory, and carries nothing.'''

    def __init__(self, inputs, outputs, width, attends=False):
        super().__init__()
        self.attends, self.encoder = attends, nn.Linear(inputs, width)
        names = ("one", "two", "three")
        for name in names:
            self.register_parameter(name, nn.Parameter(torch.linalg.qr(torch.randn(width, width))[0]))
        self.readout = nn.Linear(width, outputs)

    def forward(self, x):
        u = self.encoder(x) @ self.one
        if self.attends:
            keys = (u @ self.two).transpose(1, 2)
            seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
            states = torch.softmax((u @ keys).masked_fill(~seen, -torch.inf), -1) @ u
        else:
            h, states = torch.zeros_like(u[:, 0]), []
            for each in u.unbind(1):
                h = torch.tanh(0.5 * h @ self.two) + each
                states.append(h)
            states = torch.stack(states, 1)
        return self.readout(states @ self.three)
"""


def test_a_map_that_acts_once_is_encoder_or_readout_where_something_else_is_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, monkeypatch, maps=MAPS)
    state = anatomy(ModuleConfig(factory="maps:Maps", width=4), SIZES).roles
    assert {name: str(state[name].part) for name in ("one", "two", "three")} == {
        "one": "encoder",
        "two": "recurrent",
        "three": "readout",
    }
    attention = anatomy(trial("maps:Maps", arguments={"attends": True}).model, SIZES).tensors
    assert {str(each.role.part) for each in attention if each.guessed and each.name in state} >= {"recurrent"}
    assert not any(each.role.from_influence for each in attention)


def trial(factory: str, **model: object) -> TrialConfig:
    given = {"name": "module", "factory": factory, "width": 4, **model}
    return trial_from_dict({"task": {"name": "copying_memory", "encoding": "one_hot"}, "model": given})


def test_trials_whose_roles_influence_does_not_change_keep_their_identity(config: ModuleConfig) -> None:
    reached = ("memsweep.models.module.influence", "by_influence")
    told = trial(config.factory, roles={"recurrent": ["pace"]})
    assert [reached in code_closure(each) for each in (trial(config.factory), told)] == [True, False]


def test_patterns_put_parameters_into_groups_of_the_optimizer(config: ModuleConfig) -> None:
    asked = dataclasses.replace(config, recurrent_group=("pa*",), input_group=("encoder.*",))
    groups = {each.name: each.role.group for each in anatomy(asked, SIZES).tensors}
    assert groups["pace"] is Group.RECURRENT
    assert groups["encoder.weight"] is Group.INPUT
    assert groups["readout.weight"] is Group.REST
    assert {each.role.group for each in anatomy(config, SIZES).tensors} == {Group.REST}
    assert "asks_groups" in _BRANCHES
    assert "memsweep.models.module.config.asks_groups" in CONDITIONAL, "trials without groups keep their identity"
