"""The error of trained models whose weights or states have few bits.

Letters: P rows (replicas and dummies), S size of the flat weights, K numbers of bits, B batch, T time, O outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from memsweep.data.task import Batch, as_ids, as_read
from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.loss.exact import ExactLoss
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.measures.bits.certificate import largest_loss
from memsweep.measures.bits.kinds import CERTIFICATE, DRAWS, FORMAT, STOCHASTIC, Rounding
from memsweep.measures.bits.numbers import rounded
from memsweep.measures.bits.states import Largest, Rounded
from memsweep.models.modal.base import ModalModel
from memsweep.models.module.model import Module
from memsweep.recurrence.linear.gram import Gram
from memsweep.stability.perturbation.ascent import finite_or_inf
from memsweep.stability.states import run_of
from memsweep.streams import Stream

SEQUENCES = 64
"""Test sequences on which models with rounded states run."""


def rounded_weights_error(
    ensemble: Ensemble,
    task_loss: TaskLoss[Data],
    data: Data,
    weights: Tensor,
    targets: Tensor,
    rounding: Rounding,
    bits: Sequence[int],
    seed: int,
) -> Tensor:
    """The error of models with rounded weights: without rounding, and at each number of bits, the most first.

    Weights are rounded as they are stored: before a parameterization maps them, and without bringing encoder and
    readout to equal size.

    Args:
        ensemble, task_loss, data, targets: of the loss.
        weights: ``[P, S]``, the trained weights.
        rounding: of weights.
        bits: as ``Rounding.bits_of`` has them.
        seed: of stochastic rounding; every replica has draws of its own, the same ones at all numbers of bits.

    Returns:
        ``[P, K + 1]``, inf where the loss is not finite. Nondecreasing, the largest error with that many bits or more,
        but for formats, each of which has a range of its own. Of stochastic rounding the mean over ``DRAWS`` draws; of
        a certificate an upper bound.
    """
    chosen = ensemble.exists & ensemble.select(*rounding.parts)
    sizes = torch.where(chosen, weights.abs(), 0.0)
    largest = torch.zeros_like(weights)
    for segment in ensemble.layout.segments:
        columns = slice(segment.start, segment.stop)
        tensor = sizes[:, columns].unflatten(1, segment.shape or (1,))
        # a row of one number would be its own scale, and exact: such rows share the scale of their tensor
        rows = rounding.by_channel and tensor[0, 0].numel() > 1
        own = tensor.flatten(2).amax(2) if rows else tensor.flatten(1).amax(1, keepdim=True)
        largest[:, columns] = own.view(*own.shape, *[1] * (tensor.ndim - 2)).expand(tensor.shape).flatten(1)
    draws = _draws(ensemble, seed, weights) if rounding.how == STOCHASTIC else [None]
    errors = []
    for count in (None, *sorted(bits, reverse=True)):
        if count is not None and rounding.how == CERTIFICATE:
            room = torch.where(chosen, rounding.radius_of(count) * largest, 0.0)
            errors.append(_bound(ensemble, data, weights.double(), room.double(), targets).to(weights))
            continue
        losses = []
        for draw in draws if count is not None else draws[:1]:
            moved = weights if count is None else rounded(weights, rounding.number, count, largest, draw)
            named = ensemble.layout.named(torch.where(chosen, moved, weights))
            with torch.no_grad():
                losses.append(finite_or_inf(task_loss.loss(ensemble.model, named, data, targets, ensemble.real)))
        errors.append(torch.stack(losses).mean(0))
    return _along_bits(torch.stack(errors, 1), rounding)


def _along_bits(errors: Tensor, rounding: Rounding) -> Tensor:
    return errors if rounding.number == FORMAT else errors.cummax(1).values


def _bound(ensemble: Ensemble, data: object, weights: Tensor, room: Tensor, targets: Tensor) -> Tensor:
    """An upper bound ``[P]`` of the loss over all weights that are no further than ``room`` from these."""
    assert isinstance(ensemble.model, ModalModel), "please report this: a certificate of an unknown model"
    assert isinstance(data, Gram), "please report this: a certificate on test sequences"
    low, high = (ensemble.layout.named(end) for end in (weights - room, weights + room))
    return finite_or_inf(largest_loss(ensemble.model, data, low, high, targets))


def _draws(ensemble: Ensemble, seed: int, weights: Tensor) -> list[Tensor | None]:
    """Uniform numbers ``[P, S]`` of each draw; those of a replica depend on its own seed."""
    stream = Stream(seed, "rounding of weights")
    size = weights.shape[1]
    return [
        ensemble.spread([stream.generator(each.seed * DRAWS + draw).random(size) for each in ensemble.replicas]).to(
            weights
        )
        for draw in range(DRAWS)
    ]


def rounded_states_error(
    ensemble: Ensemble,
    task_loss: ExactLoss | SampledLoss,
    batch: Batch,
    weights: Tensor,
    targets: Tensor,
    rounding: Rounding,
    bits: Sequence[int],
    rng: np.random.Generator,
) -> Tensor:
    """The error of models with rounded states on some sequences; arguments and result as of ``rounded_weights_error``.

    Fixed point spans the states that the model has on these sequences. It is computed in float64; a module of a user in
    the precision in which it was trained.

    Args:
        batch: as ``task_loss.draw`` gives it.
        rng: of stochastic rounding, whose draws are independent over sequences, steps and states.
    """
    model, sequences = ensemble.model, _sequences(task_loss, batch, targets)
    # a module may make tensors of its own precision
    dtype = weights.dtype if isinstance(model, Module) else torch.float64
    named = {name: value.to(dtype) for name, value in ensemble.layout.named(weights).items()}
    size = model.signature.inputs
    ids = model.traits(model.config).reads_ids
    inputs = (
        as_ids(sequences.inputs, task_loss.task.inputs) if ids else as_read(sequences.inputs, size, dtype).to(dtype)
    )
    at = torch.tensor([math.inf, *sorted(bits, reverse=True)], dtype=dtype)
    run, seen = run_of(model, named, inputs), Largest()
    with torch.no_grad():
        run(seen, 1)
        outputs = run(Rounded(rounding, at, seen.sizes, rng), len(at))
        errors = task_loss.task.loss(outputs, sequences)
    return _along_bits(finite_or_inf(errors), rounding)


def _sequences(task_loss: ExactLoss | SampledLoss, batch: Batch, targets: Tensor) -> Batch:
    """Sequences with targets that fit outputs ``[P, K, B, T, O]``; a replica may have a kernel of its own."""
    if isinstance(task_loss, SampledLoss):
        return task_loss.prepare(batch)
    noise, horizon = batch.inputs.to(targets.device), task_loss.task.horizon
    kernels = targets[:, None, :horizon].double()
    wanted = torch.fft.irfft(torch.fft.rfft(noise, 2 * horizon) * torch.fft.rfft(kernels, 2 * horizon))
    return Batch(noise.unsqueeze(-1), wanted[:, None, :, :horizon, None])
