"""Redundant modes, merged into the mode that does the work.

A model with more modes than its target needs ends training with modes of almost no amplitude. They do nothing for the
function, but their rates, left wherever the initial weights put them, decide how far the weights may move. So modes
without which the validated objective is as good, within a tolerance, are removed, and the place of each is taken by
half of the strongest mode: two modes of one rate that share its amplitude are one mode, with the same norms, and no
dead mode is left. The error without perturbation may rise a little; it is measured afterwards.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.learning.ensemble import Ensemble
from memsweep.models.base import LinearModel, Part


def modes(ensemble: Ensemble) -> int:
    """Number of modes (padded width), or 0 when the model's recurrence is not a set of independent modes."""
    recurrent = [s for s in ensemble.layout.segments if s.role.part is Part.RECURRENT]
    separate = isinstance(ensemble.model, LinearModel) and len(recurrent) == 1 and recurrent[0].role.diagonal
    return recurrent[0].shape[0] if separate else 0


def by_amplitude(ensemble: Ensemble, weights: Tensor) -> Tensor:
    """Indices of the modes from the weakest to the strongest, padding first: ``[rows, M]``."""
    named = ensemble.layout.named(weights)
    sizes = []
    for segment in ensemble.layout.segments:
        if segment.role.part in (Part.ENCODER, Part.READOUT):
            axis = segment.role.axes.index("width")
            tensor = named[segment.name].movedim(axis - len(segment.role.axes), 1)
            sizes.append(tensor.flatten(2).norm(dim=-1) if tensor.ndim > 2 else tensor.abs())
    amplitude = torch.stack(sizes).prod(0)
    return torch.where(_exists(ensemble), amplitude, -1.0).argsort(dim=-1, stable=True)


def merged(ensemble: Ensemble, weights: Tensor, mode: Tensor, into: Tensor) -> Tensor:
    """Weights in which ``mode`` has become half of the mode ``into`` of the same row.

    Args:
        weights: ``[rows, size]``.
        mode, into: ``[rows]``, indices.
    """
    named = ensemble.layout.named(weights)
    rows = torch.arange(weights.shape[0], device=weights.device)
    for segment in ensemble.layout.segments:
        if "width" not in segment.role.axes:
            continue
        axis = segment.role.axes.index("width") - len(segment.role.axes)
        tensor = named[segment.name].clone()
        by_mode = tensor.movedim(axis, 1)
        half = by_mode[rows, into]
        if segment.role.part is not Part.RECURRENT:
            half = half / 2.0**0.5  # in encoder and in readout: together, half the amplitude
            by_mode[rows, into] = half
        by_mode[rows, mode] = half
        named[segment.name] = tensor
    return ensemble.layout.flat(named)


def removable(ensemble: Ensemble, mode: Tensor, into: Tensor) -> Tensor:
    """Rows in which the mode exists and is not the one that it would merge into: ``[rows]``, bool."""
    return _exists(ensemble).gather(1, mode.unsqueeze(1)).squeeze(1) & (mode != into)


def _exists(ensemble: Ensemble) -> Tensor:
    (recurrent,) = [s for s in ensemble.layout.segments if s.role.part is Part.RECURRENT]
    return ensemble.exists[:, recurrent.start : recurrent.stop]
