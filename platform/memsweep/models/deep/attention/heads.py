"""Queries, keys and values of several heads, which units that recall by keys share.

Each is a linear map of the layer's input, W x, and may pass a causal convolution over the last steps, channel by
channel (``convolution``), which brings a key and the value after it to one step. Heads share out the channels,
D = M / H each. ``rotated`` turns queries and keys by angles that grow with time, so that products of them know the
distance alone (RoPE, arXiv 2104.09864).

Letters: see memsweep.models.deep.unit; H heads, D channels of a head.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.unit import State, Unit, mapped
from memsweep.models.initialization import lecun_normal
from memsweep.recurrence.short_convolution import short_convolution

NAMES = ("query", "key", "value")
_BASE = 10000.0  # of the wavelengths of RoPE


@dataclass(frozen=True, kw_only=True)
class HeadsConfig:
    """Heads, and what a query, a key and a value are made of."""

    heads: int = setting(2, "number of heads, each with width / heads channels", at_least=1, at_most=1_000_000)
    convolution: int = setting(
        0,
        "steps of a causal convolution of queries, keys and values, each channel by itself (0: none)",
        at_least=0,
        at_most=1000,
    )


class HeadsUnit(Unit):
    """Base of the units of queries, keys and values: a unit says what its heads answer."""

    rotary: bool = False
    """Whether queries and keys are turned."""

    @classmethod
    def refusal(cls, config: Any, width: int, features: int) -> str | None:
        each = 2 if cls.is_rotary(config) else 1
        if width % (each * config.heads) == 0:
            return None
        what = "an even number of channels" if each == 2 else "a whole number of channels"
        return (
            f"the unit {config.name} needs {what} in each of its {config.heads} heads, but width is {width}: let width "
            f"be a multiple of {each * config.heads}"
        )

    @classmethod
    def is_rotary(cls, config: Any) -> bool:
        return cls.rotary

    def roles(self) -> Mapping[str, Role]:
        into = Group.INPUT
        roles = {f"encoder_{name}": Role(Part.ENCODER, ("width", "feature"), group=into) for name in NAMES}
        if self.config.convolution:
            roles |= {f"convolution_{name}": Role(Part.ENCODER, ("width", "lag"), group=into) for name in NAMES}
        return roles | {"readout": Role(Part.READOUT, ("feature", "width"))}

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Flax's defaults for dense layers; torch's for convolutions, uniform within 1 / sqrt(their steps)."""
        del horizon
        lags = self.config.convolution
        weights = {f"encoder_{name}": lecun_normal(self.width, self.features, rng) for name in NAMES}
        if lags:
            far = 1.0 / math.sqrt(lags)
            weights |= {f"convolution_{name}": rng.uniform(-far, far, (self.width, lags)) for name in NAMES}
        return weights | {"readout": lecun_normal(self.features, self.width, rng)}

    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        return self.going_on(weights, x_NBTF, None)[0]

    def step(self, weights: Weights, x_NBF: Tensor, state: State | None) -> tuple[Tensor, State]:
        answers_NB1F, after = self.going_on(weights, x_NBF.unsqueeze(2), state)
        return answers_NB1F.squeeze(2), after

    @abstractmethod
    def going_on(self, weights: Weights, x_NBTF: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Answers ``[N, B, T, F]`` from a state on, and the state after the last step."""

    def convolved(self, weights: Weights, x_NBTF: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Queries, keys and values side by side, ``[N, B, T, 3 M]``, and what the convolution must remember."""
        joined = mapped(torch.cat([weights[f"encoder_{name}"] for name in NAMES], 1), x_NBTF)
        lags, steps = self.config.convolution, x_NBTF.shape[2]
        if not lags:
            return joined, {}
        recent = joined.new_zeros(*joined.shape[:2], lags - 1, joined.shape[-1]) if state is None else state["recent"]
        known = torch.cat([recent, joined], 2)
        kernel_NML = torch.cat([weights[f"convolution_{name}"] for name in NAMES], 1)
        return short_convolution(known, kernel_NML), {"recent": known[:, :, steps:]}

    def by_head(self, x_NBTM: Tensor) -> Tensor:
        """``[N, B, H, T, D]``."""
        return x_NBTM.unflatten(-1, (self.config.heads, -1)).transpose(2, 3)

    def together(self, y_NBHTD: Tensor) -> Tensor:
        """``[N, B, T, M]``."""
        return y_NBHTD.transpose(2, 3).flatten(3)


def rotated(x_NBHTD: Tensor, first: int) -> Tensor:
    """Pairs of channels turned by t / 10000^(2 i / D) in the plane of pair i, where ``first`` is the first t."""
    half, steps = x_NBHTD.shape[-1] // 2, x_NBHTD.shape[-2]
    rates = _BASE ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(first, first + steps, dtype=torch.float64)[:, None] * rates
    cos, sin = angles.cos().to(x_NBHTD), angles.sin().to(x_NBHTD)
    one, other = x_NBHTD.chunk(2, -1)
    return torch.cat([one * cos - other * sin, one * sin + other * cos], -1)
