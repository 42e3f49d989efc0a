"""The recurrent network with a free matrix, the reference of the reparameterized ones.

h_t = rho_t sigma(U e(x_t) + b + V h_{t-1}) with any V (see memsweep.models.matrix.base). With the initialization
``xavier`` it is the plain RNN of the published tables; with an orthogonal one it starts orthogonal and is trained
without constraint; the plain Stair RNN adds its gains to that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from memsweep.models.base import Group, Part, Role, Traits, Weights
from memsweep.models.matrix.base import MatrixRNN
from memsweep.models.matrix.config import EXP_ALPHA, LINEAR, NONE, FreeConfig, MatrixConfig
from memsweep.models.matrix.initial import free_matrix
from memsweep.models.orthogonal_maps import polar
from memsweep.models.spectrum import spectral_norm
from memsweep.recurrence.cell import Cell, activated
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


@register_model("orthogonal_rnn")
class OrthogonalRNN(FreeMatrixRNN):
    """Recurrent network with an orthogonal recurrent matrix; linear with the activation ``linear`` and no stair."""

    @dataclass(frozen=True, kw_only=True)
    class Config(FreeConfig):
        """A recurrence with an orthogonal matrix, the polar factor of a free one, gains in time, a linear readout."""

    group = Group.ORTHOGONAL

    def matrix(self, weights: Weights) -> Tensor:
        return polar(weights["recurrent_weight"])

    def norm(self, weights: Weights) -> Tensor:
        return torch.ones_like(weights["recurrent_weight"][..., 0, 0])


@register_model("published_rnn_orth")
class PublishedRNNOrth(FreeMatrixRNN):
    """The published "RNN-Orth": a linear recurrence of spectral norm 1, driven through an activation."""

    @dataclass(frozen=True, kw_only=True)
    class Config(FreeConfig):
        """The published RNN-Orth: neither orthogonal nor with an activation on the recurrence; for comparison."""

        def problems(self) -> Iterable[str]:
            if self.stair == EXP_ALPHA:
                yield (
                    "stair is exp_alpha, a function of a step's pre-activation, but published_rnn_orth has none: its "
                    "recurrence is linear. Use alpha or a fixed schedule, or the model orthogonal_rnn"
                )

    def matrix(self, weights: Weights) -> Tensor:
        """V / |V|."""
        free = weights["recurrent_weight"]
        return free / spectral_norm(free)[..., None, None]

    def norm(self, weights: Weights) -> Tensor:
        return torch.ones_like(weights["recurrent_weight"][..., 0, 0])

    @classmethod
    def traits(cls, config: MatrixConfig) -> Traits:
        traits = super().traits(config)
        return replace(traits, layer=traits.linear)  # the activation is not inside the recurrence

    @classmethod
    def is_matrix_recurrence(cls, config: MatrixConfig) -> bool:
        return config.stair == NONE

    def recurrence(self, weights: Weights, inputs: Tensor) -> tuple[Tensor, Tensor, Cell]:
        drive_NBTM, matrix_NMM, cell = super().recurrence(weights, inputs)
        return activated(drive_NBTM, cell), matrix_NMM, replace(cell, activation=LINEAR, threshold=None)
