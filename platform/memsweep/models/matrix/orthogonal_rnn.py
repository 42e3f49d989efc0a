"""The recurrent network with an orthogonal matrix: the polar factor of a free matrix.

h_t = rho_t sigma(U e(x_t) + b + V h_{t-1}) with V = W (W' W)^{-1/2}, the orthogonal matrix nearest to the trained W
(see memsweep.models.matrix.base). Unlike the exponential of a skew-symmetric matrix it reaches both kinds of orthogonal
matrices, those of determinant 1 and those of -1; training stays in the kind of its initial matrix.

This is the network that the name "RNN-Orth" describes. The Stair RNN's published code runs another one under that
name, ``published_rnn_orth``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.models.base import Group, Weights
from memsweep.models.matrix.config import FreeConfig
from memsweep.models.matrix.rnn import FreeMatrixRNN
from memsweep.models.orthogonal_maps import polar
from memsweep.registry import register_model


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
