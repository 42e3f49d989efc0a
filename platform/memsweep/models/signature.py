"""The sizes of a task that a model is built for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsweep import registry

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig


@dataclass(frozen=True)
class Signature:
    """The shape of a task as a model sees it: input and output sizes and the horizon (sequence length)."""

    inputs: int
    outputs: int
    horizon: int


def signature_of(trial: TrialConfig) -> Signature | None:
    """The sizes of a trial's task; None where its data are missing, which the task says."""
    try:
        task = registry.get(registry.TASK, trial.task.name)(trial.task)
        return Signature(task.inputs, task.outputs, task.horizon)
    except (OSError, ValueError):
        return None
