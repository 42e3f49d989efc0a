"""Estimated seconds of one core for deep models of recurrent units: for order, pack sizes and times left only.

Most of a step is products with matrices, one multiplication for each of their entries, sequence and step of time, and
what acts on every feature and state by itself. The constants were measured on stacks of 1 to 4 layers of 8 to 134
features in float32; they hold within a factor of three, and only the estimates depend on them, never a result.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from memsweep import registry

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

_CALLS = 1e-2  # of a layer in an optimizer step: torch's calls, forward and backward
_ENTRY = 1.6e-10  # of a matrix entry, a sequence and a step of time, forward and backward
_FEATURE = 1.5e-8  # of a feature or a state of a layer, likewise, for all that acts on it by itself
_DOUBLE = 1.8  # float64 beside float32
_FORWARD = 1.5  # a rule that goes forward in time, batched, beside backpropagation through time
_EVALUATION = 1.0 / 3.0  # a pass without its gradient
_TALKS = 16  # inputs and outputs that a task is taken to have


def shared_step(trial: TrialConfig) -> float:
    """Seconds of an optimizer step that do not grow with the number of replicas."""
    return _gradients(trial) * _CALLS * _layers(trial.model)


def replica_step(trial: TrialConfig, horizon: float) -> float:
    """Seconds of an optimizer step that each replica costs on top."""
    return _gradients(trial) * trial.training.batch_size * horizon * _of_a_step_of_time(trial)


def evaluation(trial: TrialConfig, sequences: int, horizon: float) -> float:
    """Seconds of one pass of one replica over so many sequences."""
    return _EVALUATION * (_CALLS * _layers(trial.model) + sequences * horizon * _of_a_step_of_time(trial))


def _gradients(trial: TrialConfig) -> float:
    """Gradients of an optimizer step, in those of backpropagation through time: the rule's, and the true one beside."""
    training = trial.training
    if not registry.get(registry.RULE, training.rule).forward:
        return 1.0
    return _FORWARD + (1.0 / training.alignment_every if training.alignment_every else 0.0)


def _of_a_step_of_time(trial: TrialConfig) -> float:
    model = trial.model
    roles = registry.get(registry.MODEL, model.name).roles(model).values()
    entries = sum(math.prod(_size(model, axis) for axis in role.axes) for role in roles if len(role.axes) > 1)
    alone = _layers(model) * (_size(model, "feature") + _size(model, "width"))
    return (_ENTRY * entries + _FEATURE * alone) * (_DOUBLE if trial.training.dtype == "float64" else 1.0)


def _layers(model: Any) -> int:
    return int(getattr(model, "layers", 1))


def _size(model: Any, axis: str) -> int:
    """Length of an axis of a weight tensor; of what the task decides, a usual one."""
    fields = {"width": "width", "feature": "features", "hidden": "readout_width"}
    return int(getattr(model, fields[axis])) if axis in fields and hasattr(model, fields[axis]) else _TALKS
