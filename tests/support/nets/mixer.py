"""Layers as a user writes them: one with a Python loop and a step form, one with heads, one with dropout and a norm;
and a language model with its settings in a dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor, nn


class Mixer(nn.Module):
    """A gated leaky integrator."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.value = nn.Linear(d_model, d_model)
        self.forget = nn.Linear(d_model, d_model)
        self.mix = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        state, answers = None, []
        for step in x.unbind(1):
            answer, state = self.step(step, state)
            answers.append(answer)
        return torch.stack(answers, 1)

    def step(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        forget, before = torch.sigmoid(self.forget(x)), torch.zeros_like(x) if state is None else state
        state = forget * before + (1 - forget) * self.value(x)
        return self.mix(state), state


class Heads(nn.Module):
    """Causal attention, which wants a size that its heads share out; its answer comes with its weights."""

    def __init__(self, embed_dim: int, heads: int = 4) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(embed_dim, heads, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        answers, weights = self.attention(x, x, x, attn_mask=mask)
        return answers, weights


class Noisy(nn.Module):
    """A GRU behind a norm over the batch, with dropout and a frozen scale."""

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(inputs)
        self.scale = nn.Parameter(torch.full((inputs,), 0.5), requires_grad=False)
        self.rnn = nn.GRU(inputs, width, batch_first=True)
        self.dropout = nn.Dropout(0.25)
        self.readout = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(self.scale * self.norm(x.mT).mT)
        return self.readout(self.dropout(states))


@dataclass
class Settings:
    """Of the language model."""

    vocab_size: int
    d_model: int = 64
    layers: int = 2


class Reader(nn.Module):
    """Ids to features, which are no scores of ids."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(inputs, width)
        self.rnn = nn.GRU(width, width, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        features: Tensor = self.rnn(self.embedding(ids))[0]
        return features


class Speaker(nn.Module):
    """A language model: ids to the scores of all ids, as an attribute of its answer."""

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.rnn = nn.GRU(config.d_model, config.d_model, config.layers, batch_first=True)
        self.head = nn.Linear(config.d_model, config.vocab_size)

    def forward(self, ids: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.head(self.rnn(self.embedding(ids))[0]))
