"""The recurrence of Mamba-3 as a unit of deep models: SSD with a trapezoidal rule, turning states and biases.

As in the authors' code (state-spaces/mamba, mamba_ssm/modules/mamba3.py, with one B and C, SISO), for each head, with
x_t, B_t and C_t linear maps of the input u_t and Delta_t, A_t, lambda_t one number each:

    S_t = a_t S_{t-1} + (1 - lambda_t) Delta_t a_t x_{t-1} k_{t-1}' + lambda_t Delta_t x_t k_t',
    y_t = S_t q_t + D x_t,   k_t = R_t (norm(B_t) + b_B),   q_t = R_t (norm(C_t) + b_C),
    a = exp(-Delta A),   Delta = softplus(W_Delta u + b_Delta),   A = max(rate(W_A u), 1e-4),   lambda = sigmoid(W_l u)

and R_t turns by the sum of Delta_s pi tanh(W_theta u_s) over all s <= t.

R turns pairs of states, each at a speed of its own: real states that turn are complex ones. The norm divides by the
root mean square over the states of a channel. Biases are those of heads, B, C and the speeds are shared by all heads.
lambda = 1 is the rule of ``ssd_selective``, which has no rotation, norms or biases. Each of the two products costs a
matrix state's pass. Left out: several inputs and outputs at once (MIMO), and the gate, which layers have of their own.

Letters: see memsweep.models.deep.unit; S states of a channel, P channels of a head, H heads, M = S P H, Q pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.unit import State, Unit, mapped
from memsweep.models.deep.unit_ssm import LONGEST_STEP, SHORTEST_STEP
from memsweep.models.parameterizations.base import build
from memsweep.models.parameterizations.maps import HeavyTail
from memsweep.recurrence.matrix.states import matrix_states
from memsweep.registry import register_unit

NONE, HALF, ALL = "none", "half", "all"
INPUT, OUTPUT = "input", "output"
_SLOWEST = 1e-4  # A is never less
_EPSILON = 1e-5  # of the norm


@register_unit("mamba3")
class Mamba3Unit(Unit):
    """Mamba-3: a selective decay, a trapezoidal rule, and states that turn at a speed which the input decides."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Heads of channels of states, width counts all states; each of Mamba-3's changes can be left out."""

        states: int = setting(
            2,
            "states of a channel (128 as published); width counts those of all channels",
            at_least=1,
            at_most=1_000_000,
        )
        head_dim: int = setting(
            2, "channels of a head, which share their decay (64 as published)", at_least=1, at_most=1_000_000
        )
        parameterization: Any = setting(
            doc="map from a linear map of the input to rates", factory=HeavyTail.Config, registered="parameterization"
        )
        trapezoidal: bool = setting(
            True,
            "a step's input enters at its beginning and at its end, in shares of the input's; otherwise at its end",
        )
        rotation: str = setting(
            ALL, "which states of a channel turn: all, half (the published default) or none", choices=(ALL, HALF, NONE)
        )
        biases: bool = setting(True, "biases of B and C, which begin as one")

    def __init__(self, config: Any, width: int, features: int) -> None:
        super().__init__(config, width, features)
        self.channels = width // config.states
        self.heads = self.channels // config.head_dim
        self.parameterization = build(config.parameterization)

    @classmethod
    def refusal(cls, config: Any, width: int, features: int) -> str | None:
        head = config.states * config.head_dim
        if width % head:
            return (
                f"the unit mamba3 has heads of {config.head_dim} channels with {config.states} states each, so that "
                f"width is a multiple of {head}, but width is {width}: give it {head * (width // head + 1)}, or the "
                "unit other states or another head_dim"
            )
        least = {NONE: 1, HALF: 4, ALL: 2}[config.rotation]
        if config.states >= least:
            return None
        return (
            f"the unit mamba3 turns pairs of states, and with rotation {config.rotation} a channel needs {least}, but "
            f"has {config.states}: give it more states or another rotation"
        )

    @property
    def _pairs(self) -> int:
        return {NONE: 0, HALF: self.config.states // 4, ALL: self.config.states // 2}[self.config.rotation]

    def roles(self) -> Mapping[str, Role]:
        recurrent, into = Group.RECURRENT, Group.INPUT
        roles = {
            "encoder_step": Role(Part.RECURRENT, ("head", "feature"), group=recurrent),
            "bias_step": Role(Part.BIAS, ("head",), group=recurrent),
            "encoder_rate": Role(Part.RECURRENT, ("head", "feature"), group=recurrent),
            f"encoder_{INPUT}": Role(Part.ENCODER, ("state", "feature"), group=into),
            f"norm_{INPUT}": Role(Part.GAIN, ("state",), group=into),
            "encoder_candidate": Role(Part.ENCODER, ("channel", "feature"), group=into),
            f"encoder_{OUTPUT}": Role(Part.READOUT, ("state", "feature")),
            f"norm_{OUTPUT}": Role(Part.GAIN, ("state",)),
            "readout": Role(Part.READOUT, ("feature", "channel")),
            "skip": Role(Part.GAIN, ("head",)),
        }
        if self.config.trapezoidal:
            roles["encoder_share"] = Role(Part.RECURRENT, ("head", "feature"), group=recurrent)
        if self._pairs:
            roles["encoder_speed"] = Role(Part.RECURRENT, ("pair", "feature"), group=recurrent)
        if self.config.biases:
            roles |= {f"bias_{name}": Role(Part.BIAS, ("head", "state")) for name in (INPUT, OUTPUT)}
        return roles

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """As the authors' code: maps as torch.nn.Linear draws them, Delta log-uniform in 0.001 ... 0.1, A near 1."""
        del horizon  # step sizes are drawn alike for all lengths
        step = np.exp(rng.uniform(np.log(SHORTEST_STEP), np.log(LONGEST_STEP), self.heads))
        states, known = self.config.states, {"bias_step": step + np.log(-np.expm1(-step)), "skip": np.ones(self.heads)}
        known |= {f"norm_{name}": np.ones(states) for name in (INPUT, OUTPUT)}
        known |= {f"bias_{name}": np.ones((self.heads, states)) for name in (INPUT, OUTPUT)}
        rows = {"head": self.heads, "state": states, "channel": self.channels, "pair": self._pairs}
        rows |= {"feature": self.features}
        weights = {}
        for name, role in self.roles().items():
            shape = tuple(rows[axis] for axis in role.axes)
            weights[name] = known[name] if name in known else rng.uniform(-1.0, 1.0, shape) / math.sqrt(shape[-1])
        return weights

    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        return self._going_on(weights, x_NBTF, None)[0]

    def step(self, weights: Weights, x_NBF: Tensor, state: State | None) -> tuple[Tensor, State]:
        answers_NB1F, after = self._going_on(weights, x_NBF.unsqueeze(2), state)
        return answers_NB1F.squeeze(2), after

    def products(self, horizon: int) -> int:
        return (6 if self.config.trapezoidal else 3) * self.width

    def eigenvalues(self, weights: Weights) -> Tensor:
        """a at input zero, ``[N, M]``, where no state turns."""
        still = weights["readout"].new_zeros(len(weights["readout"]), 1, 1, self.features)
        _, log_decay = self._decay(weights, still)
        return log_decay.exp().flatten(1).repeat_interleave(self.width // self.heads, 1)

    def _going_on(self, weights: Weights, x_NBTF: Tensor, state: State | None) -> tuple[Tensor, State]:
        step, log_decay = self._decay(weights, x_NBTF)
        value = mapped(weights["encoder_candidate"], x_NBTF).unflatten(-1, (self.heads, -1)).transpose(2, 3)
        key, query = (
            self._normed(weights, name, x_NBTF).expand(-1, -1, self.heads, -1, -1) for name in (INPUT, OUTPUT)
        )
        after: State = {}
        if self._pairs:
            speed = math.pi * torch.tanh(mapped(weights["encoder_speed"], x_NBTF)).unsqueeze(2)
            angle = (step * speed).cumsum(3, dtype=torch.float64)  # over long sequences, float32 would lose the turn
            angle = torch.remainder(angle if state is None else angle + state["angle"], 2.0 * math.pi).to(x_NBTF)
            key, query, after["angle"] = _turned(key, angle), _turned(query, angle), angle[..., -1:, :]
        found, left = self._answers(weights, x_NBTF, (query, key, value, step, log_decay), state)
        after |= left
        answers = found + weights["skip"][:, None, :, None, None] * value
        return mapped(weights["readout"], answers.transpose(2, 3).flatten(3)), after

    def _answers(
        self, weights: Weights, x_NBTF: Tensor, series: tuple[Tensor, ...], state: State | None
    ) -> tuple[Tensor, State]:
        """S_t q_t ``[N, B, H, T, P]``, and what the next step must know."""
        query, key, value, step, log_decay = series
        written, after = [(step * key, value)], {}
        if self.config.trapezoidal:
            share = torch.sigmoid(self._by_head(mapped(weights["encoder_share"], x_NBTF)))
            key_before, value_before = (
                torch.cat([torch.zeros_like(now[..., :1, :]) if state is None else state[name], now[..., :-1, :]], 3)
                for name, now in (("key", key), ("value", value))
            )
            # the left end of the trapezoidal rule: the last step's product, faded once
            earlier = (1.0 - share) * step * log_decay.exp() * key_before
            written = [(share * step * key, value), (earlier, value_before)]
            after = {"key": key[..., -1:, :], "value": value[..., -1:, :]}
        # each product gets a state of its own. All fade alike and are read by one query, so that only their sum is kept
        keys, values = (torch.stack(parts) for parts in zip(*written, strict=True))
        start = None
        if state is not None:
            start = torch.stack([state["matrix"], *(torch.zeros_like(state["matrix"]) for _ in written[1:])])
        found, left = matrix_states(
            query.expand(len(keys), -1, -1, -1, -1, -1).flatten(0, 3),
            keys.flatten(0, 3),
            values.flatten(0, 3),
            log_decay.expand(len(keys), -1, -1, -1, -1, -1).flatten(0, 3),
            start_XVK=None if start is None else start.flatten(0, 3),
        )
        answers, matrix = (part.unflatten(0, keys.shape[:4]).sum(0) for part in (found, left))
        return answers, after | {"matrix": matrix}

    def _decay(self, weights: Weights, x_NBTF: Tensor) -> tuple[Tensor, Tensor]:
        """Delta and log a, ``[N, B, H, T, 1]``."""
        drive = mapped(weights["encoder_step"], x_NBTF) + weights["bias_step"][:, None, None]
        step = softplus(self._by_head(drive))
        rate = self.parameterization.rate(self._by_head(mapped(weights["encoder_rate"], x_NBTF)))
        return step, -step * rate.clamp_min(_SLOWEST)

    def _normed(self, weights: Weights, name: str, x_NBTF: Tensor) -> Tensor:
        """B or C, ``[N, B, H or 1, T, S]``."""
        drive = mapped(weights[f"encoder_{name}"], x_NBTF)
        scaled = drive * torch.rsqrt(drive.square().mean(-1, keepdim=True) + _EPSILON)
        normed = (scaled * weights[f"norm_{name}"][:, None, None]).unsqueeze(2)
        return normed + weights[f"bias_{name}"][:, None, :, None] if self.config.biases else normed

    @staticmethod
    def _by_head(x_NBTH: Tensor) -> Tensor:
        """``[N, B, H, T, 1]``."""
        return x_NBTH.transpose(2, 3).unsqueeze(-1)


def _turned(x_NBHTS: Tensor, angle_NBHTQ: Tensor) -> Tensor:
    """States 2 i and 2 i + 1 turned by angle i; those beyond the last angle stay."""
    turning = 2 * angle_NBHTQ.shape[-1]
    one, other = x_NBHTS[..., :turning].unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = angle_NBHTQ.cos(), angle_NBHTQ.sin()
    turned = torch.stack([one * cos - other * sin, one * sin + other * cos], -1).flatten(-2)
    return torch.cat([turned, x_NBHTS[..., turning:]], -1)
