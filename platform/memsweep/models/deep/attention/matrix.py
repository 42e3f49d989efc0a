"""Linear attention and its heirs as units of deep models: a matrix of each head holds values by their keys.

    S_t = S_{t-1} diag(a_t) (I - b_t k_t k_t') + b_t v_t k_t',   o_t = S_t q_t,   y_t = C (norm(o_t) gate(x_t))

| unit | a | delta rule (b) | queries and keys | behind o |
|---|---|---|---|---|
| ``linear_attention`` (arXiv 2006.16236) | 1 | no, b = 1 | elu + 1 | over the sum of q'k |
| ``retnet`` (2307.08621) | 1 - 2^(-5 - h) of head h | no | turned (RoPE) | norm, swish gate |
| ``gla`` (2312.06635) | of each key: sigmoid(W x + c)^(1/16) | no | as they are | norm, swish gate |
| ``delta_net`` (2406.06484) | 1 | sigmoid(W x) | silu, length 1 | norm |
| ``gated_delta_net`` (2412.06464) | exp(-e^A softplus(W x + c)) of each head | the same | the same | norm, swish gate |
| ``kda`` (2510.26692) | the same of each key | the same | the same | norm, sigmoid gate |

(I - b k k') acts behind diag(a), as in the last two papers, and values pass the silu, too, by the delta rule. The norm
divides each head's answers by their root mean square. W of ``gla`` and ``kda`` is a full matrix: the published ones
have a low rank, which saves weights in wide layers. Queries are divided by sqrt(D). The state is M^2 / H numbers for
each sequence.

Letters: see memsweep.models.deep.attention.heads; Z is H or M: one decay for each head or each key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.attention.heads import HeadsConfig, HeadsUnit, rotated
from memsweep.models.deep.unit import State, mapped
from memsweep.models.initialization import lecun_normal
from memsweep.recurrence.matrix.states import matrix_states
from memsweep.registry import register_unit

NONE, FIXED, SIGMOID, HEAD, KEY = "none", "fixed", "sigmoid", "head", "key"
_SHARPNESS = 16.0  # of the decays of GLA
_EPSILON = 1e-5


class MatrixUnit(HeadsUnit):
    """Base of the units with matrix states; a unit says by its attributes which of their parts it has.

    Attributes:
        decay: what a is: 1 (none), fixed for each head, a sigmoid for each key, or exp(-e^A softplus) for each head or
            key.
        delta: whether the delta rule removes what a key held before.
        gate: the function of the gate behind the heads; None: no gate.
        normed: whether the answers of a head are divided by their root mean square.
    """

    decay: ClassVar[str] = NONE
    delta: ClassVar[bool] = False
    gate: ClassVar[str | None] = None
    normed: ClassVar[bool] = True

    @property
    def _decays(self) -> tuple[str, int]:
        """Axis of the decays, and how many there are."""
        return ("head", self.config.heads) if self.decay == HEAD else ("width", self.width)

    def roles(self) -> Mapping[str, Role]:
        roles, forgets = dict(super().roles()), Group.RECURRENT
        if self.decay in (SIGMOID, HEAD, KEY):
            axis, _ = self._decays
            roles["encoder_decay"] = Role(Part.RECURRENT, (axis, "feature"), group=forgets)
            roles["bias_decay"] = Role(Part.BIAS, (axis,), group=forgets)
        if self.decay in (HEAD, KEY):
            roles["rate"] = Role(Part.RECURRENT, ("head",), diagonal=True, group=forgets)
        if self.delta:
            roles["encoder_beta"] = Role(Part.RECURRENT, ("head", "feature"), group=forgets)
        if self.gate is not None:
            roles["encoder_gate"] = Role(Part.READOUT, ("width", "feature"))
        return roles | ({"norm_gain": Role(Part.GAIN, ("width",))} if self.normed else {})

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Decays as published for ``gated_delta_net``: e^A in 1 ... 16, softplus(c) log-uniform in 0.001 ... 0.1."""
        weights, heads = super().initial(horizon, rng), self.config.heads
        if self.decay in (SIGMOID, HEAD, KEY):
            _, decays = self._decays
            weights["encoder_decay"] = lecun_normal(decays, self.features, rng)
            weights["bias_decay"] = np.zeros(decays)
        if self.decay in (HEAD, KEY):
            slow = np.exp(rng.uniform(math.log(1e-3), math.log(1e-1), decays))
            weights["bias_decay"] = np.log(np.expm1(slow))  # the inverse of softplus
            weights["rate"] = np.log(rng.uniform(1.0, 16.0, heads))
        if self.delta:
            weights["encoder_beta"] = lecun_normal(heads, self.features, rng)
        if self.gate is not None:
            weights["encoder_gate"] = lecun_normal(self.width, self.features, rng)
        return weights | ({"norm_gain": np.ones(self.width)} if self.normed else {})

    def going_on(self, weights: Weights, x_NBTF: Tensor, state: State | None) -> tuple[Tensor, State]:
        joined, after = self.convolved(weights, x_NBTF, state)
        query, key, value = (self.by_head(part) for part in self.activated(joined).chunk(3, -1))
        # rotary angles go on where the steps before ended
        first = 0 if state is None else int(state["steps"])
        query, key = self.keyed(query, first), self.keyed(key, first)
        rate = self.by_head(self._beta(weights, x_NBTF)) if self.delta else None
        start, shape = None if state is None else state["matrix"], query.shape[:3]
        series = (part.flatten(0, 2) for part in (query, key, self.valued(value)))
        others = (self.log_decay(weights, x_NBTF), rate, start)
        flat = (None if part is None else part.flatten(0, 2) for part in others)
        found, left = matrix_states(*series, *flat, scale=1.0 / math.sqrt(query.shape[-1]))
        answers = self.together(self.read(found.unflatten(0, shape)))
        after |= {"matrix": left.unflatten(0, shape), "steps": torch.tensor(first + x_NBTF.shape[2])}
        return mapped(weights["readout"], self._behind(weights, answers, x_NBTF)), after

    def activated(self, joined: Tensor) -> Tensor:
        """Queries, keys and values; by the delta rule behind a silu."""
        return functional.silu(joined) if self.delta else joined

    def keyed(self, x_NBHTD: Tensor, first: int) -> Tensor:
        """Queries or keys of heads, of which the first is that of step ``first``."""
        if self.rotary:
            x_NBHTD = rotated(x_NBHTD, first)
        return functional.normalize(x_NBHTD, dim=-1) if self.delta else x_NBHTD

    def valued(self, value_NBHTD: Tensor) -> Tensor:
        """The values as the state holds them; unchanged by default."""
        return value_NBHTD

    def read(self, answers_NBHTD: Tensor) -> Tensor:
        """The output of the layer from the answers of its heads."""
        mean = answers_NBHTD.square().mean(-1, keepdim=True)
        return answers_NBHTD * torch.rsqrt(mean + _EPSILON) if self.normed else answers_NBHTD

    def log_decay(self, weights: Weights, x_NBTF: Tensor) -> Tensor | None:
        """log a, ``[N, B, H, T, 1 or D]``; None: 1."""
        if self.decay == NONE:
            return None
        if self.decay == FIXED:
            # float64 and log1p: the decays of slow heads are so near 1 that float32 would lose their logarithms' digits
            heads = torch.arange(self.config.heads, dtype=torch.float64)
            return (
                torch.log1p(-(2.0 ** (-5.0 - heads)))
                .to(x_NBTF)[:, None, None]
                .expand(*x_NBTF.shape[:2], -1, x_NBTF.shape[2], -1)
            )
        drive = self.by_head(mapped(weights["encoder_decay"], x_NBTF) + weights["bias_decay"][:, None, None])
        if self.decay == SIGMOID:
            return functional.logsigmoid(drive) / _SHARPNESS
        return -weights["rate"].exp()[:, None, :, None, None] * functional.softplus(drive)

    def products(self, horizon: int) -> int:
        return (4 if self.delta else 3) * self.width**2 // self.config.heads

    def eigenvalues(self, weights: Weights) -> Tensor:
        """a at input zero, ``[N, M]``, one for each key: there keys are zero, and the delta rule removes nothing."""
        readout = weights["readout"]
        decay = self.log_decay(weights, readout.new_zeros(len(readout), 1, 1, self.features))
        if decay is None:
            return torch.ones_like(readout[:, 0])
        return decay.expand(*decay.shape[:-1], self.width // self.config.heads).exp().flatten(1)

    def _beta(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        return self.config.largest_beta * torch.sigmoid(mapped(weights["encoder_beta"], x_NBTF))

    def _behind(self, weights: Weights, answers_NBTM: Tensor, x_NBTF: Tensor) -> Tensor:
        scaled = answers_NBTM * weights["norm_gain"][:, None, None] if self.normed else answers_NBTM
        if self.gate is None:
            return scaled
        gate = mapped(weights["encoder_gate"], x_NBTF)
        return scaled * (torch.sigmoid(gate) if self.gate == "sigmoid" else functional.silu(gate))


@dataclass(frozen=True, kw_only=True)
class DeltaConfig(HeadsConfig):
    """Of the units with the delta rule."""

    convolution: int = setting(
        4,
        "steps of a causal convolution of queries, keys and values, each channel by itself (0: none)",
        at_least=0,
        at_most=1000,
    )
    largest_beta: float = setting(
        1.0,
        "b lies between 0 and this, and the eigenvalues of a step between 1 - this and 1: 2 allows reflections, which "
        "states need that count modulo something (arXiv 2411.12537)",
        at_least=0.0,
        at_most=2.0,
    )


@register_unit("linear_attention")
class LinearAttentionUnit(MatrixUnit):
    """Linear attention: all values so far, weighted by the products of query and keys; nothing is forgotten."""

    normed = False

    @dataclass(frozen=True, kw_only=True)
    class Config(HeadsConfig):
        """As published."""

    def keyed(self, x_NBHTD: Tensor, first: int) -> Tensor:
        return functional.elu(x_NBHTD) + 1.0

    def valued(self, value_NBHTD: Tensor) -> Tensor:
        """A one beside the values: the state of that row is the sum of the keys."""
        return functional.pad(value_NBHTD, (0, 1), value=1.0)

    def read(self, answers_NBHTD: Tensor) -> Tensor:
        read, weight = answers_NBHTD.split([answers_NBHTD.shape[-1] - 1, 1], -1)
        return read / weight


@register_unit("retnet")
class RetNetUnit(MatrixUnit):
    """RetNet's multi-scale retention: every head forgets at a fixed speed of its own, the last ones slowest."""

    rotary, decay, gate = True, FIXED, "silu"

    @dataclass(frozen=True, kw_only=True)
    class Config(HeadsConfig):
        """As published, with values as wide as keys."""


@register_unit("gla")
class GLAUnit(MatrixUnit):
    """Gated linear attention: every key fades at a speed that the input decides."""

    decay, gate = SIGMOID, "silu"

    @dataclass(frozen=True, kw_only=True)
    class Config(HeadsConfig):
        """As published, with keys as wide as values."""


@register_unit("delta_net")
class DeltaNetUnit(MatrixUnit):
    """DeltaNet: a new value takes the place of the one that its key held; nothing else is forgotten."""

    delta = True

    @dataclass(frozen=True, kw_only=True)
    class Config(DeltaConfig):
        """As published."""


@register_unit("gated_delta_net")
class GatedDeltaNetUnit(MatrixUnit):
    """Gated DeltaNet: the delta rule on a state that fades at a speed which the input decides for each head."""

    decay, delta, gate = HEAD, True, "silu"

    @dataclass(frozen=True, kw_only=True)
    class Config(DeltaConfig):
        """As published, with values as wide as keys."""


@register_unit("kda")
class KDAUnit(MatrixUnit):
    """Kimi Delta Attention: the delta rule on a state in which every key fades at a speed of its own."""

    decay, delta, gate = KEY, True, "sigmoid"

    @dataclass(frozen=True, kw_only=True)
    class Config(DeltaConfig):
        """As published."""
