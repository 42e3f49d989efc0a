"""The recurrent network with a free matrix, the reference of the reparameterized ones.

h_t = rho_t sigma(U e(x_t) + b + V h_{t-1}) with any V (see memsweep.models.matrix.base). With the initialization
``xavier`` it is the plain RNN of the published tables; with an orthogonal one it starts orthogonal and is trained
without constraint; the plain Stair RNN adds its gains to that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.matrix.base import MatrixRNN
from memsweep.models.matrix.config import FreeConfig
from memsweep.models.matrix.initial import free_matrix
from memsweep.registry import register_model


class FreeMatrixRNN(MatrixRNN):
    """Base of models whose raw recurrent weights, ``recurrent_weight``, are a matrix without constraint."""

    Config: ClassVar[type] = FreeConfig
    group: ClassVar[Group] = Group.REST
    """The optimizer's group of that weight."""

    @classmethod
    def recurrent_roles(cls, config: FreeConfig) -> dict[str, Role]:
        return {"recurrent_weight": Role(Part.RECURRENT, ("width", "width"), group=cls.group)}

    @classmethod
    def recurrent_initial(cls, config: FreeConfig, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"recurrent_weight": free_matrix(config.initialization, config.width, rng)}


@register_model("rnn")
class RNN(FreeMatrixRNN):
    """Recurrent network with a free recurrent matrix; linear with the activation ``linear`` and no stair."""

    @dataclass(frozen=True, kw_only=True)
    class Config(FreeConfig):
        """A recurrence with a free matrix, gains in time and a linear readout."""

    def matrix(self, weights: Weights) -> Tensor:
        return weights["recurrent_weight"]
