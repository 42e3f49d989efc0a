"""The exponential RNN: its recurrent matrix is a rotation at every training step (arXiv 1901.08428).

h_t = rho_t sigma(U e(x_t) + b + V h_{t-1}),   V = exp(S)   or   (I + S)^{-1} (I - S)

with the skew-symmetric S = A - A' of the strictly upper triangle A of the trained weights (see
memsweep.models.matrix.base). Every step of any optimizer on A leaves V orthogonal. The gradient is that of the
exponential itself, which the published code writes out as a formula; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.matrix.base import MatrixRNN
from memsweep.models.matrix.config import INITIALIZATION_DOC, MatrixConfig
from memsweep.models.matrix.initial import CAYLEY as CAYLEY_ANGLES
from memsweep.models.matrix.initial import GENERATORS, generator
from memsweep.models.orthogonal_maps import CAYLEY, EXPONENTIAL, cayley, exponential, triangle_skew
from memsweep.registry import register_model

GENERATOR = Role(Part.RECURRENT, ("width", "width"), group=Group.ORTHOGONAL)
"""The role of the raw weights of a rotation."""


@dataclass(frozen=True, kw_only=True)
class RotationConfig(MatrixConfig):
    """The fields of models with a rotation in their recurrence."""

    map: str = setting(
        EXPONENTIAL,
        "rotation of a skew-symmetric matrix S: exponential, exp(S), or cayley, (I + S)^-1 (I - S), which reaches all "
        "but those that turn some plane by half a circle",
        choices=(EXPONENTIAL, CAYLEY),
    )
    initialization: str = setting(CAYLEY_ANGLES, INITIALIZATION_DOC, choices=GENERATORS)
    bias: bool = setting(False, "a trained bias next to the input weights (the published model has none)")


def rotation_of(weights: Weights, config: RotationConfig) -> Tensor:
    """The rotation of the weights called generator, ``[N..., M, M]``."""
    skew = triangle_skew(weights["generator"])
    return exponential(skew) if config.map == EXPONENTIAL else cayley(skew)


@register_model("exp_rnn")
class ExpRNN(MatrixRNN):
    """Recurrent network whose matrix is a rotation; linear with the activation ``linear`` and no stair."""

    @dataclass(frozen=True, kw_only=True)
    class Config(RotationConfig):
        """A recurrence by a rotation, a map of a skew-symmetric matrix, gains in time and a linear readout."""

    @classmethod
    def recurrent_roles(cls, config: RotationConfig) -> dict[str, Role]:
        return {"generator": GENERATOR}

    @classmethod
    def recurrent_initial(cls, config: RotationConfig, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"generator": generator(config.initialization, config.width, rng, config.map)}

    def matrix(self, weights: Weights) -> Tensor:
        return rotation_of(weights, self.config)

    def norm(self, weights: Weights) -> Tensor:
        return torch.ones_like(weights["generator"][..., 0, 0])
