"""Least squares: the shares of the targets' variance that a linear readout of states explains.

With n samples and r independent states, noise alone would be explained to a share of r / n in the mean. So a share R^2
of the samples is corrected to 1 - (1 - R^2) (n - 1) / (n - r - 1), which has no such bias (Ezekiel 1930)
where samples are independent, as the delays of white noise are. Steps of a slow input are not.

Letters: B batch, T time, M states, O outputs, S samples (sequences and steps that count).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from memsweep.data.task import Batch, Task, as_ids, as_read
from memsweep.models.base import Model, Weights, as_layer, as_linear
from memsweep.models.module.model import Module
from memsweep.recurrence.linear.modal_loss import Modes
from memsweep.recurrence.scan import linear_scan
from memsweep.stability.states import run_of


class Capacity(NamedTuple):
    """Sums over the targets of the shares of their variance that are explained.

    Attributes:
        best: by the best linear readout of the states.
        trained: by the readout as it was trained, of a target that it makes worse 0. Of a single layer whose readout
            is linear in its states it is at most ``best``, up to chance.
        states: independent ones, in float64: ``best`` is at most this number.
    """

    best: float
    trained: float
    states: int


class _Seen:
    """Keeps all of the states of one model, and has them by name."""

    def __init__(self) -> None:
        self.steps: dict[str, list[Tensor]] = {}

    def __call__(self, name: str, states_NKB: Tensor) -> Tensor:
        self.steps.setdefault(name, []).append(states_NKB[0, 0].flatten(1).double().clone())
        return states_NKB

    def states(self) -> Tensor:
        """``[B, T, M]``."""
        return torch.cat([torch.stack(steps, 1) for steps in self.steps.values()], 2)


def capacity(model: Model, weights: Weights, task: Task, batch: Batch) -> Capacity:
    """The capacity of one model's states for the targets of some sequences.

    Args:
        model: goes step by step, or is a sum of modes.
        weights: stacked, ``[1, ...]``.
        task: has a squared loss.
        batch: the sequences, with targets ``[B, T, O]``.
    """
    # a module may make tensors of its own precision
    dtype = next(iter(weights.values())).dtype if isinstance(model, Module) else torch.float64
    size = model.signature.inputs
    ids = model.traits(model.config).reads_ids
    inputs = as_ids(batch.inputs, task.inputs) if ids else as_read(batch.inputs, size, dtype).to(dtype)
    own = {name: value.cpu().to(dtype) for name, value in weights.items()}
    with torch.no_grad():
        outputs, modes = model.outputs(own, inputs)[0].double(), modes_of(model, own)
        states = _states(model, own, inputs) if modes is None else _modal_states(modes, inputs)
    squares = task.squared_weights()
    assert squares is not None, "please report this: a readout was fitted to targets without a squared loss"
    root = squares.sqrt().expand(len(batch.inputs), -1).flatten()
    states, targets, answers = (each.flatten(0, 1) for each in (states, batch.targets.double(), outputs))
    shares, rank = explained(states, targets, root)
    centred = _centred(targets, root)
    wrong = ((targets - answers) * root[:, None]).square().sum(0) / centred.square().sum(0)
    return Capacity(float(shares.sum()), float((1.0 - wrong).clamp(min=0.0).sum()), rank)


def modes_of(model: Model, weights: Weights) -> Modes | None:
    """The modes of a linear model that is no layer of real states; None of any other."""
    linear = as_linear(model)
    return None if linear is None or as_layer(model) is not None else linear.as_modes(weights)


def _states(model: Model, weights: Weights, inputs: Tensor) -> Tensor:
    """All that one model keeps from step to step, ``[B, T, M]``."""
    seen = _Seen()
    run_of(model, weights, inputs)(seen, 1)
    return seen.states()


def _modal_states(modes: Modes, inputs: Tensor) -> Tensor:
    """Real and imaginary parts of the states of modes of one input, ``[B, T, 2 M]``."""
    drive = inputs * modes.input[0] + modes.bias[0]
    states = linear_scan(modes.eigenvalues, drive.unsqueeze(0))[0]
    return torch.cat([states.real, states.imag], -1) if states.is_complex() else states


def explained(states_SM: Tensor, targets_SO: Tensor, root_S: Tensor) -> tuple[Tensor, int]:
    """The corrected share of each target's variance that a linear readout of the states explains, and their rank.

    Args:
        states_SM: in float64; those that do not move are as good as none.
        targets_SO: as the states.
        root_S: square roots of the samples' weights.

    Returns:
        ``[O]``, nan where there are no more samples than states; and how many states are independent.
    """
    counts = root_S > 0
    root_S = root_S[counts]
    states, targets = (_centred(each[counts], root_S) for each in (states_SM, targets_SO))
    samples = float(root_S.square().sum() ** 2 / root_S.pow(4).sum())
    rounding = len(states) * torch.finfo(states.dtype).eps
    sizes = states.norm(dim=0)
    moving = sizes > rounding * (states_SM[counts] * root_S.unsqueeze(1)).norm(dim=0)
    left, values, _ = torch.linalg.svd(states[:, moving] / sizes[moving], full_matrices=False)
    rank = int((values > rounding * values[:1]).sum())
    shares = (left[:, :rank].mT @ targets).square().sum(0) / targets.square().sum(0)
    room = samples - rank - 1.0
    return 1.0 - (1.0 - shares) * ((samples - 1.0) / room if room > 0 else math.nan), rank


def _centred(values_SX: Tensor, root_S: Tensor) -> Tensor:
    """Values without their weighted mean, times the roots of their weights."""
    squares = root_S.square()
    mean = (squares @ values_SX) / squares.sum()
    return (values_SX - mean) * root_S.unsqueeze(1)
