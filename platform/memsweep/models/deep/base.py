"""The base class of deep models with recurrent units, for which learning rules are defined."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from memsweep import registry
from memsweep.models.base import Signature, StackedModel
from memsweep.models.deep.unit import Recurrence, Through


def is_deep(config: Any) -> bool:
    """Whether a model, given by its Config, is a ``DeepModel``."""
    return issubclass(registry.get(registry.MODEL, config.name), DeepModel)


class DeepModel(StackedModel):
    """A model that runs every recurrence by ``self.recurrence``; its Config has a field ``unit``, a unit's Config.

    Attributes:
        recurrence: how its layers run over time. ``outputs`` calls ``recurrence.states`` once for each layer, from the
            first to the last, and lets the readout read ``recurrence.features``.
    """

    def __init__(self, config: Any, signature: Signature, rng: np.random.Generator | None = None) -> None:
        self.recurrence: Recurrence
        super().__init__(config, signature, rng)
        self.recurrence = Through()

    @classmethod
    def registration_problem(cls) -> str | None:
        if "unit" not in {field.name for field in fields(cls.Config)}:
            return (
                'has a Config without unit: write in it \'unit: Any = setting(doc="the recurrence of every layer", '
                'factory=LRUUnit.Config, registered="unit")\'.'
            )
        return super().registration_problem()

    @classmethod
    def rule_refusal(cls, config: Any) -> str | None:
        """Why no rule that goes forward in time fits a model of this config, whatever its unit; None by default."""
        return None
