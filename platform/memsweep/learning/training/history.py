"""Which validations a replica's history holds: a function of the steps of the whole training alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrainingConfig

HISTORY_ROWS = 100
"""Most history rows of one replica: enough for a curve, small enough for a tracking server."""


def keeps(training: TrainingConfig, step: int, last: int | None) -> bool:
    """Whether the validation after ``step`` steps is kept, when the last one that was is ``last`` (None: none yet)."""
    every = max(1, math.ceil(training.steps / HISTORY_ROWS))
    return last is None or step - last >= every or step == training.steps


def kept_until(training: TrainingConfig, step: int) -> list[int]:
    """The steps of a replica's history after ``step`` steps, the validation there included."""
    found: list[int] = []
    for validated in range(0, step + 1, training.validate_every):
        if keeps(training, validated, found[-1] if found else None):
            found.append(validated)
    return found
