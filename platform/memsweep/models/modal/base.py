"""The base class of models whose recurrence is a set of modes with chosen rates, and the fields of their Configs.

Letters: see memsweep.models.base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models import initialization
from memsweep.models.base import LayerModel, Part, Role, Weights
from memsweep.models.parameterizations.base import DISCRETIZATIONS, EXACT, Mixture
from memsweep.models.parameterizations.maps import Exp


@dataclass(frozen=True, kw_only=True)
class ModalConfig:
    """The fields that decide the modes of a model and their initial weights; a model's own Config adds to them."""

    width: int = setting(8, "hidden size: the number of modes", at_least=1, at_most=1_000_000)
    parameterization: Any = setting(
        doc="map from the raw recurrent weights to rates", factory=Exp.Config, registered="parameterization"
    )
    discretization: str = setting(
        EXACT,
        "eigenvalue of a rate r over one step: exact (zero-order hold), exp(-r dt); euler, 1 - r dt, which adds a "
        "blow-up at r dt > 2 that has nothing to do with memory (direct and relu: 1 - w dt in both); or discrete, the "
        "parameterization's own discrete-time map",
        choices=DISCRETIZATIONS,
    )
    dt: float = setting(1.0, "length of a time step", at_least=1e-6, at_most=1e3)
    normalize: bool = setting(
        False, "scale the input of a mode by sqrt(1 - eigenvalue^2), so that its state keeps unit variance"
    )
    initialization: str = setting(initialization.SPREAD, initialization.DOC, choices=initialization.CHOICES)


RATES = {"recurrent_weight": Role(Part.RECURRENT, ("width",), diagonal=True, rate=True)}
"""The role of the raw weights that a parameterization maps to rates."""
ENCODER_AND_READOUT = {
    "encoder_weight": Role(Part.ENCODER, ("width", "input")),
    "encoder_bias": Role(Part.BIAS, ("width",)),
    "readout_weight": Role(Part.READOUT, ("output", "width")),
    "readout_bias": Role(Part.BIAS, ("output",)),
}
"""The roles of the weights that ``initialization.encoder_and_readout`` draws."""
PACKED = frozenset({"width", "parameterization"})
"""Fields in which the replicas of one ensemble may differ, where the modes are separate."""


class ModalModel(LayerModel):
    """A model with raw weights of rates (``recurrent_weight``), which may have another parameterization each."""

    Config: ClassVar[type] = ModalConfig

    def configure(self, configs: Sequence[ModalConfig]) -> None:
        self.parameterizations = Mixture([config.parameterization for config in configs])

    def modes(self, weights: Weights) -> Tensor:
        """lambda, the eigenvalues per step that the parameterization gives the modes, ``[N..., M]``."""
        return self.parameterizations.eigenvalue(
            weights["recurrent_weight"], self.config.dt, self.config.discretization
        )

    def gain(self, modes_NM: Tensor) -> Tensor:
        """Input scale of each mode; NaN beyond |lambda| = 1 with ``normalize``: no such normalized state exists."""
        return torch.sqrt(1.0 - modes_NM.square()) if self.config.normalize else torch.ones_like(modes_NM)
