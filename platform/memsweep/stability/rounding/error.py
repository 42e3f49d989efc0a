"""The error of trained models whose weights or states have few bits.

Letters: P rows (replicas and dummies), S size of the flat weights, K numbers of bits, B batch, T time, O outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.data.task import Batch, as_read
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.loss.exact import ExactLoss
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.models.base import Part, as_layer
from memsweep.stability.perturbation.ascent import finite_or_inf
from memsweep.stability.rounding.numbers import FIXED, FLOAT, rounded
from memsweep.stability.rounding.states import largest_states, rounded_outputs

NEAREST = "nearest"
"""How numbers are rounded, in the column ``method`` of the curves."""
SEQUENCES = 64
"""Test sequences on which models with rounded states run."""


@dataclass(frozen=True)
class Rounding:
    """What is rounded, and to which numbers.

    Attributes:
        number: ``fixed`` (each tensor, or the states of a model, with a scale of its own) or ``float``.
        parts: of the weights that are rounded; none: states are.
        feedback: of states: a step's rounding error is added to the next step.
    """

    number: str
    parts: tuple[Part, ...] = ()
    feedback: bool = False


_WEIGHTS = tuple(part for part in Part if part is not Part.STATISTIC)
ROUNDINGS = {
    "fixed_recurrent": Rounding(FIXED, (Part.RECURRENT,)),
    "float_recurrent": Rounding(FLOAT, (Part.RECURRENT,)),
    "fixed_weights": Rounding(FIXED, _WEIGHTS),
    "float_weights": Rounding(FLOAT, _WEIGHTS),
    "fixed_states": Rounding(FIXED),
    "feedback_states": Rounding(FIXED, feedback=True),
    "float_states": Rounding(FLOAT),
}


def radii_of_bits(bits: Sequence[int]) -> list[float]:
    """Radius 0, then 2^-bits, increasing: by how much a rounding moves a number at most, relative to its size."""
    return [0.0, *(2.0**-count for count in sorted(bits, reverse=True))]


def rounded_weights_error(
    ensemble: Ensemble,
    task_loss: TaskLoss[Data],
    data: Data,
    weights: Tensor,
    targets: Tensor,
    rounding: Rounding,
    bits: Sequence[int],
) -> Tensor:
    """The error of models with rounded weights, at each radius of ``radii_of_bits``.

    Weights are rounded as they are stored: before a parameterization maps them, and without bringing encoder and
    readout to equal size.

    Args:
        ensemble, task_loss, data, targets: of the loss.
        weights: ``[P, S]``, the trained weights.
        rounding: of weights.
        bits: of every rounding.

    Returns:
        ``[P, K + 1]``, nondecreasing: the largest error with that many bits or more; inf where the loss is not finite.
    """
    chosen = ensemble.exists & ensemble.select(*rounding.parts)
    sizes = torch.where(chosen, weights.abs(), 0.0)
    largest = torch.zeros_like(weights)
    for segment in ensemble.layout.segments:
        columns = slice(segment.start, segment.stop)
        largest[:, columns] = sizes[:, columns].amax(1, keepdim=True)
    errors = []
    for count in (None, *sorted(bits, reverse=True)):
        moved = weights if count is None else rounded(weights, rounding.number, count, largest)
        named = ensemble.layout.named(torch.where(chosen, moved, weights))
        with torch.no_grad():
            errors.append(finite_or_inf(task_loss.loss(ensemble.model, named, data, targets, ensemble.real)))
    return torch.stack(errors, 1).cummax(1).values


def rounded_states_error(
    ensemble: Ensemble,
    task_loss: ExactLoss | SampledLoss,
    batch: Batch,
    weights: Tensor,
    targets: Tensor,
    rounding: Rounding,
    bits: Sequence[int],
) -> Tensor:
    """The error of models with rounded states on some sequences; arguments and result as of ``rounded_weights_error``.

    Fixed point spans the states that the model has on these sequences. It is computed in float64.

    Args:
        batch: as ``task_loss.draw`` gives it.
    """
    model = as_layer(ensemble.model)
    assert model is not None, "please report this: states of a model that is no single layer were to be rounded"
    named = {name: value.double() for name, value in ensemble.layout.named(weights).items()}
    layer, sequences = model.layer(named), _sequences(task_loss, batch, targets)
    inputs = as_read(sequences.inputs, model.signature.inputs, torch.float64)
    at = torch.tensor([math.inf, *sorted(bits, reverse=True)], dtype=torch.float64)
    with torch.no_grad():
        outputs = rounded_outputs(layer, inputs, at, largest_states(layer, inputs), rounding.number, rounding.feedback)
        errors = task_loss.task.loss(outputs, sequences)
    return finite_or_inf(errors).cummax(1).values


def _sequences(task_loss: ExactLoss | SampledLoss, batch: Batch, targets: Tensor) -> Batch:
    """Sequences with targets that fit outputs ``[P, K, B, T, O]``; a replica may have a kernel of its own."""
    if isinstance(task_loss, SampledLoss):
        return task_loss.prepare(batch)
    noise, horizon = batch.inputs.to(targets.device), task_loss.task.horizon
    kernels = targets[:, None, :horizon].double()
    wanted = torch.fft.irfft(torch.fft.rfft(noise, 2 * horizon) * torch.fft.rfft(kernels, 2 * horizon))
    return Batch(noise.unsqueeze(-1), wanted[:, None, :, :horizon, None])
