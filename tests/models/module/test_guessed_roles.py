"""The roles that names and places of parameters give, in the forms in which recurrent layers are written."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from memsweep import registry
from memsweep.models.base import Signature
from memsweep.models.module.anatomy import anatomy
from memsweep.models.module.config import ModuleConfig

NETS = """
import torch
from torch import nn


class Stepwise(nn.Module):
    '''An encoder, a cell and a readout that a loop calls, as an ODE-RNN has them.'''

    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.encoder, self.field = nn.Linear(inputs, width), nn.Linear(width, width)
        self.readout = nn.Linear(width, outputs)

    def forward(self, x):
        h, answers = x.new_zeros(len(x), self.field.in_features), []
        for t in range(x.shape[1]):
            h = torch.tanh(h + 0.5 * self.field(h) + self.encoder(x[:, t]))
            answers.append(self.readout(h))
        return torch.stack(answers, 1)


class FedBack(nn.Module):
    '''Its answer is its state: one map makes both.'''

    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.cell = nn.Linear(inputs + outputs, outputs)

    def forward(self, x):
        y, answers = x.new_zeros(len(x), self.cell.out_features), []
        for t in range(x.shape[1]):
            y = self.cell(torch.cat([x[:, t], y], 1))
            answers.append(y)
        return torch.stack(answers, 1)


class Turned(nn.Module):
    '''Convolutions over [batch, features, time], as a TCN has them.'''

    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.down = nn.Conv1d(inputs, width, 1)
        self.time = nn.Conv1d(width, width, 3)
        self.up = nn.Conv1d(width, outputs, 1)

    def forward(self, x):
        hidden = nn.functional.pad(self.down(x.transpose(1, 2)), (2, 0))
        return self.up(torch.tanh(self.time(hidden))).transpose(1, 2)


class LRU(nn.Module):
    '''The names of LRU, S4D, S5 and RG-LRU.'''

    def __init__(self, inputs, outputs, width):
        super().__init__()
        for name in ("nu_log", "log_dt", "log_step", "a_param", "recurrent_param", "gamma_log"):
            self.register_parameter(name, nn.Parameter(torch.zeros(width)))
        self.B, self.C = nn.Parameter(torch.ones(width, inputs)), nn.Parameter(torch.ones(outputs, width))
        self.D = nn.Parameter(torch.ones(outputs, inputs))

    def forward(self, x):
        rate = self.nu_log.exp() + self.log_dt.exp() + self.log_step.exp() + self.a_param.exp() + self.recurrent_param
        h, answers = 0, []
        for t in range(x.shape[1]):
            h = torch.exp(-rate) * h + self.gamma_log.exp() * (x[:, t] @ self.B.T)
            answers.append(h @ self.C.T + x[:, t] @ self.D.T)
        return torch.stack(answers, 1)


class RawCell(nn.Module):
    '''A cell without parts: its matrices are its own, and it reads a state, too.'''

    def __init__(self, inputs, width):
        super().__init__()
        self.W, self.U = nn.Parameter(torch.randn(width, inputs)), nn.Parameter(torch.eye(width) / 2)

    def forward(self, x, h):
        return torch.tanh(x @ self.W.T + h @ self.U.T)


class RawLayer(RawCell):
    def forward(self, x):
        h, answers = x.new_zeros(len(x), len(self.U)), []
        for each in x.unbind(1):
            h = super().forward(each, h)
            answers.append(h)
        return torch.stack(answers, 1)


class Custom(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.cell, self.layer = RawCell(inputs, width), RawLayer(inputs, width)
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        h, answers = x.new_zeros(len(x), len(self.cell.U)), []
        for each in x.unbind(1):
            h = self.cell(each, h)
            answers.append(h)
        return self.head(torch.stack(answers, 1) + self.layer(x))


class TimeFirst(nn.Module):
    '''[time, batch, features], which is the default of torch, and a head without an axis of time.'''

    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.down, self.up = nn.Linear(inputs, width), nn.Linear(width, outputs)
        self.rnn = nn.GRU(width, width, bias=False)

    def forward(self, x):
        states = self.rnn(self.down(x.transpose(0, 1)))[0].transpose(0, 1)
        return self.up(states.flatten(0, 1)).view(*x.shape[:2], -1)


class Zero(nn.Module):
    '''Branches that start at zero: each reads the very numbers of the inputs (ReZero), and answers as the last.'''

    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.one, self.two = nn.Linear(inputs, inputs), nn.Linear(inputs, inputs)
        self.scale = nn.Parameter(torch.zeros(2))
        self.up, self.beside = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)
        for each in (self.up, self.beside):
            nn.init.zeros_(each.weight), nn.init.zeros_(each.bias)

    def forward(self, x):
        for scale, part in zip(self.scale, (self.one, self.two)):
            x = x + scale * torch.tanh(part(x)).cumsum(1)
        return self.up(x) * (1 + self.beside(x))


class Tables(nn.Module):
    '''Time scales as S5 has them, and a D for each feature.'''

    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.down, self.up = nn.Linear(inputs, width), nn.Linear(width, outputs)
        self.log_step, self.D = nn.Parameter(torch.zeros(width, 1)), nn.Parameter(torch.ones(width))

    def forward(self, x):
        u, h, answers = self.down(x), 0, []
        for each in u.unbind(1):
            h = torch.exp(-self.log_step.exp()[:, 0]) * h + each
            answers.append(h + self.D * each)
        return self.up(torch.stack(answers, 1))
"""
RECURRENT = dict.fromkeys(("nu_log", "log_dt", "log_step", "a_param", "recurrent_param"), "recurrent")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Stepwise", {"encoder.weight": "encoder", "field.weight": "recurrent", "readout.weight": "readout"}),
        ("FedBack", {"cell.weight": "recurrent"}),
        ("Turned", {"down.weight": "encoder", "time.weight": "recurrent", "up.weight": "readout"}),
        ("LRU", {**RECURRENT, "gamma_log": "gain", "B": "encoder", "C": "readout", "D": "readout"}),
        ("Custom", dict.fromkeys(("cell.W", "cell.U", "layer.W", "layer.U"), "recurrent") | {"head.weight": "readout"}),
        (
            "TimeFirst",
            {"down.weight": "encoder", "up.weight": "readout"}
            | {"rnn.weight_ih_l0": "encoder", "rnn.weight_hh_l0": "recurrent"},
        ),
        (
            "Zero",
            {"one.weight": "encoder", "scale": "bias"}
            | dict.fromkeys(("two.weight", "up.weight", "beside.weight"), "recurrent"),
        ),
        ("Tables", {"down.weight": "encoder", "up.weight": "readout", "log_step": "recurrent", "D": "gain"}),
    ],
)
def test_a_guess_says_what_a_parameter_does(
    name: str, wanted: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guessed.py").write_text(textwrap.dedent(NETS))
    monkeypatch.chdir(tmp_path)
    registry.discover(tmp_path)
    for horizon in (2, 32):  # roles of one study are the same at every horizon of it
        roles = anatomy(ModuleConfig(factory=f"guessed:{name}", width=4), Signature(3, 2, horizon)).roles
        assert {own: str(role.part) for own, role in roles.items() if not own.endswith("bias")} == wanted
        assert all(role.diagonal for own, role in roles.items() if own == "log_step")
