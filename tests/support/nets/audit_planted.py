"""Small recurrent modules, each with one fault that its outputs alone do not show, or show late."""

import torch
from torch import nn


class Gru(nn.Module):
    """Torch's own layer with a readout; nothing wrong."""

    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.gru = nn.GRU(inputs, width, batch_first=True)
        self.readout = nn.Linear(width, outputs)

    def states(self, x):
        return self.gru(x)[0]

    def forward(self, x):
        return self.readout(self.states(x))


class LeaksBehind200(Gru):
    """From step 200 on, an output sees later states."""

    def states(self, x):
        h = super().states(x).clone()
        if x.shape[1] > 200:
            h[:, 200:] = h[:, 200:] + 0.3 * h[:, 200:].flip(1)
        return h


class LeaksAtBorders(Gru):
    """The last step of a chunk sees the first one of the next."""

    def __init__(self, inputs, outputs, width, border):
        super().__init__(inputs, outputs, width)
        self.border = border

    def states(self, x):
        h = super().states(x)
        steps = torch.tensor(range(self.border, x.shape[1], self.border), dtype=torch.long)
        return h.index_add(1, steps - 1, 0.1 * h[:, steps])


class LeaksALittleInSingle(Gru):
    """States are kept in float32, and each sees a small part of the next."""

    def states(self, x):
        h = super().states(x).float()
        return torch.cat([h[:, :-1] + 3e-4 * h[:, 1:], h[:, -1:]], 1).to(x)


class Scanned(nn.Module):
    """h_t = a h_(t-1) + W x_t; nothing wrong."""

    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.enter = nn.Linear(inputs, width)
        self.keep = nn.Parameter(torch.linspace(1.0, 3.0, width))
        self.readout = nn.Linear(width, outputs)

    def carried(self, h, t):
        return h

    def driven(self, x):
        return self.enter(x)

    def forward(self, x):
        a, driven = torch.sigmoid(self.keep), self.driven(x)
        h, states = torch.zeros_like(driven[:, 0]), []
        for t in range(x.shape[1]):
            h = a * self.carried(h, t) + driven[:, t]
            states.append(h)
        return self.readout(torch.tanh(torch.stack(states, 1)))


class DetachesItsState(Scanned):
    """The state is cut off from the gradient every 32 steps."""

    def carried(self, h, t):
        return h if t % 32 else h.detach()


class ClampsGradients(Scanned):
    """A hook clips what flows back through the state: right for the last steps alone."""

    def carried(self, h, t):
        if h.requires_grad:
            h.register_hook(lambda gradient: gradient.clamp(-0.5, 0.5))
        return h


class _Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 0.5 * gradient


class HalvesGradients(Scanned):
    """A backward function of its own that forgets a factor, by the input."""

    def driven(self, x):
        return self.enter(_Halved.apply(x))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight, torch.einsum("bto,bti->oi", gradient[:, :-1], x[:, :-1])


class ForgetsTheLastStep(Scanned):
    """A backward function of its own whose sum over time ends a step early, by the weight."""

    def driven(self, x):
        return _Product.apply(x, self.enter.weight) + self.enter.bias


class KeepsItsStateInTraining(Gru):
    """In training, the last state of a call is the first of the next."""

    def __init__(self, inputs, outputs, width):
        super().__init__(inputs, outputs, width)
        self.register_buffer("last", torch.zeros(1, 1, width))

    def states(self, x):
        if not self.training:
            return super().states(x)
        states, last = self.gru(x, self.last.expand(-1, len(x), -1).contiguous())
        self.last = last[:, :1].detach()
        return states


class Reseeds(Gru):
    """Every call drops the same units, and sets everybody's generator back."""

    def states(self, x):
        torch.manual_seed(0)
        return nn.functional.dropout(super().states(x), 0.2, self.training)


class TwoNames(Gru):
    """Both maps of the recurrence are one tensor."""

    def __init__(self, inputs, outputs, width):
        super().__init__(inputs, outputs, width)
        self.enter = nn.Linear(inputs, inputs)
        self.skip = nn.Linear(inputs, inputs)
        self.skip.weight = self.enter.weight

    def states(self, x):
        return super().states(self.skip(torch.tanh(self.enter(x))))


class SharesMemory(TwoNames):
    """Two weights over the same memory: a step of an optimizer moves it twice."""

    def __init__(self, inputs, outputs, width):
        super().__init__(inputs, outputs, width)
        self.skip.weight = nn.Parameter(self.enter.weight.detach())


class ClampsItsTable(Gru):
    """A table of 100 positions, whose last row serves for all later ones."""

    def __init__(self, inputs, outputs, width):
        super().__init__(inputs, outputs, width)
        self.positions = nn.Embedding(100, inputs)

    def states(self, x):
        at = torch.arange(x.shape[1], device=x.device).clamp(max=99)
        return super().states(x + self.positions(at))


class NeverForgets(Scanned):
    """A sum over all steps: no input makes it forget."""

    def forward(self, x):
        return self.readout(torch.cumsum(self.driven(x) * torch.sigmoid(self.keep), 1))


class DividesByTooLittle(Gru):
    """A norm whose 1e-8 is zero in float16."""

    def states(self, x):
        h = super().states(x)
        return h / (h.square().mean(-1, keepdim=True).sqrt() * x.abs().amax(-1, keepdim=True).clamp(max=1) + 1e-8)
