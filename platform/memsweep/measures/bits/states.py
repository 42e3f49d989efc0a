"""States that are stored with few bits: rounded after every step.

With feedback, the rounding error of a step is added to the next one before it is rounded. What is lost is then made up
for later, and slow decay no longer ends where it changes a state by less than half a step of the grid.

Letters: N models, K roundings, B batch, T time, M width, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from memsweep.measures.bits.kinds import FEEDBACK, LEAST, STOCHASTIC, Rounding
from memsweep.measures.bits.numbers import rounded
from memsweep.recurrence.activations import activation_named
from memsweep.recurrence.layer import Layer

Keep = Callable[[str, Tensor], Tensor]
"""What is kept of the states after a step, by their name: ``[N, K, B, ...] -> [N, K, B, ...]``, real."""


class Largest:
    """Keeps all of the states, and their largest sizes over sequences and steps, by name: ``[N, 1, 1, ...]``."""

    def __init__(self) -> None:
        self.sizes: dict[str, Tensor] = {}

    def __call__(self, name: str, states_NKB: Tensor) -> Tensor:
        size = states_NKB.abs().amax((1, 2), keepdim=True)
        self.sizes[name] = torch.maximum(self.sizes[name], size) if name in self.sizes else size
        return states_NKB


class Rounded:
    """Rounds states.

    Args:
        rounding: of states.
        bits_K: of each copy of a model; inf rounds nothing.
        sizes: as ``Largest`` has them; what fixed point can hold.
        rng: of the draws, which all models and copies share; every sequence has its own.
    """

    def __init__(self, rounding: Rounding, bits_K: Tensor, sizes: dict[str, Tensor], rng: np.random.Generator) -> None:
        self._rounding, self._bits_K, self._rng = rounding, bits_K, rng
        self._sizes = {
            name: size if rounding.by_channel else size.flatten(1).amax(1).view(-1, *[1] * (size.ndim - 1))
            for name, size in sizes.items()
        }
        self._lost: dict[str, Tensor] = {}

    def __call__(self, name: str, states_NKB: Tensor) -> Tensor:
        bits = self._bits_K.view(1, -1, *[1] * (states_NKB.ndim - 2))
        exact, how, draws = torch.isinf(bits), self._rounding.how, None
        wanted = states_NKB + self._lost[name] if name in self._lost else states_NKB
        if how == STOCHASTIC:
            draws = torch.from_numpy(self._rng.random(states_NKB.shape[2:])).to(states_NKB)
        few = rounded(wanted, self._rounding.number, torch.where(exact, LEAST, bits), self._sizes[name], draws)
        kept = torch.where(exact, wanted, few)
        if how == FEEDBACK:
            self._lost[name] = wanted - kept
        return kept


def layer_outputs(layer: Layer, inputs_BTI: Tensor, keep: Keep, copies: int) -> Tensor:
    """Outputs ``[N, K, B, T, O]`` of K copies of layers, step by step, which read what is kept of their states.

    Args:
        layer: of N models.
        inputs_BTI: the same for all of them.
        keep: is called after every step.
        copies: K.
    """
    batch, horizon, _ = inputs_BTI.shape
    states_NKBM = inputs_BTI.new_zeros(layer.models, copies, batch, layer.width)
    outputs_NKBTO = inputs_BTI.new_empty(layer.models, copies, batch, horizon, layer.outputs)
    for time in range(horizon):
        drive_NBM = torch.einsum("nmi,bi->nbm", layer.encoder, inputs_BTI[:, time]) + layer.bias.unsqueeze(1)
        added = _coupled(layer.matrix, states_NKBM) + drive_NBM.unsqueeze(1)
        activation_named(layer.activation).apply_(added)
        states_NKBM = keep("states", layer.leak * states_NKBM + layer.gain * added)
        seen = states_NKBM.clone()
        activation_named(layer.output).apply_(seen)
        outputs_NKBTO[:, :, :, time] = torch.einsum("nkbm,nom->nkbo", seen, layer.readout) + layer.offset[:, None, None]
    return outputs_NKBTO


def _coupled(matrix: Tensor, states_NKBM: Tensor) -> Tensor:
    """A h for diagonals ``[N, M]`` and matrices ``[N, M, M]``."""
    if matrix.ndim == 2:
        return matrix[:, None, None] * states_NKBM
    return (states_NKBM.flatten(1, 2) @ matrix.mT).unflatten(1, states_NKBM.shape[1:3])
