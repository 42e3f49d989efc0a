"""The memory of the Legendre memory unit as a unit of deep models (Voelker et al. 2019, "Legendre Memory Units").

    m_t = A m_{t-1} + B u_t,   u_t = W x_t,   y_t = C m_t + D x_t

A and B are given: of every channel of u, the d numbers m are the coefficients of the last ``window`` steps in the first
d Legendre polynomials, the closest linear system of order d to a pure delay (section 2, equations 1 and 2, discretized
by zero-order hold with steps of 1). W, C and D are trained: this is the linear form of Chilkuri and Eliasmith (2021,
arXiv 2102.11417), without the feedback of the published cell; what is nonlinear lies in the layers around. Width counts
the numbers of all channels.

A sequence runs in pieces. All memories of a piece are one product of its inputs and of the memory before it with a
fixed matrix: exact, and as fast as a matrix product.

Letters: see memsweep.models.deep.unit; P channels, D memories of a channel, L steps of a piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models.affine import balanced_as_a_whole
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.unit import State, Unit, mapped
from memsweep.models.initialization import lecun_normal
from memsweep.registry import register_unit

_PIECE = 32


@register_unit("lmu")
class LMUUnit(Unit):
    """Sliding windows of the past as Legendre polynomials; the recurrence is fixed, all maps around it are trained."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The window, and the polynomials that describe it."""

        order: int = setting(
            4, "polynomials of a channel, d: width counts those of all channels", at_least=1, at_most=1000
        )
        window: float = setting(
            100.0, "steps of the past that a channel describes; older ones fade fast", at_least=1.0, at_most=1e9
        )

    @classmethod
    def refusal(cls, config: Config, width: int, features: int) -> str | None:
        if width % config.order == 0:
            return None
        return (
            f"the unit lmu has {config.order} numbers for each channel, but width is {width}: let width be a multiple "
            f"of {config.order}, or give the unit another order"
        )

    @classmethod
    def is_linear(cls, config: Config) -> bool:
        return True

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
        u_NBPT = mapped(weights["encoder"], x_NBTF).transpose(2, 3)
        memory_NBPD = u_NBPT.new_zeros(*u_NBPT.shape[:3], self.config.order)
        pieces = []
        for piece_NBPL in u_NBPT.split(_PIECE, -1):
            steps = piece_NBPL.shape[-1]
            matrix = self._matrix(steps, x_NBTF)
            found = (torch.cat([piece_NBPL, memory_NBPD], -1) @ matrix).unflatten(-1, (steps, -1))
            memory_NBPD = found[..., -1, :]
            pieces.append(found)
        memories_NBPTD = torch.cat(pieces, 3)
        return self._answers(weights, memories_NBPTD.transpose(2, 3).flatten(3), x_NBTF)

    def step(self, weights: Weights, x_NBF: Tensor, state: State | None) -> tuple[Tensor, State]:
        x_NB1F = x_NBF.unsqueeze(2)
        u_NBP1 = mapped(weights["encoder"], x_NB1F).transpose(2, 3)
        before = u_NBP1.new_zeros(*u_NBP1.shape[:3], self.config.order) if state is None else state["memory"]
        memory_NBPD = torch.cat([u_NBP1, before], -1) @ self._matrix(1, x_NBF)
        answers_NB1F = self._answers(weights, memory_NBPD.flatten(2).unsqueeze(2), x_NB1F)
        return answers_NB1F.squeeze(2), {"memory": memory_NBPD}

    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        """By one scale for all channels."""
        return balanced_as_a_whole(weights, ["encoder"], [], ["readout"])

    def eigenvalues(self, weights: Weights) -> Tensor:
        """Of A, for each channel; the same whatever the weights."""
        matrix, _ = delay_system(self.config.order, self.config.window)
        own = torch.from_numpy(np.linalg.eigvals(matrix).astype(complex))
        readout = weights["readout"]
        own = own.to(readout.device, torch.promote_types(readout.dtype, torch.complex64))
        return own.repeat(len(readout), self.width // self.config.order)

    def products(self, horizon: int) -> int:
        return self.width * (min(_PIECE, horizon) + self.config.order)

    def _matrix(self, steps: int, like: Tensor) -> Tensor:
        return _piece(self.config.order, self.config.window, steps).to(like)

    @staticmethod
    def _answers(weights: Weights, memories_NBTM: Tensor, x_NBTF: Tensor) -> Tensor:
        return mapped(weights["readout"], memories_NBTM) + weights["skip"][:, None, None] * x_NBTF


def delay_system(order: int, window: float) -> tuple[np.ndarray, np.ndarray]:
    """A ``[D, D]`` and B ``[D]`` of the delay network, with steps of 1; memories before the first input are zero.

    Args:
        order: d.
        window: steps of the delay, theta.
    """
    i, j = np.arange(order)[:, None], np.arange(order)[None, :]
    odd = 2.0 * np.arange(order) + 1.0
    flow = odd[:, None] / window * np.where(i < j, -1.0, (-1.0) ** (i - j + 1))
    input_D = odd / window * (-1.0) ** np.arange(order)
    # exp of the block matrix holds both: exp(A), and the integral of exp(A s) B over a step
    block = np.zeros((order + 1, order + 1))
    block[:order, :order], block[:order, order] = flow, input_D
    whole = torch.linalg.matrix_exp(torch.from_numpy(block)).numpy()
    return whole[:order, :order], whole[:order, order]


@lru_cache(maxsize=64)
def _piece(order: int, window: float, steps: int) -> Tensor:
    """All memories of a piece from its inputs and the memory before it, ``[L + D, L D]``, float64."""
    matrix, input_D = delay_system(order, window)
    found = np.zeros((steps + order, steps, order))
    response_D, power = input_D, matrix
    for lag in range(steps):
        for step in range(lag, steps):
            found[step - lag, step] = response_D
        found[steps:, lag] = power.T
        response_D, power = matrix @ response_D, matrix @ power
    return torch.from_numpy(found.reshape(steps + order, steps * order))
