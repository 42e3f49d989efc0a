"""A selective recurrence with its step form and its decay, as a user writes it, and variants with one fault each."""

import torch
from torch import nn
from torch.nn import functional


class Selective(nn.Module):
    """h_t = a(x_t) h_(t-1) + (1 - a(0)) b(x_t): computed by a scan, or step by step."""

    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.gate = nn.Linear(inputs, width)
        self.drive = nn.Linear(inputs, width)
        self.readout = nn.Linear(width, outputs)
        nn.init.uniform_(self.gate.bias, 1.0, 3.0)

    def decay(self, x):
        return torch.sigmoid(self.gate(x))

    def factors(self, x):
        """The factors that the scan uses: as declared, where nothing is wrong."""
        return self.decay(x)

    def scan(self, a, b):
        shift = 1
        while shift < a.shape[1]:
            b = torch.cat([b[:, :shift], b[:, shift:] + a[:, shift:] * b[:, :-shift]], 1)
            a = torch.cat([a[:, :shift], a[:, shift:] * a[:, :-shift]], 1)
            shift *= 2
        return b

    def forward(self, x):
        return self.readout(self.scan(self.factors(x), self.drive(x)))

    def step(self, x, state):
        driven = self.drive(x)
        state = driven if state is None else self.factors(x) * state + driven
        return self.readout(state), state


class Squashes(Selective):
    """States that a held input drives to where tanh is flat: what they hold can hardly be seen. Nothing is wrong."""

    def forward(self, x):
        return self.readout(torch.tanh(self.scan(self.factors(x), self.drive(x))))

    def step(self, x, state):
        driven = self.drive(x)
        state = driven if state is None else self.factors(x) * state + driven
        return self.readout(torch.tanh(state)), state


class IgnoresItsInput(Selective):
    """The order of negation and clamp: the rate is the floor, whatever the gate says. It declares what was meant."""

    floor = 0.05

    def decay(self, x):
        return torch.exp((-functional.softplus(-self.gate(x))).clamp(max=-self.floor))

    def factors(self, x):
        return torch.exp(-functional.softplus(-self.gate(x)).clamp(max=self.floor, min=self.floor))


class DeclaresNothing(IgnoresItsInput):
    """The same fault without a declaration: what remains is a gate that nothing depends on."""

    decay = None


class DeclaresOneDecay(IgnoresItsInput):
    """The same fault, and it declares what it computes."""

    def decay(self, x):
        return self.factors(x)


class OffAtOne(Selective):
    """The scan keeps away from 1, so that nothing is held for ever; the step form is right."""

    def forward(self, x):
        return self.readout(self.scan(self.factors(x).clamp(max=0.99), self.drive(x)))


class NeverReachesOne(Selective):
    """Both forms keep away from 1: only what is declared says that something else was meant."""

    def factors(self, x):
        return self.decay(x).clamp(max=0.99)


class SquashesWithoutSteps(Squashes):
    """No states to look at: what the readout hides stays hidden."""

    step = None


class ForgetsAtChunks(Selective):
    """A scan in chunks of 32 that starts each one from zero."""

    def scan(self, a, b):
        chunks = zip(a.split(32, 1), b.split(32, 1), strict=True)
        return torch.cat([super(ForgetsAtChunks, self).scan(*each) for each in chunks], 1)

    def forward(self, x):
        return super().forward(x)


class DividesByProducts(Selective):
    """h_t = A_t (b_0 / A_0 + ... + b_t / A_t): right on paper, and 0 / 0 where the products are no longer numbers."""

    def forward(self, x):
        products = torch.cumprod(self.factors(x), 1)
        return self.readout(products * torch.cumsum(self.drive(x) / products, 1))


class HasModes(Selective):
    """Both forms in one forward, chosen by an attribute; the one in chunks hands a little less over."""

    step = None

    def __init__(self, inputs, outputs, width, handed_over=0.999):
        super().__init__(inputs, outputs, width)
        self.mode, self.handed_over = "chunk", handed_over

    def forward(self, x):
        size, share = (32, self.handed_over) if self.mode == "chunk" else (1, 1.0)
        carried, states = 0.0, []
        for a, b in zip(self.factors(x).split(size, 1), self.drive(x).split(size, 1), strict=True):
            b = torch.cat([b[:, :1] + share * a[:, :1] * carried, b[:, 1:]], 1)
            states.append(self.scan(a, b))
            carried = states[-1][:, -1:]
        return self.readout(torch.cat(states, 1))
