"""States that are stored with few bits: rounded after every step.

With feedback, the rounding error of a step is added to the next one before it is rounded. What is lost is then made up
for later, and slow decay no longer ends where it changes a state by less than half a step of the grid.

Letters: N models, K roundings, B batch.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from memsweep.measures.bits.kinds import FEEDBACK, LEAST, STOCHASTIC, Rounding
from memsweep.measures.bits.numbers import rounded


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
