"""A recurrent layer whose states are stored with few bits: rounded after every step.

With feedback, the rounding error of a step is added to the next one before it is rounded. What is lost is then made up
for later, and slow decay no longer ends where a step is smaller than half a cell.

Letters: N models, K roundings, B batch, T time, M width, O outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.recurrence.activations import activation_named
from memsweep.recurrence.layer import Layer
from memsweep.stability.rounding.numbers import rounded


def rounded_outputs(
    layer: Layer, inputs_BTI: Tensor, bits_K: Tensor, largest_N: Tensor, number: str, feedback: bool
) -> Tensor:
    """Outputs of layers whose states are rounded.

    Args:
        layer: of N models.
        inputs_BTI: the same for all of them.
        bits_K: of each rounding; inf rounds nothing.
        largest_N: the largest state that fixed point can hold.
        number: ``fixed`` or ``float``.
        feedback: add a step's rounding error to the next step.

    Returns:
        ``[N, K, B, T, O]``.
    """
    models, width, roundings = layer.models, layer.width, len(bits_K)
    batch, horizon, _ = inputs_BTI.shape
    exact = torch.isinf(bits_K).view(1, -1, 1, 1)
    bits = torch.where(exact, 1.0, bits_K.view(1, -1, 1, 1))
    largest = largest_N.view(-1, 1, 1, 1)
    states_NKBM = inputs_BTI.new_zeros(models, roundings, batch, width)
    lost_NKBM = torch.zeros_like(states_NKBM)
    outputs_NKBTO = inputs_BTI.new_empty(models, roundings, batch, horizon, layer.outputs)
    for time in range(horizon):
        drive_NBM = torch.einsum("nmi,bi->nbm", layer.encoder, inputs_BTI[:, time]) + layer.bias.unsqueeze(1)
        added = _coupled(layer.matrix, states_NKBM) + drive_NBM.unsqueeze(1)
        activation_named(layer.activation).apply_(added)
        next_NKBM = layer.leak * states_NKBM + layer.gain * added
        if feedback:
            next_NKBM = next_NKBM + lost_NKBM
        states_NKBM = torch.where(exact, next_NKBM, rounded(next_NKBM, number, bits, largest))
        lost_NKBM = next_NKBM - states_NKBM
        seen = states_NKBM.clone()
        activation_named(layer.output).apply_(seen)
        outputs_NKBTO[:, :, :, time] = torch.einsum("nkbm,nom->nkbo", seen, layer.readout) + layer.offset[:, None, None]
    return outputs_NKBTO


def largest_states(layer: Layer, inputs_BTI: Tensor) -> Tensor:
    """The largest size of any state of each model on these sequences, ``[N]``."""
    states_NBM = inputs_BTI.new_zeros(layer.models, len(inputs_BTI), layer.width)
    largest_N = inputs_BTI.new_zeros(layer.models)
    for inputs_BI in inputs_BTI.unbind(1):
        added = torch.einsum("nmi,bi->nbm", layer.encoder, inputs_BI) + layer.bias.unsqueeze(1)
        added = added + _coupled(layer.matrix, states_NBM.unsqueeze(1)).squeeze(1)
        activation_named(layer.activation).apply_(added)
        states_NBM = layer.leak * states_NBM + layer.gain * added
        largest_N = torch.maximum(largest_N, states_NBM.abs().amax((1, 2)))
    return largest_N


def _coupled(matrix: Tensor, states_NKBM: Tensor) -> Tensor:
    """A h for diagonals ``[N, M]`` and matrices ``[N, M, M]``."""
    if matrix.ndim == 2:
        return matrix[:, None, None] * states_NKBM
    return (states_NKBM.flatten(1, 2) @ matrix.mT).unflatten(1, states_NKBM.shape[1:3])
