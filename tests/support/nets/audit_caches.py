"""Recurrent modules that carry a state from call to call, by the customs of several libraries, with one fault or none.

Each has a short convolution in front of its recurrence, as Mamba has, and the argument ``fault``.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

KERNEL = 4


class Mixer(nn.Module):
    """A causal convolution of 4 steps, and h_t = a(x_t) h_(t-1) + b(x_t)."""

    def __init__(self, inputs, outputs, width, fault=""):
        super().__init__()
        self.enter = nn.Linear(inputs, width)
        self.kernel = nn.Parameter(0.5 * torch.randn(width, KERNEL))
        self.gate = nn.Linear(width, width)
        self.readout = nn.Linear(width, outputs)
        self.fault = fault

    def empty(self, like):
        return like.new_zeros(len(like), KERNEL - 1, like.shape[-1]), like.new_zeros(len(like), like.shape[-1])

    def mixed(self, x, state=None, mask=None):
        """Outputs, and the state: the last inputs of the convolution, and h."""
        u = self.enter(x)
        tail, h = state or self.empty(u)
        if mask is not None:
            u = u * mask.unsqueeze(-1).to(u)
        long = torch.cat([tail, u], 1)
        last = long
        if mask is not None:  # steps of padding before those that are there
            order = torch.argsort(mask.long(), dim=1, stable=True).unsqueeze(-1).expand_as(u)
            last = torch.cat([tail, u.gather(1, order)], 1)
        u = functional.conv1d(long.mT, self.kernel.unsqueeze(1), groups=len(self.kernel)).mT
        a, states = torch.sigmoid(self.gate(u) + 1), []
        if mask is not None and self.fault != "gate not masked":
            a = torch.where(mask.unsqueeze(-1).bool(), a, torch.ones_like(a))
        driven = (1 - a) * torch.tanh(u) + 0.1 * torch.ones_like(u)
        if mask is not None:
            driven = driven * mask.unsqueeze(-1).to(u)
            if self.fault == "values not masked":
                driven = (1 - a) * torch.tanh(u) + 0.1 * torch.ones_like(u)
        for t in range(x.shape[1]):
            h = a[:, t] * h + driven[:, t]
            states.append(h)
        return self.readout(torch.stack(states, 1)), (last[:, 1 - KERNEL :], h)


class Stateful(Mixer):
    """``forward(x, state) -> (y, state)``; ``fault="tail"``: a later piece of several steps begins anew."""

    def forward(self, x, state=None):
        if state is not None and x.shape[1] > 1 and self.fault == "tail":
            state = (torch.zeros_like(state[0]), state[1])
        return self.mixed(x, state)


@dataclass
class Output:
    """An answer as those of transformers: by name, and by place."""

    last_hidden_state: torch.Tensor
    cache_params: object = None
    past_key_values: object = None

    def __getitem__(self, place):
        return self.last_hidden_state


class Cache:
    state = None


class CacheParams(Mixer):
    """Mamba's custom; ``fault="pieces"``: with a cache, several steps are read as if they began the sequence."""

    def forward(self, inputs_embeds, cache_params=None, use_cache=None, attention_mask=None):
        cache = cache_params or (Cache() if use_cache else None)
        state = cache.state if cache else None
        if self.fault == "pieces" and inputs_embeds.shape[1] > 1:
            state = None
        if self.fault == "step" and inputs_embeds.shape[1] == 1 and state is not None:
            state = (state[0], 0.99 * state[1])
        if attention_mask is not None:
            attention_mask = attention_mask[:, -inputs_embeds.shape[1] :]
        y, state = self.mixed(inputs_embeds, state, attention_mask)
        if cache:
            cache.state = state
        return Output(y, cache_params=cache)


class PastKeyValues(Mixer):
    """The custom of attention, in which hybrids take part; ``fault="step"`` as above."""

    def forward(self, inputs_embeds, past_key_values=None, use_cache=None, attention_mask=None):
        state = past_key_values.state if past_key_values else None
        if self.fault == "step" and inputs_embeds.shape[1] == 1 and state is not None:
            state = (state[0].roll(1, 1), state[1])
        if attention_mask is not None:
            attention_mask = attention_mask[:, -inputs_embeds.shape[1] :]
        y, state = self.mixed(inputs_embeds, state, attention_mask)
        cache = None
        if use_cache:
            cache = past_key_values or Cache()
            cache.state = state
        return Output(y, past_key_values=cache)


class SetsUpItsStep(nn.Module):
    """S4's custom: ``setup_step()`` before the first step, ``default_state(batch)``, ``step(u, state)``."""

    def __init__(self, inputs, outputs, width, fault=""):
        super().__init__()
        self.rate = nn.Parameter(torch.linspace(0.05, 1.0, width))
        self.enter, self.readout = nn.Linear(inputs, width), nn.Linear(width, outputs)
        self.fault = fault

    def factor(self):
        return torch.exp(-self.rate)

    def forward(self, x):
        lags = torch.arange(x.shape[1], dtype=x.dtype)
        kernel = torch.exp(-self.rate * lags.unsqueeze(1))
        size = 2 * x.shape[1]
        u = self.enter(x)
        y = torch.fft.irfft(torch.fft.rfft(u, size, 1) * torch.fft.rfft(kernel, size, 0), size, 1)[:, : x.shape[1]]
        return self.readout(y)

    def setup_step(self):
        self.discrete = self.factor() if self.fault != "step" else 1 - self.rate.detach()

    def default_state(self, *batch):
        return torch.zeros(*batch, len(self.rate), dtype=self.rate.dtype)

    def step(self, u, state):
        state = self.discrete * state + self.enter(u)
        return self.readout(state), state


class StepsWithTime(Mixer):
    """xLSTM's custom: ``step`` takes ``[B, 1, D]``, and gives outputs with that dimension."""

    def forward(self, x):
        return self.mixed(x)[0]

    def step(self, x, state=None):
        assert x.ndim == 3, f"expected [B, 1, D], got {tuple(x.shape)}"
        y, (tail, h) = self.mixed(x, state)
        return y, (tail, 0.99 * h if self.fault == "step" else h)


class StepsInSingle(StepsWithTime):
    """Inputs go through float32; ``fault="slight step"``: a step forgets a little more than the sequence does."""

    def mixed(self, x, state=None, mask=None):
        return super().mixed(x.float().to(x), state, mask)

    def step(self, x, state=None):
        y, (tail, h) = super().step(x, state)
        return y, (tail, 0.9998 * h if self.fault == "slight step" else h)


class StepsWithTwoStates(Mixer):
    """Mamba's first custom: ``allocate_inference_cache``, and ``step(x, conv_state, ssm_state)``."""

    def forward(self, x, inference_params=None):
        return self.mixed(x)[0]

    def allocate_inference_cache(self, batch_size, max_seqlen, dtype=None):
        return self.empty(self.kernel.new_zeros(batch_size, 1, len(self.kernel))[:, 0])

    def step(self, hidden_states, conv_state, ssm_state):
        if self.fault == "step":
            conv_state = conv_state.roll(1, 1)
        y, (conv_state, ssm_state) = self.mixed(hidden_states, (conv_state, ssm_state))
        return y, conv_state, ssm_state
