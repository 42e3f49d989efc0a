"""A minGRU as a user writes it: plain torch, a loop over time."""

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.gate = nn.Linear(features, width)
        self.candidate = nn.Linear(features, width)

    def forward(self, x):
        z, candidate = torch.sigmoid(self.gate(x)), self.candidate(x)
        h, states = torch.zeros_like(z[:, 0]), []
        for t in range(x.shape[1]):
            h = (1 - z[:, t]) * h + z[:, t] * candidate[:, t]
            states.append(h)
        return torch.stack(states, 1)


class MinGRU(nn.Module):
    def __init__(self, inputs, outputs, width, layers=1):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width if index else inputs, width) for index in range(layers))
        self.readout = nn.Linear(width, outputs)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.readout(x)
