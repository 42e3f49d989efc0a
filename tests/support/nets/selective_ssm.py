"""A selective state space model as a user writes it: plain torch, a loop over time, no outputs or inputs by name."""

import math

import torch
from torch import nn
from torch.nn import functional


class SelectiveSSM(nn.Module):
    def __init__(self, inputs, outputs, d_model, d_state=4):
        super().__init__()
        self.embed = nn.Linear(inputs, d_model)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, d_state + 1.0)).repeat(d_model, 1))
        self.D = nn.Parameter(torch.ones(d_model))
        self.step = nn.Linear(d_model, d_model)
        nn.init.uniform_(self.step.bias, math.log(0.01), math.log(0.5))
        self.choose = nn.Linear(d_model, 2 * d_state, bias=False)
        self.head = nn.Linear(d_model, outputs)

    def forward(self, x):
        u = functional.silu(self.embed(x))
        delta = functional.softplus(self.step(u))
        b, c = self.choose(u).chunk(2, -1)
        decay = torch.exp(-delta.unsqueeze(-1) * torch.exp(self.A_log))
        drive = (delta * u).unsqueeze(-1) * b.unsqueeze(-2)
        h, answers = torch.zeros_like(drive[:, 0]), []
        for t in range(x.shape[1]):
            h = decay[:, t] * h + drive[:, t]
            answers.append((h * c[:, t].unsqueeze(-2)).sum(-1))
        return self.head(torch.stack(answers, 1) + self.D * u)
