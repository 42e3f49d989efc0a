"""The Config fields of models whose recurrence is a set of modes with chosen rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memsweep.config.core.fields import setting
from memsweep.models import initialization
from memsweep.models.parameterizations.build import DISCRETIZATIONS, EXACT, Exp


@dataclass(frozen=True, kw_only=True)
class ModalConfig:
    """What decides the modes of a model, and what they start from; a model's own Config adds to it."""

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
