"""The RNN as a unit of deep models, in the form of the code published with arXiv 2305.15947.

    h_t = A sigma(h_{t-1}) + B x_t,   y_t = C h_t + D x_t

The matrix stands outside of the activation: states are what an Elman network has before it. With the linear activation
it is a dense linear recurrence. Parts: ``matrix`` A ``[N, M, M]`` and ``encoder`` B ``[N, M, F]``. D is one number for
each feature, and there is no bias: the layers around have those.

Letters: see memsweep.models.deep.unit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models import spectrum
from memsweep.models.affine import balanced_as_a_whole
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.unit import OnlineUnit, Parts, before, mapped
from memsweep.models.initialization import truncated_normal
from memsweep.recurrence.scan import scan
from memsweep.registry import register_unit

LINEAR, TANH, RELU = "linear", "tanh", "relu"


@register_unit("rnn")
class RNNUnit(OnlineUnit):
    """Recurrent network with a dense matrix, linear or with an activation on the states that it reads."""

    part_names = frozenset({"matrix", "encoder"})
    forgetting = frozenset({"matrix"})

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """A dense recurrent matrix, trained as it stands."""

        activation: str = setting(
            LINEAR, "what the recurrent matrix reads of a state: linear, tanh or relu", choices=(LINEAR, TANH, RELU)
        )

    @classmethod
    def is_linear(cls, config: Config) -> bool:
        return config.activation == "linear"

    def roles(self) -> Mapping[str, Role]:
        return {
            "matrix": Role(Part.RECURRENT, ("width", "width"), group=Group.RECURRENT),
            "encoder": Role(Part.ENCODER, ("width", "feature"), group=Group.INPUT),
            "readout": Role(Part.READOUT, ("feature", "width")),
            "skip": Role(Part.GAIN, ("feature",)),
        }

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """As published: A of truncated normal entries over sqrt(M), of spectral radius 0.88 in large widths."""
        del horizon  # the matrix is drawn alike for all lengths
        width, features = self.width, self.features
        return {
            "matrix": truncated_normal((width, width), rng) / math.sqrt(width),
            "encoder": rng.standard_normal((width, features)) / math.sqrt(features),
            "readout": rng.standard_normal((features, width)) / math.sqrt(width),
            "skip": rng.standard_normal(features),
        }

    def parts(self, weights: Weights) -> dict[str, Tensor]:
        return {"matrix": weights["matrix"], "encoder": weights["encoder"]}

    def states(self, parts: Parts, x_NBTF: Tensor) -> Tensor:
        drive_NBTM, activation = mapped(parts["encoder"], x_NBTF), self.config.activation
        # the scan's states are sigma(h)
        shown_NBTM = scan(drive_NBTM, parts["matrix"], activation, leak=0.0)
        return shown_NBTM if activation == LINEAR else drive_NBTM + mapped(parts["matrix"], before(shown_NBTM))

    def advance(self, parts: Parts, x_NBTF: Tensor, before_NBTM: Tensor, recurrent: bool = True) -> Tensor:
        kept_NBTM = mapped(parts["matrix"], self._shown(before_NBTM))
        return (kept_NBTM if recurrent else kept_NBTM.detach()) + mapped(parts["encoder"], x_NBTF)

    def slope(self, parts: Parts, x_NBTF: Tensor, before_NBTM: Tensor) -> Tensor:
        own_NBTM = parts["matrix"].diagonal(dim1=-2, dim2=-1)[:, None, None]
        if self.config.activation == TANH:
            return own_NBTM * (1.0 - torch.tanh(before_NBTM).square())
        if self.config.activation == RELU:
            return own_NBTM * (before_NBTM > 0.0)
        return own_NBTM.expand_as(before_NBTM)

    def immediate(self, parts: Parts, x_NBF: Tensor, before_NBM: Tensor) -> dict[str, Tensor]:
        rows = (-1, -1, self.width, -1)
        shown_NBM = self._shown(before_NBM)
        return {"matrix": shown_NBM.unsqueeze(2).expand(rows), "encoder": x_NBF.unsqueeze(2).expand(rows)}

    def answers(self, weights: Weights, states_NBTM: Tensor, x_NBTF: Tensor) -> Tensor:
        return mapped(weights["readout"], states_NBTM) + weights["skip"][:, None, None] * x_NBTF

    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        """By one scale for all states."""
        return balanced_as_a_whole(weights, ["encoder"], [], ["readout"])

    def eigenvalues(self, weights: Weights) -> Tensor:
        return spectrum.eigenvalues(weights["matrix"])

    def _shown(self, states: Tensor) -> Tensor:
        return {LINEAR: lambda h: h, TANH: torch.tanh, RELU: torch.relu}[self.config.activation](states)
