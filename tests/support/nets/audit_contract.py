"""Recurrent modules as users write them, each with one fault in its contract or its arithmetic."""

import torch
from torch import nn


class Leaky(nn.Module):
    """h_t = a h_(t-1) + W x_t, in a loop; nothing wrong."""

    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.enter = nn.Linear(inputs, width)
        self.keep = nn.Parameter(torch.linspace(1.0, 3.0, width))
        self.readout = nn.Linear(width, outputs)

    def states(self, x):
        a, driven = torch.sigmoid(self.keep), self.enter(x)
        h, states = torch.zeros_like(driven[:, 0]), []
        for t in range(x.shape[1]):
            h = a * h + driven[:, t]
            states.append(h)
        return torch.stack(states, 1)

    def forward(self, x):
        return self.readout(torch.tanh(self.states(x)))


class SeesTheMean(Leaky):
    """Centred over time: the mean of the whole sequence is in every output."""

    def forward(self, x):
        states = self.states(x)
        return self.readout(torch.tanh(states - states.mean(1, keepdim=True)))


class SeesTheNext(Leaky):
    """A convolution with as much padding behind as before."""

    def __init__(self, inputs, outputs, width):
        super().__init__(inputs, outputs, width)
        self.mix = nn.Conv1d(inputs, inputs, 3, padding=1)

    def forward(self, x):
        return super().forward(self.mix(x.transpose(1, 2)).transpose(1, 2))


class MixesTheBatch(Leaky):
    """Centred over the batch."""

    def forward(self, x):
        states = self.states(x)
        return self.readout(torch.tanh(states - states.mean(0, keepdim=True)))


class ReadsTimeFirst(Leaky):
    """Takes the batch for the time, as torch's own layers do without batch_first."""

    def forward(self, x):
        return super().forward(x.transpose(0, 1)).transpose(0, 1)


class KeepsDropping(Leaky):
    """Dropout that nobody turns off."""

    def forward(self, x):
        return self.readout(nn.functional.dropout(torch.tanh(self.states(x)), 0.1))


class KeepsItsState(Leaky):
    """The last state of a call is the first of the next."""

    def __init__(self, inputs, outputs, width):
        super().__init__(inputs, outputs, width)
        self.register_buffer("last", torch.zeros(width))

    def forward(self, x):
        states = self.states(x) + self.last
        self.last = states[0, -1].detach()
        return self.readout(torch.tanh(states))


class OverwritesItsInputs(Leaky):
    """Positions are added to the tensor that it is given."""

    def forward(self, x):
        x += torch.arange(x.shape[1], dtype=x.dtype)[:, None] / x.shape[1]
        return super().forward(x)


class SqueezesOne(Leaky):
    """A batch of one loses a dimension."""

    def forward(self, x):
        return super().forward(x).squeeze(0)


class HalfState(Leaky):
    """The state is kept in bfloat16, in whatever precision the module runs."""

    def states(self, x):
        a, driven = torch.sigmoid(self.keep), self.enter(x)
        h, states = torch.zeros_like(driven[:, 0], dtype=torch.bfloat16), []
        for t in range(x.shape[1]):
            h = (a * h + driven[:, t]).to(torch.bfloat16)
            states.append(h.to(driven.dtype))
        return torch.stack(states, 1)


class ZeroWeights(Leaky):
    """A weight that was never drawn: no input reaches the states."""

    def __init__(self, inputs, outputs, width):
        super().__init__(inputs, outputs, width)
        self.skip = nn.Linear(inputs, outputs)
        self.mix = nn.Parameter(torch.zeros(width, width))

    def forward(self, x):
        return self.readout(torch.tanh(self.states(x) @ self.mix)) + self.skip(x)


class Grows(Leaky):
    """A weight of each step that grows without end."""

    def states(self, x):
        states = super().states(x)
        return states + 0 * torch.cumsum(x.abs().mean(-1, keepdim=True) + 1.0, 1).exp()


class NormWithoutEpsilon(Leaky):
    """A norm whose derivative at zero does not exist."""

    def forward(self, x):
        squares = (x @ self.enter.weight.T).square()
        return self.readout(torch.tanh(self.states(x))) + squares.sum(-1, keepdim=True).sqrt()
