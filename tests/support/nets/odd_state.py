"""A module whose state dict is more than its parameters: tied, complex and single numbers, buffers of all kinds."""

import torch
from torch import nn


class Odd(nn.Module):
    def __init__(self, inputs, outputs, width, horizon):
        super().__init__()
        self.encoder = nn.Linear(inputs, width)
        self.norm = nn.BatchNorm1d(width)
        self.rates = nn.Parameter(torch.randn(width, dtype=torch.cfloat) * 0.1)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.mix = nn.Linear(width, width, bias=False)
        self.again = self.mix
        self.readout = nn.Linear(width, outputs)
        self.register_buffer("positions", torch.linspace(0.0, 1.0, horizon).unsqueeze(-1))

    def forward(self, x):
        u = self.norm(self.encoder(x).transpose(1, 2)).transpose(1, 2) + self.positions[: x.shape[1]]
        h, states = torch.zeros_like(u[:, 0]) + 0 * self.rates, []
        for t in range(x.shape[1]):
            h = self.rates * h + u[:, t]
            states.append(h.real)
        return self.readout(self.again(self.mix(torch.stack(states, 1)))) * self.scale


class OddNames(nn.Module):
    """Its sizes have names of its author's own."""

    def __init__(self, n_in, n_hid, n_out):
        super().__init__()
        self.rnn, self.head = nn.GRU(n_in, n_hid, batch_first=True), nn.Linear(n_hid, n_out)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


class WithLayers(OddNames):
    """Its width is not the first hidden thing among its arguments."""

    def __init__(self, n_in, hidden_layers, hidden_dim):
        super().__init__(n_in, hidden_dim, hidden_layers)
