"""Merging of redundant modes into the strongest mode.

A model with more modes than its target needs ends training with modes of almost no amplitude. They do not change the
function, but their rates, which training left near the initial weights, decide how far the weights may move. So a mode
is removed where the validated objective without it is as good within a tolerance, and half of the strongest mode takes
its place. Two modes of one rate that share the amplitude are one mode, with the same norms in a linear model, and no
dead mode is left. (The halves of a nonlinear model share the readout alone, because their states must not change.) The
error without perturbation may rise a little; it is measured afterwards.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.models.base import Part


def modes(ensemble: Ensemble) -> int:
    """Number of modes (padded width), or 0 when the model's recurrence is not a set of independent modes."""
    return ensemble.layout.width if ensemble.model.traits(ensemble.model.config).separate_modes else 0


def by_amplitude(ensemble: Ensemble, weights: Tensor) -> Tensor:
    """Indices of the modes from the weakest to the strongest, padding first: ``[rows, M]``."""
    named = ensemble.model.modal(ensemble.layout.named(weights))
    squares: dict[Part, Tensor] = {}  # a part may have several tensors, such as real and imaginary parts
    for segment in ensemble.layout.segments:
        if segment.role.part in (Part.ENCODER, Part.READOUT):
            axis = segment.role.axes.index("width")
            tensor = named[segment.name].movedim(axis - len(segment.role.axes), 1)  # [rows, M, ...]
            square = tensor.square().flatten(2).sum(-1) if tensor.ndim > 2 else tensor.square()
            squares[segment.role.part] = squares.get(segment.role.part, torch.zeros_like(square)) + square
    amplitude = torch.stack(list(squares.values())).prod(0)
    return torch.where(_exists(ensemble), amplitude, -1.0).argsort(dim=-1, stable=True)


def merge(ensemble: Ensemble, weights: Tensor, mode: Tensor, into: Tensor) -> Tensor:
    """Weights in which ``mode`` has become half of the mode ``into`` of the same row.

    Args:
        weights: ``[rows, size]``.
        mode, into: ``[rows]``, indices.
    """
    named = ensemble.model.modal(ensemble.layout.named(weights))
    rows = torch.arange(weights.shape[0], device=weights.device)
    linear = ensemble.model.traits(ensemble.model.config).linear
    for segment in ensemble.layout.segments:
        if segment.role.axes.count("width") != 1:  # a matrix between units: ``modal`` made its basis diagonal
            continue
        axis = segment.role.axes.index("width") - len(segment.role.axes)
        tensor = named[segment.name].clone()
        by_mode = tensor.movedim(axis, 1)  # a view: writing to it writes to the clone
        half = by_mode[rows, into]
        share = _share(segment.role.part, linear)
        if share != 1.0:
            half = half * share
            by_mode[rows, into] = half
        by_mode[rows, mode] = half
        named[segment.name] = tensor
    return ensemble.layout.flat(ensemble.model.modal(named, inverse=True))


def _share(part: Part, linear: bool) -> float:
    """Factor of a weight in each half of a mode, so that both halves together compute the same function."""
    if part in (Part.RECURRENT, Part.GAIN):
        return 1.0
    if linear:
        return 0.5**0.5  # encoder times readout: half the amplitude
    return 0.5 if part is Part.READOUT else 1.0


def removable(ensemble: Ensemble, mode: Tensor, into: Tensor) -> Tensor:
    """Rows in which the mode exists and differs from the mode ``into``: ``[rows]``, bool."""
    return _exists(ensemble).gather(1, mode.unsqueeze(1)).squeeze(1) & (mode != into)


def _exists(ensemble: Ensemble) -> Tensor:
    diagonal = next(s for s in ensemble.layout.segments if s.role.part is Part.RECURRENT and s.role.diagonal)
    return ensemble.exists[:, diagonal.start : diagonal.stop]
