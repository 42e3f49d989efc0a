"""The network that the Stair RNN's published code runs under the name "RNN-Orth", kept for comparison.

h_t = rho_t (sigma(U e(x_t) + b) + V h_{t-1} / |V|),   h_{-1} = 0

with the spectral norm |V|. It differs from what the name says in two ways: V is orthogonal at the start alone, and
the activation acts on the input and not on the recurrence, which is linear. It differs from the published code in one:
there one step of a power iteration estimates |V| at each use; here the norm is exact, and so is the bound on the
gradient, whose norm is at most the product of the gains.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from memsweep.models.base import Traits, Weights
from memsweep.models.matrix.config import LINEAR, FreeConfig, MatrixConfig
from memsweep.models.matrix.gain_schedules import EXP_ALPHA, NONE
from memsweep.models.matrix.rnn import FreeMatrixRNN
from memsweep.models.spectrum import spectral_norm
from memsweep.recurrence.cell import Cell, activated
from memsweep.registry import register_model


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
