"""State-space layers with selection, as units of deep models: S6 (Mamba) and its successor SSD (Mamba-2).

A channel x_t has S states, and forgets by a step size that is a function of the input:

    h_t = exp(-Delta_t r) h_{t-1} + g_t B_t x_t,   y_t = C_t . h_t + D x_t,   Delta_t = softplus(W_Delta u_t + b_Delta)

with u_t the unit's input, and x_t, B_t and C_t linear maps of u_t (arXiv 2312.00752, equations 1 to 4 and algorithm 2;
arXiv 2405.21060, section 7). B_t and C_t are shared by all channels, Delta_t by the channels of a head. The rate r > 0
is a parameterization's, of one raw weight for each state (``elementwise``, as in S6) or for each head (``headwise``, as
in SSD). g_t is Delta_t (``euler``, as published) or (1 - exp(-Delta_t r)) / r (``exact``, zero-order hold).

- ``s6``: heads of one channel, elementwise rates;
- ``ssd``: heads of several channels with one rate each;
- ``ssd_selective``: ssd, and the raw weight of the rate is a linear map of the input, too: the decay of Mamba-3
  (state-spaces/mamba, mamba_ssm/modules/mamba3.py), for which pull request 962 there replaced ``softplus`` by
  ``heavy_tail``. Mamba-3's rotation, trapezoidal rule, norms of B and C and its least rate are those of the unit
  ``mamba3``.

The published blocks around the recurrence are not here: no short convolution, no activation of x, no gate; layers have
a ``mixing`` of their own. Delta_t is a full linear map, where Mamba's has a low rank.

Parts have a row for each state, so that every learning rule can train the unit. Backpropagation through time (``run``)
takes each map once, (H + S + D) F multiplications a step, where the parts cost 3 M F (4 M F with selective rates). A
head of ``ssd`` that decays as a whole is a matrix P x S that holds x_t by the key B_t: where there is no compiled call
for a whole layer, ``run`` takes it as such.

Letters: see memsweep.models.deep.unit; S states of a channel, D channels, H heads of P channels, M = S D.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, softplus

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.unit import mapped
from memsweep.models.deep.unit_selective import CANDIDATE, DECAY, SelectiveUnit
from memsweep.models.parameterizations.base import EULER, EXACT, build
from memsweep.models.parameterizations.maps import Exp, HeavyTail
from memsweep.recurrence.matrix.states import matrix_states
from memsweep.recurrence.selective.state_space import CompiledStateSpace
from memsweep.recurrence.varying import selective_scan
from memsweep.registry import register_unit

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

ELEMENTWISE, HEADWISE = "elementwise", "headwise"
STEP, RATE, INPUT, OUTPUT = "step", "rate", "input", "output"
SHORTEST_STEP, LONGEST_STEP = 1e-3, 0.1
"""Between them Delta is drawn at the start, log-uniform, at input zero."""
SLOWEST_RATE, FASTEST_RATE = 1.0, 16.0
"""Between them the rates of heads are drawn at the start; those of elementwise rates are 1, 2, ... S."""

_STATES = "states of a channel (the papers have 16 in Mamba, 64 to 128 in Mamba-2); width counts those of all channels"
_HEAD_DIM = "channels of a head, which share their step size (1 in Mamba, 64 in Mamba-2)"


@dataclass(frozen=True, kw_only=True)
class StateSpaceConfig:
    """The sizes, and how a state decays."""

    states: int = setting(4, _STATES, at_least=1, at_most=1_000_000)
    head_dim: int = setting(1, _HEAD_DIM, at_least=1, at_most=1_000_000)
    decay: str = setting(
        ELEMENTWISE,
        "rates: elementwise (one for each state of each channel, as in Mamba) or headwise (one for each head, as in "
        "Mamba-2)",
        choices=(ELEMENTWISE, HEADWISE),
    )
    parameterization: Any = setting(
        doc="map from the raw weights of the decay to rates", factory=Exp.Config, registered="parameterization"
    )
    discretization: str = setting(
        EULER,
        "scale of the input: euler, the step size, as published; or exact (zero-order hold), (1 - exp(-step rate)) / "
        "rate; the decay is exp(-step rate) in both",
        choices=(EULER, EXACT),
    )


class StateSpaceUnit(SelectiveUnit):
    """Base of the selective state-space units; a unit says where its rates come from."""

    gates: ClassVar[tuple[str, ...]] = (STEP, INPUT)
    part_names = frozenset({f"encoder_{STEP}", f"bias_{STEP}", f"encoder_{INPUT}", f"encoder_{CANDIDATE}", DECAY})
    forgetting = frozenset({DECAY})

    def __init__(self, config: Any, width: int, features: int) -> None:
        super().__init__(config, width, features)
        self.channels = width // config.states
        self.heads = self.channels // config.head_dim
        self.parameterization = build(config.parameterization)

    @classmethod
    def refusal(cls, config: Any, width: int, features: int) -> str | None:
        head = config.states * config.head_dim
        if width % head == 0:
            return None
        return (
            f"the unit {config.name} has heads of {config.head_dim} channels with {config.states} states each, so that "
            f"width is a multiple of {head}, but width is {width}: give it {head * (width // head + 1)}, or the unit "
            "other states or another head_dim"
        )

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        yield from super().problems(trial)
        place = next(place for place, each in enumerate(cls.__mro__) if "run" in vars(each))
        if (runs := cls.__mro__[place]) is StateSpaceUnit:
            return
        for name in ("coefficients", "answers"):
            if any(name in vars(each) for each in cls.__mro__[:place]):
                yield (
                    f"{cls.__name__} has {name} of its own, which the run of {runs.__name__} does not call: write "
                    "'run = StateSpaceUnit.run' in it, or a run of its own"
                )

    def roles(self) -> Mapping[str, Role]:
        recurrent, into = Group.RECURRENT, Group.INPUT
        return self._rate_roles() | {
            f"encoder_{STEP}": Role(Part.RECURRENT, ("head", "feature"), group=recurrent),
            f"bias_{STEP}": Role(Part.BIAS, ("head",), group=recurrent),
            f"encoder_{INPUT}": Role(Part.ENCODER, ("state", "feature"), group=into),
            f"encoder_{CANDIDATE}": Role(Part.ENCODER, ("channel", "feature"), group=into),
            f"encoder_{OUTPUT}": Role(Part.READOUT, ("state", "feature")),
            "readout": Role(Part.READOUT, ("feature", "channel")),
            "skip": Role(Part.GAIN, ("channel",)),
        }

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """As published: maps as torch.nn.Linear draws them, step sizes log-uniform, rates as the module says."""
        del horizon  # step sizes and rates are drawn alike for all lengths
        step = np.exp(rng.uniform(np.log(SHORTEST_STEP), np.log(LONGEST_STEP), self.heads))
        # the inverse of softplus: at input zero the step sizes are those that were drawn
        weights = {f"bias_{STEP}": step + np.log(-np.expm1(-step)), "skip": np.ones(self.channels)}
        sizes = {STEP: self.heads, INPUT: self.config.states, CANDIDATE: self.channels, OUTPUT: self.config.states}
        weights |= {f"encoder_{name}": _uniform(rng, size, self.features) for name, size in sizes.items()}
        return weights | {"readout": _uniform(rng, self.features, self.channels)} | self._initial_rates(rng)

    def parts(self, weights: Weights) -> dict[str, Tensor]:
        return {name: self._expanded(name, weights[name]) for name in self.part_names}

    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        # ``parts`` repeats a map for each state; here each runs once, and ``coefficients`` broadcasts over [H, P, S]
        names, roles = (*self.gates, CANDIDATE), self.roles()
        encoders = [weights[f"encoder_{name}"] for name in names]
        series = mapped(torch.cat(encoders, 1), x_NBTF).split([each.shape[1] for each in encoders], -1)
        drives = {}
        for name, drive in zip(names, series, strict=True):
            shifted = drive + weights[f"bias_{name}"][:, None, None] if f"bias_{name}" in roles else drive
            drives[name] = self._by_head(shifted, roles[f"encoder_{name}"])
        if DECAY in roles:
            drives[DECAY] = self._by_head(weights[DECAY][:, None, None], roles[DECAY])
        decay, added = self.coefficients(drives)
        states_NBTM = selective_scan(decay.expand_as(added).flatten(-3), added.flatten(-3))
        return self.answers(weights, states_NBTM, x_NBTF)

    def _at_once(self, weights: Weights, x_NBTF: Tensor) -> Tensor | None:
        """The answers by one compiled call; None where torch's operations compute them."""
        compiled = CompiledStateSpace.fitting(x_NBTF) if self.config.discretization == EULER else None
        if compiled is None:
            return None
        # one replica has nobody beside it, and a small layer is spared the copies
        raw_NR = weights[DECAY] if len(x_NBTF) == 1 else _apart(weights[DECAY])
        each, rate_NR = self.width // raw_NR.shape[1], self.parameterization.rate(raw_NR)
        own = {name: weights[f"encoder_{name}"] for name in (STEP, INPUT, CANDIDATE, OUTPUT)}
        own |= {"bias": weights[f"bias_{STEP}"], "skip": weights["skip"], "readout": weights["readout"]}
        return compiled.answers(x_NBTF, own | {RATE: rate_NR if each == 1 else rate_NR.repeat_interleave(each, 1)})

    def coefficients(self, drives: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        step = softplus(_apart(drives[STEP]))
        rate = self.parameterization.rate(_apart(drives[DECAY if DECAY in drives else RATE]))
        exponent = _apart(step * -rate)
        gain = step if self.config.discretization == EULER else step * _MeanDecay.apply(exponent)
        return torch.exp(exponent), gain * drives[INPUT] * drives[CANDIDATE]

    def answers(self, weights: Weights, states_NBTM: Tensor, x_NBTF: Tensor) -> Tensor:
        channel_NBTD = mapped(weights[f"encoder_{CANDIDATE}"], x_NBTF)
        output_NBT1S = mapped(weights[f"encoder_{OUTPUT}"], x_NBTF).unsqueeze(-2)
        read_NBTD = (states_NBTM.unflatten(-1, (self.channels, -1)) * output_NBT1S).sum(-1)
        return mapped(weights["readout"], torch.addcmul(read_NBTD, weights["skip"][:, None, None], channel_NBTD))

    def _rate_roles(self) -> dict[str, Role]:
        axis = "width" if self.config.decay == ELEMENTWISE else "head"
        return {DECAY: Role(Part.RECURRENT, (axis,), diagonal=True, rate=True, group=Group.RECURRENT)}

    def _initial_rates(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        if self.config.decay == ELEMENTWISE:
            rates = np.tile(np.arange(1.0, self.config.states + 1.0), self.channels)
        else:
            rates = rng.uniform(SLOWEST_RATE, FASTEST_RATE, self.heads)
        return {DECAY: self._raw(rates)}

    def _raw(self, rates: np.ndarray) -> np.ndarray:
        """Raw weights of rates, or of the nearest that the parameterization reaches."""
        return self.parameterization.raw_for(torch.from_numpy(rates), 1.0, EXACT).numpy()

    def _by_head(self, drive: Tensor, role: Role) -> Tensor:
        """``[..., H, P, S]``, with ones for the axes that the rows of a weight do not have."""
        heads, channels, states = self.heads, self.config.head_dim, self.config.states
        sizes = {"head": (heads, 1, 1), "state": (1, 1, states), "channel": (heads, channels, 1)}
        return drive.unflatten(-1, sizes.get(role.axes[0], (heads, channels, states)))

    def _expanded(self, name: str, weight: Tensor) -> Tensor:
        """A row of the weight for each state, ``[N, M, ...]``: channel after channel, state after state."""
        if name == f"encoder_{INPUT}":  # a row for each state of any channel
            return weight.repeat(1, self.channels, 1)
        return weight.repeat_interleave(self.width // weight.shape[1], 1)


@register_unit("s6")
class S6Unit(StateSpaceUnit):
    """S6, the recurrence of Mamba: channels of several states, a step size from the input, one rate for each state."""

    @dataclass(frozen=True, kw_only=True)
    class Config(StateSpaceConfig):
        """Channels of several states each; width counts all states."""

    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        found = self._at_once(weights, x_NBTF)
        return super().run(weights, x_NBTF) if found is None else found


@dataclass(frozen=True, kw_only=True)
class HeadConfig(StateSpaceConfig):
    """Heads of several channels with one decay."""

    states: int = setting(2, _STATES, at_least=1, at_most=1_000_000)
    head_dim: int = setting(2, _HEAD_DIM, at_least=1, at_most=1_000_000)
    decay: str = setting(
        HEADWISE,
        "rates: headwise (one for each head, as in Mamba-2) or elementwise (one for each state of each channel)",
        choices=(ELEMENTWISE, HEADWISE),
    )


@register_unit("ssd")
class SSDUnit(StateSpaceUnit):
    """SSD, the recurrence of Mamba-2: all states of a head decay alike, so that its state is a matrix."""

    @dataclass(frozen=True, kw_only=True)
    class Config(HeadConfig):
        """Heads of channels of states; width counts all states."""

    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        if (found := self._at_once(weights, x_NBTF)) is not None:
            return found
        if self.config.decay == ELEMENTWISE:
            return super().run(weights, x_NBTF)
        maps = {name: weights[f"encoder_{name}"] for name in (STEP, INPUT, CANDIDATE, OUTPUT)}
        joined = mapped(torch.cat([*maps.values()], 1), x_NBTF)
        drive_NBTH, key_NBTS, channel_NBTD, query_NBTS = joined.split([each.shape[1] for each in maps.values()], -1)
        step_NBTH = softplus(_apart(drive_NBTH + weights[f"bias_{STEP}"][:, None, None]))
        exponent_NBTH = _apart(step_NBTH * -self.parameterization.rate(_apart(weights[DECAY]))[:, None, None])
        euler = self.config.discretization == EULER
        gain_NBTH = step_NBTH if euler else step_NBTH * _MeanDecay.apply(exponent_NBTH)
        value_NBTHP = gain_NBTH.unsqueeze(-1) * channel_NBTD.unflatten(-1, (self.heads, -1))
        query, key = (part.unsqueeze(3).expand(-1, -1, -1, self.heads, -1) for part in (query_NBTS, key_NBTS))
        heads = [part.transpose(2, 3).flatten(0, 2) for part in (query, key, value_NBTHP, exponent_NBTH.unsqueeze(-1))]
        found_XTP, _ = matrix_states(*heads)
        read_NBTD = found_XTP.unflatten(0, (*x_NBTF.shape[:2], -1)).transpose(2, 3).flatten(-2)
        return mapped(weights["readout"], torch.addcmul(read_NBTD, weights["skip"][:, None, None], channel_NBTD))


@register_unit("ssd_selective")
class SelectiveSSDUnit(StateSpaceUnit):
    """SSD whose rate is a function of the input, beside its step size: the decay of Mamba-3."""

    gates = (STEP, INPUT, RATE)
    part_names = StateSpaceUnit.part_names - {DECAY} | {f"encoder_{RATE}", f"bias_{RATE}"}
    forgetting = frozenset({f"encoder_{RATE}", f"bias_{RATE}"})

    @dataclass(frozen=True, kw_only=True)
    class Config(HeadConfig):
        """Heads of channels of states; the decay starts with rate 1 at input zero."""

        parameterization: Any = setting(
            doc="map from a linear map of the input to rates", factory=HeavyTail.Config, registered="parameterization"
        )

    @property
    def _rates(self) -> int:
        return self.width if self.config.decay == ELEMENTWISE else self.heads

    def _rate_roles(self) -> dict[str, Role]:
        axis = "width" if self.config.decay == ELEMENTWISE else "head"
        return {
            f"encoder_{RATE}": Role(Part.RECURRENT, (axis, "feature"), group=Group.RECURRENT),
            f"bias_{RATE}": Role(Part.BIAS, (axis,), group=Group.RECURRENT),
        }

    def _initial_rates(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        encoder = _uniform(rng, self._rates, self.features)
        return {f"encoder_{RATE}": encoder, f"bias_{RATE}": self._raw(np.ones(self._rates))}


def _uniform(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """A matrix as torch.nn.Linear draws it."""
    return rng.uniform(-1.0, 1.0, (rows, columns)) / np.sqrt(columns)


def _apart(values: Tensor) -> Tensor:
    """A copy in which replicas do not touch, so that a function runs over each by itself.

    The last bits of a function of many numbers depend on where among them a number stands: a processor computes most
    of them in groups and the rest one by one. So a replica has the same bits in a pack and alone.
    """
    return pad(values.flatten(1), (0, 1))[:, :-1].view(values.shape)


class _MeanDecay(torch.autograd.Function):
    """(e^y - 1) / y, the mean of the decay over a step with exponent y; 1 at y = 0."""

    @staticmethod
    def forward(ctx: Any, exponent: Tensor) -> Tensor:
        mean = torch.where(exponent == 0, 1.0, torch.expm1(exponent) / exponent)
        ctx.save_for_backward(exponent, mean)
        return mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> Tensor:
        exponent, mean = ctx.saved_tensors
        series = torch.zeros_like(exponent)  # sum over k from 1 of k y^(k - 1) / (k + 1)!
        for order in range(_SERIES_TERMS, 0, -1):
            series = series * exponent + order / math.factorial(order + 1)
        slope = torch.where(exponent.abs() < _SERIES_BELOW, series, (torch.exp(exponent) - mean) / exponent)
        return outer[0] * slope


_SERIES_BELOW, _SERIES_TERMS = 0.02, 7
"""Where the closed form of the gradient loses digits: the series is exact to 1e-14 there, the closed form beyond."""
