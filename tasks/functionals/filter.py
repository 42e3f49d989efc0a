"""A random transformer as the target: a causal nonlinear functional of white noise without a formula.

The idea is the Filter experiment of the code published with arXiv 2305.19190. There the transformer had no mask,
dropout was on, and the order of its axes made it attend over the sequences of a batch instead of over time; here it is
causal, attends over time and is deterministic.

Without positions, attention is an average over the past with weights by content: its memory falls like 1/t.

Letters: B batch, T time (horizon), M width of the target.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from memsweep.config.core.fields import setting
from memsweep.data.api import Batch, FunctionalTask, Stream
from memsweep.registry import register_task

MOMENTS = 2048  # sequences on which the target's mean and variance are measured
SCORES = 4_000_000  # attention scores held at a time: bounds the memory of a batch


class Target(nn.Module):
    """A causal transformer with weights that a seed decides: ``[B, T]`` to ``[B, T]``, float64.

    Matrices are normal with variance 1/fan-in, biases standard normal in the encoder (so that the sign of an input
    counts) and zero elsewhere, normalizations the identity. They come from Philox streams, not from torch's generator.
    """

    def __init__(self, width: int, heads: int, layers: int, seed: int) -> None:
        super().__init__()
        self.heads = heads
        layer = nn.TransformerEncoderLayer(
            width, heads, dim_feedforward=2 * width, dropout=0.0, batch_first=True, dtype=torch.float64
        )
        self.encoder = nn.Linear(1, width, dtype=torch.float64)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.readout = nn.Linear(width, 1, dtype=torch.float64)
        for name, weight in self.named_parameters():
            weight.requires_grad_(False)
            draw = Stream(seed, f"target {name}").generator().standard_normal(tuple(weight.shape))
            if weight.ndim == 2:
                weight.copy_(torch.from_numpy(draw) * weight.shape[1] ** -0.5)
            elif name == "encoder.bias":
                weight.copy_(torch.from_numpy(draw))
            elif "norm" not in name:
                weight.zero_()
        # Left in training mode: dropout is 0, and torch's fast path for evaluation would read the mask as yes and no.

    def mask(self, steps: int) -> Tensor:
        """The mask added to the attention scores: ``[T, T]``, 0 at s <= t, minus infinity at s > t."""
        return torch.full((steps, steps), -torch.inf, dtype=torch.float64).triu(1)

    @torch.no_grad()
    def forward(self, x_BT: Tensor) -> Tensor:
        mask = self.mask(x_BT.shape[1])
        rows = max(1, SCORES // (self.heads * mask.numel()))
        parts = [self.readout(self.body(self.encoder(x.unsqueeze(-1)), mask)) for x in x_BT.split(rows)]
        return torch.cat(parts).squeeze(-1)

    @torch.no_grad()
    def step_by_step(self, x_BT: Tensor) -> Tensor:
        """The same answers ``[B, T]``, step by step from the keys and values of the past."""
        kept: list[Past] = [[] for _ in self.body.layers]
        answers = []
        for x_B in x_BT.unbind(1):
            h_BM = x_B[:, None] * self.encoder.weight[:, 0] + self.encoder.bias
            for layer, past in zip(self.body.layers, kept, strict=True):
                h_BM = _layer_step(cast(nn.TransformerEncoderLayer, layer), past, h_BM)
            answers.append(h_BM @ self.readout.weight[0] + self.readout.bias)
        return torch.stack(answers, 1)


Past = list[tuple[Tensor, Tensor]]
"""The keys and values, ``[B, M]`` each, of the steps that a layer has seen."""


def _layer_step(layer: nn.TransformerEncoderLayer, past: Past, h_BM: Tensor) -> Tensor:
    h_BM = layer.norm1(h_BM + _attend(layer.self_attn, past, h_BM))
    hidden = torch.relu(h_BM @ layer.linear1.weight.T + layer.linear1.bias)
    return layer.norm2(h_BM + hidden @ layer.linear2.weight.T + layer.linear2.bias)


def _attend(attention: nn.MultiheadAttention, past: Past, h_BM: Tensor) -> Tensor:
    width, head_width = attention.embed_dim, attention.head_dim
    query, key, value = (h_BM @ attention.in_proj_weight.T + attention.in_proj_bias).split(width, -1)
    past.append((key, value))
    mixed = torch.empty_like(value)
    for start in range(0, width, head_width):
        part = slice(start, start + head_width)
        scores = torch.stack([(query[:, part] * key[:, part]).sum(-1) for key, _ in past], -1)
        shares = torch.softmax(scores * head_width**-0.5, -1)
        values = torch.stack([value[:, part] for _, value in past], -1)
        mixed[:, part] = (shares.unsqueeze(1) * values).sum(-1)
    return mixed @ attention.out_proj.weight.T + attention.out_proj.bias


@functools.lru_cache(maxsize=4)
def _standardized(config: Filter.Config) -> tuple[Target, float, float]:
    """The target with the centre and scale for which the best constant answer at every step has weighted error 1."""
    target = Target(config.width, config.heads, config.layers, config.target_seed)
    task = Filter(config)
    y_BT = target(task.white_noise(Stream(config.target_seed, "moments of the target"), 0, MOMENTS))
    squares = task.weights().square()
    centre = float((squares * y_BT.mean(0)).sum() / squares.sum())
    scale = float((squares * y_BT.var(0)).mean().sqrt())
    return target, centre, scale


@register_task("filter")
class Filter(FunctionalTask):
    """Reproduce the output of a fixed random transformer on white noise."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """A random transformer as the target: its size, its memory and its seed. Memory differs between seeds: by
        default about 0.6 of the target's variance comes from the past, with other seeds less."""

        horizon: int = setting(100, "sequence length T, in steps", at_least=2, at_most=10_000)
        dt: float = setting(1.0, "time between steps; the input's standard deviation, too", at_least=1e-6, at_most=1e3)
        width: int = setting(16, "numbers that the target keeps of a step (d_model)", at_least=1, at_most=1024)
        heads: int = setting(2, "attention heads of a layer; they must divide the width", at_least=1, at_most=64)
        layers: int = setting(2, "layers of the target", at_least=1, at_most=32)
        target_seed: int = setting(0, "decides the target's weights", at_least=0, at_most=2**31 - 1)
        weight_power: float = setting(
            2.0, "power p of the temporal weight (t/T)^p inside the squared error", at_least=0.0, at_most=20.0
        )

        def problems(self) -> Iterable[str]:
            if self.width % self.heads:
                yield f"width is {self.width}, which {self.heads} heads cannot share equally: let heads divide width"

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        target, centre, scale = _standardized(self.config)
        x_BT = self.white_noise(stream, index, size)
        return Batch(x_BT.unsqueeze(-1), ((target(x_BT) - centre) / scale).unsqueeze(-1))

    def oracle(self, inputs: Tensor) -> Tensor:
        target, centre, scale = _standardized(self.config)
        return ((target.step_by_step(inputs.squeeze(-1)) - centre) / scale).unsqueeze(-1)

    def chance(self) -> float:
        """1, by the target's scale: the weighted variance around the mean at every step.

        The scale is measured on a fixed stream of 2048 sequences; that leaves about 3 % to chance.
        """
        return 1.0
