"""The base of units that describe the past of every channel by the coefficients of polynomials.

    m_t = A_t m_{t-1} + B_t u_t,   u_t = W x_t,   y_t = C m_t + D x_t

A and B are given, W, C and D are trained. Width counts the numbers of all channels.

A sequence runs in pieces. All memories of a piece are one product of its inputs and of the memory before it with a
fixed matrix: exact, and as fast as a matrix product.

Letters: see memsweep.models.deep.unit; P channels, D memories of a channel, L steps of a piece.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.unit import State, Unit, mapped
from memsweep.models.initialization import lecun_normal

_PIECE = 32


@dataclass(frozen=True, kw_only=True)
class PolynomialConfig:
    """How many polynomials there are."""

    order: int = setting(4, "polynomials of a channel, d: width counts those of all channels", at_least=1, at_most=1000)


class PolynomialUnit(Unit):
    """A unit says what its memories are after some steps."""

    @abstractmethod
    def piece(self, before: int, steps: int) -> Tensor:
        """All memories of a piece from its inputs and the memory before it, ``[L + D, L D]``, float64.

        Args:
            before: steps before the piece.
            steps: L.
        """

    @classmethod
    def refusal(cls, config: Any, width: int, features: int) -> str | None:
        if width % config.order == 0:
            return None
        return (
            f"the unit {config.name} has {config.order} numbers for each channel, but width is {width}: let width be a "
            f"multiple of {config.order}, or give the unit another order"
        )

    def roles(self) -> Mapping[str, Role]:
        return {
            "encoder": Role(Part.ENCODER, ("channel", "feature"), group=Group.INPUT),
            "readout": Role(Part.READOUT, ("feature", "width")),
            "skip": Role(Part.GAIN, ("feature",)),
        }

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """LeCun's normal numbers, and a skip as of the unit rnn."""
        del horizon
        return {
            "encoder": lecun_normal(self.width // self.config.order, self.features, rng),
            "readout": lecun_normal(self.features, self.width, rng),
            "skip": rng.standard_normal(self.features),
        }

    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        return self._going_on(weights, x_NBTF, None)[0]

    def step(self, weights: Weights, x_NBF: Tensor, state: State | None) -> tuple[Tensor, State]:
        answers_NB1F, after = self._going_on(weights, x_NBF.unsqueeze(2), state)
        return answers_NB1F.squeeze(2), after

    def products(self, horizon: int) -> int:
        return self.width * (min(_PIECE, horizon) + self.config.order)

    def _going_on(self, weights: Weights, x_NBTF: Tensor, state: State | None) -> tuple[Tensor, State]:
        u_NBPT = mapped(weights["encoder"], x_NBTF).transpose(2, 3)
        time = 0 if state is None else int(state["steps"])
        memory_NBPD = u_NBPT.new_zeros(*u_NBPT.shape[:3], self.config.order) if state is None else state["memory"]
        pieces = []
        for piece_NBPL in u_NBPT.split(_PIECE, -1):
            steps = piece_NBPL.shape[-1]
            # one product per piece; the matrix grows with the square of a piece's length, hence short ones
            matrix = self.piece(time, steps).to(x_NBTF)
            found = (torch.cat([piece_NBPL, memory_NBPD], -1) @ matrix).unflatten(-1, (steps, -1))
            memory_NBPD, time = found[..., -1, :], time + steps
            pieces.append(found)
        memories_NBTPD = torch.cat(pieces, 3).transpose(2, 3)
        after = {"memory": memory_NBPD, "steps": torch.tensor(time)}
        skipped = weights["skip"][:, None, None] * x_NBTF
        return mapped(weights["readout"], memories_NBTPD.flatten(3)) + skipped, after
