"""A reservoir as a unit of deep models: an echo state network (Jaeger 2001), with leaky units (Jaeger et al. 2007).

    h_t = (1 - a) h_{t-1} + a tanh(W h_{t-1} + U x_t + b),   y_t = C h_t + D x_t

W, U and b are drawn once and never trained: a study says so by ``training.groups``, and is refused otherwise. C and D
are trained by the steps of the study's optimizer, as all else in a deep model; the published readout is a least-squares
fit. W has normal entries, most of them zero where ``density`` is small, and is scaled to the spectral radius that is
asked for. Balls move W and U as those of any unit: how far may a reservoir be off before its trained readout fails?

Letters: see memsweep.models.deep.unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models import spectrum
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.unit import State, Unit, mapped
from memsweep.recurrence.scan import scan
from memsweep.registry import register_unit

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig


@register_unit("echo_state")
class EchoStateUnit(Unit):
    """A random recurrent network that is not trained; the maps behind it are."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The weights that are drawn and stay fixed."""

        radius: float = setting(
            0.9, "spectral radius of W; below 1 a state forgets its start, in practice", above=0.0, at_most=10.0
        )
        leak: float = setting(1.0, "share of a state that a step renews, a (1: all of it)", above=0.0, at_most=1.0)
        input_scale: float = setting(1.0, "entries of U are uniform within this", above=0.0, at_most=1e6)
        density: float = setting(1.0, "share of the entries of W that are not zero", above=0.0, at_most=1.0)

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        groups = trial.training.groups
        if groups.recurrent.factor != 0 or groups.input.factor != 0:
            yield (
                "training would change the reservoir of the unit echo_state, which stays as it was drawn: add "
                "training.groups: {recurrent: {factor: 0, weight_decay: 0}, input: {factor: 0, weight_decay: 0}}, or "
                "choose the unit rnn with the activation tanh to train it"
            )

    def roles(self) -> Mapping[str, Role]:
        return {
            "matrix": Role(Part.RECURRENT, ("width", "width"), group=Group.RECURRENT),
            "encoder": Role(Part.ENCODER, ("width", "feature"), group=Group.INPUT),
            "bias": Role(Part.BIAS, ("width",), group=Group.INPUT),
            "readout": Role(Part.READOUT, ("feature", "width")),
            "skip": Role(Part.GAIN, ("feature",)),
        }

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """W normal and scaled to its radius, U and b uniform, C normal, D as of the unit rnn."""
        del horizon
        width, features, config = self.width, self.features, self.config
        matrix = rng.standard_normal((width, width))
        matrix *= rng.uniform(size=matrix.shape) < config.density
        largest = np.abs(np.linalg.eigvals(matrix)).max()
        return {
            "matrix": matrix * (config.radius / largest if largest > 0 else 0.0),
            "encoder": rng.uniform(-config.input_scale, config.input_scale, (width, features)),
            "bias": rng.uniform(-config.input_scale, config.input_scale, width) / math.sqrt(features),
            "readout": rng.standard_normal((features, width)) / math.sqrt(width),
            "skip": rng.standard_normal(features),
        }

    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        drive_NBTM, leak = self._drive(weights, x_NBTF), self.config.leak
        states_NBTM = scan(drive_NBTM, weights["matrix"], "tanh", leak=1.0 - leak, gain=leak)
        return self._answers(weights, states_NBTM, x_NBTF)

    def step(self, weights: Weights, x_NBF: Tensor, state: State | None) -> tuple[Tensor, State]:
        x_NB1F, leak = x_NBF.unsqueeze(2), self.config.leak
        drive_NB1M = self._drive(weights, x_NB1F)
        before_NB1M = torch.zeros_like(drive_NB1M) if state is None else state["states"].unsqueeze(2)
        new_NB1M = torch.tanh(drive_NB1M + mapped(weights["matrix"], before_NB1M))
        states_NB1M = (1.0 - leak) * before_NB1M + leak * new_NB1M
        return self._answers(weights, states_NB1M, x_NB1F).squeeze(2), {"states": states_NB1M.squeeze(2)}

    def eigenvalues(self, weights: Weights) -> Tensor:
        """Of the step, at state and input zero."""
        slope_NM1 = (1.0 - torch.tanh(weights["bias"]).square()).unsqueeze(-1)
        leak, matrix = self.config.leak, weights["matrix"]
        still = torch.eye(self.width, dtype=matrix.dtype, device=matrix.device)
        return spectrum.eigenvalues((1.0 - leak) * still + leak * slope_NM1 * matrix)

    @staticmethod
    def _drive(weights: Weights, x_NBTF: Tensor) -> Tensor:
        return mapped(weights["encoder"], x_NBTF) + weights["bias"][:, None, None]

    @staticmethod
    def _answers(weights: Weights, states_NBTM: Tensor, x_NBTF: Tensor) -> Tensor:
        return mapped(weights["readout"], states_NBTM) + weights["skip"][:, None, None] * x_NBTF
