"""The way in which a linear model's loss on a batch is computed. All three ways compute the same number.

``statistics``: a quadratic form of the kernel error, of T^2 statistics that all models of a pack share.
``convolution``: the kernel error is convolved with every sequence, by Fourier transforms. ``sequences``: the model runs
over every sequence. The last two cost each model T B, so that long horizons are theirs.

The number of sequences, the horizon and the width decide alone. So a trial has the same bits in every pack, and on
every machine. The choice is the fastest for five replicas, a trial's usual number: it cannot be the fastest for one
model and for a pack of 64.
"""

from __future__ import annotations

import math
from typing import Any

from memsweep import registry

STATISTICS, CONVOLUTION, SEQUENCES = "statistics", "convolution", "sequences"
_REPLICAS = 5
_LONG = 512
"""The shortest horizon that may leave the statistics: below, packs gain more by them than one model loses."""
_MEDIUM, _FEW_STATES = 256, 512
"""The shortest horizon at which so many states of a batch, or fewer, leave them: there a full pack loses little."""
_BLOCKS = 4000
"""The fewest steps of a convolution that is computed by blocks."""
# nanoseconds for each sequence and step of time, of one core of a 2023 server, in float64
_LAG = 0.025
_CONVOLVED = 10.0
_STATE = 0.35
_TARGETS = 10.0
_LEAST_WIDTH = 8


def way_of(trial: Any) -> str:
    """The way of a ``TrialConfig`` that trains on batches of a loss in closed form; empty for all others."""
    training = trial.training
    rule = registry.get(registry.RULE, training.rule)
    if not trial.has_closed_form or training.objective == "population" or rule.forward:
        return ""
    model = registry.get(registry.MODEL, trial.model.name)
    traits = model.traits(trial.model)
    # a matrix of the state's size squared costs more than a convolution, as do states that are kept
    diagonal = traits.layer and all(role.axes.count("width") < 2 for role in model.roles(trial.model).values())
    # of the config alone: an identity is asked for before a task is made, whose code may raise
    horizon = getattr(trial.task, "horizon", 0)
    return fastest(horizon, training.batch_size, trial.model.width if diagonal else None)


def fastest(horizon: int, batch: int, width: int | None) -> str:
    """The fastest way, of a model that is one layer of ``width`` independent states (None: of any other model)."""
    states = math.inf if width is None else max(_LEAST_WIDTH, width)
    if horizon < _LONG:
        return SEQUENCES if horizon >= _MEDIUM and batch * states <= _FEW_STATES else STATISTICS
    cost = {
        STATISTICS: _LAG * horizon * (1.0 + horizon / batch),
        CONVOLUTION: _REPLICAS * _CONVOLVED,
        SEQUENCES: _REPLICAS * _STATE * states + _TARGETS,
    }
    return min(cost, key=cost.__getitem__)


def transforms_blocks(steps: int) -> bool:
    """Whether a convolution over so many steps of time takes Fourier transforms from block to block."""
    return steps >= _BLOCKS


def trains_by_convolution(trial: Any) -> bool:
    """Whether the trial's way is ``convolution``."""
    return way_of(trial) == CONVOLUTION


def trains_over_sequences(trial: Any) -> bool:
    """Whether the trial's way is ``sequences``."""
    return way_of(trial) == SEQUENCES
