"""The recurrent network whose matrix is free: what reparameterized ones are compared with.

h_t = rho_t sigma(U e(x_t) + b + V h_{t-1}) with any V (see memsweep.models.matrix.base). With the initialization
``xavier`` it is the plain RNN of the published tables; with an orthogonal one, the RNN that begins orthogonal and is
trained without constraint, which is what the gains of the plain Stair RNN are laid over.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from memsweep.models.base import Weights
from memsweep.models.matrix.config import FreeConfig
from memsweep.models.matrix.free import FreeMatrixRNN
from memsweep.registry import register_model


@register_model("rnn")
class RNN(FreeMatrixRNN):
    """Recurrent network with a free recurrent matrix; linear with the activation ``linear`` and no stair."""

    @dataclass(frozen=True, kw_only=True)
    class Config(FreeConfig):
        """A recurrence with a free matrix, gains in time and a linear readout."""

    def matrix(self, weights: Weights) -> Tensor:
        return weights["recurrent_weight"]
