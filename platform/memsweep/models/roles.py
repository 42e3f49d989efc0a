"""Roles of a model's weight tensors: balls, penalties, optimizer and padding go by it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from memsweep import registry

if TYPE_CHECKING:
    from memsweep.config.schema.training import GroupConfig
    from memsweep.config.schema.trial import TrialConfig


class Part(enum.StrEnum):
    """The role of a weight tensor: decides which ball moves it and which penalty acts on it."""

    RECURRENT = "recurrent"
    ENCODER = "encoder"
    READOUT = "readout"
    BIAS = "bias"
    GAIN = "gain"
    """A scale inside the model that is none of the others, such as a trained normalization."""
    STATISTIC = "statistic"
    """A number of the training data, such as a running mean, which has no gradient (``Model.updated_statistics``).

    No ball, no penalty and no weight decay acts on it."""


class Group(enum.StrEnum):
    """Weights that the optimizer treats alike: ``training.groups`` may give them settings of their own."""

    REST = "rest"
    ORTHOGONAL = "orthogonal"
    """Raw weights of an orthogonal matrix: a step on them turns all states, so they need smaller learning rates."""
    TRIANGLE = "triangle"
    """The strictly upper part of a non-normal matrix, which weight decay keeps from growing."""
    RECURRENT = "recurrent"
    """In a unit of a deep model: the weights of its forgetting, and the scale of its input."""
    INPUT = "input"
    """The weights between the input of a layer and the states of its unit."""


@dataclass(frozen=True)
class Role:
    """The meaning of one weight tensor.

    Attributes:
        part: what the tensor does.
        axes: a name per dimension; dimensions named ``width`` are padded with zeros in an ensemble of mixed widths.
        diagonal: the tensor is the diagonal of a matrix, so its spectral norm is its largest entry.
        rate: the entries are raw weights of decay rates, on which a parameterization acts.
        group: whose settings the optimizer takes for it.
        layer: the layer of a deep model in which it is, from 0; None: before or behind all of them, or no deep model.
        optimizer_settings: which this tensor alone asks for; those of its group come before them.
        from_influence: the part follows from the tensor's measured influence, and not from a guess.
        complex_entries: the last dimension holds the real and the imaginary part of complex numbers.
    """

    part: Part
    axes: tuple[str, ...]
    diagonal: bool = False
    rate: bool = False
    group: Group = Group.REST
    layer: int | None = None
    optimizer_settings: GroupConfig | None = None
    from_influence: bool = False
    complex_entries: bool = False


def asks_settings(roles: Iterable[Role]) -> bool:
    """Whether a tensor asks for settings of the optimizer by itself."""
    return any(role.optimizer_settings is not None for role in roles)


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether a weight's name fits one of some patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


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
