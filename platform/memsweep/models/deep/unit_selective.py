"""Selective units of deep models: diagonal recurrences whose decay is a function of the input.

    h_t = a_t h_{t-1} + b_t,   y_t = C h_t + D x_t,   a_t and b_t functions of x_t alone, 0 < a_t < 1

With u = W_u x_t + b_u, f = sigmoid(W_f x_t + b_f) and so on, which are as wide as the state:

- ``min_gru``: a = 1 - z, b = z u (arXiv 2410.01201, section 3.1, without the logarithmic form);
- ``min_lstm``: a = f / (f + i), b = (1 - a) u (the same paper, section 3.2, normalized gates);
- ``rg_lru``: log a = -c r softplus(-Lambda), c = 8, b = sqrt(1 - a^2) i u (arXiv 2402.19427, equations 1 to 4: there u
  is the unit's input, here a linear map of it);
- ``hgrn``: a = g + (1 - g) f, b = (1 - a) silu(u), g = sigmoid(Lambda) (arXiv 2311.04823, with real states in
  the place of complex ones, and without its output gate: mixing has gates. Published bounds g rise from layer to layer;
  here each layer has its own, which start spread over 0 ... 1).

Parts are the weights: ``encoder_*`` W ``[N, M, F]`` and ``bias_*`` b ``[N, M]`` of the candidate u and of each gate,
and ``decay`` Lambda ``[N, M]``. Gates count as recurrent weights, which the recurrent ball moves: they decide how fast
a state forgets. C and D are as in the unit rnn. ``memsweep.models.deep.unit_ssm`` has the units of Mamba.

Letters: see memsweep.models.deep.unit.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.unit import OnlineUnit, Parts, mapped
from memsweep.models.initialization import chrono_biases, lecun_normal
from memsweep.recurrence.selective.gated import CompiledGated
from memsweep.recurrence.varying import selective_scan
from memsweep.registry import register_unit

CANDIDATE, DECAY = "candidate", "decay"
SHARPNESS = 8.0
"""c of the RG-LRU."""
LEAST, MOST = 0.9, 0.999
"""Between them an RG-LRU draws a^c at the start."""


class SelectiveUnit(OnlineUnit):
    """Base of the units whose decay is a function of the input; a unit names its gates and computes a and b."""

    elementwise = True
    gates: ClassVar[tuple[str, ...]]

    @abstractmethod
    def coefficients(self, drives: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """a and b, from W x + b of the candidate and of each gate, and Lambda where there is one."""

    def roles(self) -> Mapping[str, Role]:
        roles = {}
        for name in (*self.gates, CANDIDATE):
            part, group = (Part.ENCODER, Group.INPUT) if name == CANDIDATE else (Part.RECURRENT, Group.RECURRENT)
            roles[f"encoder_{name}"] = Role(part, ("width", "feature"), group=group)
            roles[f"bias_{name}"] = Role(Part.BIAS, ("width",), group=group)
        if DECAY in self.part_names:
            roles[DECAY] = Role(Part.RECURRENT, ("width",), diagonal=True, rate=True, group=Group.RECURRENT)
        readout = {"readout": Role(Part.READOUT, ("feature", "width")), "skip": Role(Part.GAIN, ("feature",))}
        return roles | readout

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Flax's defaults for dense layers, biases zero but for those that ``biases`` gives."""
        weights = {}
        for name in (*self.gates, CANDIDATE):
            weights[f"encoder_{name}"] = lecun_normal(self.width, self.features, rng)
            weights[f"bias_{name}"] = np.zeros(self.width)
        weights |= self.biases(horizon, rng)
        readout = rng.standard_normal((self.features, self.width)) / math.sqrt(self.width)
        return weights | {"readout": readout, "skip": rng.standard_normal(self.features)}

    def biases(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Initial weights, by name, that decide how fast a state forgets at input zero; none by default."""
        del horizon, rng
        return {}

    def parts(self, weights: Weights) -> dict[str, Tensor]:
        return {name: weights[name] for name in self.part_names}

    def states(self, parts: Parts, x_NBTF: Tensor) -> Tensor:
        return selective_scan(*self.coefficients(self._drives(parts, x_NBTF)))

    def advance(self, parts: Parts, x_NBTF: Tensor, before_NBTM: Tensor, recurrent: bool = True) -> Tensor:
        held = {} if recurrent else {name: parts[name].detach() for name in self.forgetting}
        decay_NBTM, added_NBTM = self.coefficients(self._drives({**parts, **held}, x_NBTF))
        return decay_NBTM * (before_NBTM if recurrent else before_NBTM.detach()) + added_NBTM

    def slope(self, parts: Parts, x_NBTF: Tensor, before_NBTM: Tensor) -> Tensor:
        return self.coefficients(self._drives(parts, x_NBTF))[0]

    def immediate(self, parts: Parts, x_NBF: Tensor, before_NBM: Tensor) -> dict[str, Tensor]:
        with torch.enable_grad():  # a state feels its own drives alone, so that one sum has the gradients of all
            driven = {name: drive.squeeze(2) for name, drive in self._drives(parts, x_NBF.unsqueeze(2)).items()}
            own = {
                name: drive.detach().expand_as(before_NBM).clone().requires_grad_() for name, drive in driven.items()
            }
            decay_NBM, added_NBM = self.coefficients(own)
            state = (decay_NBM * before_NBM.detach() + added_NBM).sum()
            slopes = dict(zip(own, torch.autograd.grad(state, [*own.values()]), strict=True))
        found = {name if name == DECAY else f"bias_{name}": slope for name, slope in slopes.items()}
        for name in (*self.gates, CANDIDATE):
            found[f"encoder_{name}"] = slopes[name].unsqueeze(-1) * x_NBF.unsqueeze(2)
        return {name: found[name] for name in self.part_names}

    def answers(self, weights: Weights, states_NBTM: Tensor, x_NBTF: Tensor) -> Tensor:
        return mapped(weights["readout"], states_NBTM) + weights["skip"][:, None, None] * x_NBTF

    def eigenvalues(self, weights: Weights) -> Tensor:
        """a at input zero."""
        parts = self.parts(weights)
        still_N11F = torch.zeros_like(parts[f"encoder_{CANDIDATE}"][:, :1, None])
        return self.coefficients(self._drives(parts, still_N11F))[0][:, 0, 0]

    def _drives(self, parts: Parts, x_NBTF: Tensor) -> dict[str, Tensor]:
        names = (*self.gates, CANDIDATE)
        encoder = torch.cat([parts[f"encoder_{name}"] for name in names], 1)
        bias = torch.cat([parts.get(f"bias_{name}", encoder.new_zeros(len(encoder), self.width)) for name in names], 1)
        drives = (mapped(encoder, x_NBTF) + bias[:, None, None]).chunk(len(names), -1)
        decay = {DECAY: parts[DECAY][:, None, None]} if DECAY in parts else {}
        return dict(zip(names, drives, strict=True)) | decay


class CompiledUnit(SelectiveUnit):
    """Base of the units whose whole layer is one compiled call where there is one; ``compiled`` is its name there."""

    compiled: ClassVar[str]

    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        # a class derived from a unit may have other coefficients: its own, not an inherited name, says what it computes
        own: str | None = vars(type(self)).get("compiled")
        if own is None or (found := CompiledGated.fitting(x_NBTF)) is None:
            return super().run(weights, x_NBTF)
        return found.answers(own, x_NBTF, weights)


def _named(gates: tuple[str, ...], *more: str) -> frozenset[str]:
    """Parts of these gates and of the candidate, and more."""
    return frozenset({f"{kind}_{name}" for kind in ("encoder", "bias") for name in (*gates, CANDIDATE)} | {*more})


@dataclass(frozen=True, kw_only=True)
class ChronoConfig:
    """How long a unit remembers at the start."""

    chrono: bool = setting(
        False,
        "draw the biases of forgetting so that time scales are spread over 1 ... the horizon (arXiv 1804.11188); "
        "otherwise they are zero, and half of a state is forgotten at each step",
    )


def _chrono(config: ChronoConfig, width: int, horizon: int, rng: np.random.Generator) -> np.ndarray:
    return chrono_biases(width, horizon, rng) if config.chrono else np.zeros(width)


@register_unit("min_gru")
class MinGRUUnit(CompiledUnit):
    """minGRU: one gate, of the input alone, mixes state and candidate."""

    compiled = "min_gru"
    gates = ("update",)
    part_names = _named(gates)

    @dataclass(frozen=True, kw_only=True)
    class Config(ChronoConfig):
        """Nothing but its start."""

    def biases(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        # the decay is 1 - update: a long memory is an update near zero
        return {"bias_update": -_chrono(self.config, self.width, horizon, rng)}

    def coefficients(self, drives: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        # 1 - sigmoid(x) loses its digits where x is large, and sigmoid(-x) does not
        return torch.sigmoid(-drives["update"]), torch.sigmoid(drives["update"]) * drives[CANDIDATE]


@register_unit("min_lstm")
class MinLSTMUnit(CompiledUnit):
    """minLSTM: gates of the input alone, which add up to one."""

    compiled = "min_lstm"
    gates = ("forget", "input")
    part_names = _named(gates)

    @dataclass(frozen=True, kw_only=True)
    class Config(ChronoConfig):
        """Nothing but its start."""

    def biases(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        spread = _chrono(self.config, self.width, horizon, rng)
        return {"bias_forget": spread, "bias_input": -spread}

    def coefficients(self, drives: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        forget, new = torch.sigmoid(drives["forget"]), torch.sigmoid(drives["input"])
        # shares that add up to one: a state is a mean of candidates, and cannot grow
        both = forget + new
        return forget / both, new / both * drives[CANDIDATE]


@register_unit("hgrn")
class HGRNUnit(CompiledUnit):
    """HGRN: a gate of the input alone, above a trained lower bound of the decay."""

    compiled = "hgrn"
    gates = ("forget",)
    part_names = _named(gates, DECAY)
    forgetting = frozenset({DECAY})

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Nothing but its start."""

    def biases(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        del horizon  # bounds are spread alike for all lengths
        bound = (np.arange(self.width) + rng.uniform(size=self.width)) / self.width
        return {DECAY: np.log(bound) - np.log1p(-bound)}

    def coefficients(self, drives: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        # 1 - a = (1 - g) (1 - f), without the digits that 1 - a would lose
        new = torch.sigmoid(-drives[DECAY]) * torch.sigmoid(-drives["forget"])
        return 1.0 - new, new * silu(drives[CANDIDATE])


@register_unit("rg_lru")
class RGLRUUnit(CompiledUnit):
    """Real-gated LRU (Griffin, Hawk): a trained decay, sharpened by a gate of the input."""

    compiled = "rg_lru"
    gates = ("recurrence", "input")
    part_names = _named(gates, DECAY)
    forgetting = frozenset({DECAY})

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Starts as published: a^c uniform between 0.9 and 0.999."""

    def biases(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        del horizon  # as published, decays are drawn alike for all lengths
        decay = rng.uniform(LEAST, MOST, self.width) ** (1.0 / SHARPNESS)
        return {DECAY: np.log(decay) - np.log1p(-decay)}

    def coefficients(self, drives: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        log_decay = -SHARPNESS * torch.sigmoid(drives["recurrence"]) * softplus(-drives[DECAY])
        # 1 - a^2 without its cancellation near a = 1
        gain = torch.sqrt(-torch.expm1(2.0 * log_decay))
        return torch.exp(log_decay), gain * torch.sigmoid(drives["input"]) * drives[CANDIDATE]
