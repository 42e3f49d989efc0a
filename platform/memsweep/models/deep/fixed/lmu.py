"""The memory of the Legendre memory unit as a unit of deep models (Voelker et al. 2019, "Legendre Memory Units").

    m_t = A m_{t-1} + B u_t,   u_t = W x_t,   y_t = C m_t + D x_t

A and B are given: of every channel of u, the d numbers m are the coefficients of the last ``window`` steps in the first
d Legendre polynomials, the closest linear system of order d to a pure delay (section 2, equations 1 and 2, discretized
by zero-order hold with steps of 1). W, C and D are trained: this is the linear form of Chilkuri and Eliasmith (2021,
arXiv 2102.11417), without the feedback of the published cell; what is nonlinear lies in the layers around.

Letters: see memsweep.models.deep.fixed.polynomials.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models.affine import balanced_as_a_whole
from memsweep.models.base import Weights
from memsweep.models.deep.fixed.polynomials import PolynomialConfig, PolynomialUnit
from memsweep.registry import register_unit


@register_unit("lmu")
class LMUUnit(PolynomialUnit):
    """Sliding windows of the past as Legendre polynomials; the recurrence is fixed, all maps around it are trained."""

    @dataclass(frozen=True, kw_only=True)
    class Config(PolynomialConfig):
        """The window, and the polynomials that describe it."""

        window: float = setting(
            100.0, "steps of the past that a channel describes; older ones fade fast", at_least=1.0, at_most=1e9
        )

    @classmethod
    def is_linear(cls, config: Config) -> bool:
        return True

    def piece(self, before: int, steps: int) -> Tensor:
        del before  # the window moves with the present
        return _piece(self.config.order, self.config.window, steps)

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
    # one exponential gives both blocks: exp(A), and the integral of exp(A s) B over a step
    block = np.zeros((order + 1, order + 1))
    block[:order, :order], block[:order, order] = flow, input_D
    whole = torch.linalg.matrix_exp(torch.from_numpy(block)).numpy()
    return whole[:order, :order], whole[:order, order]


@lru_cache(maxsize=64)
def _piece(order: int, window: float, steps: int) -> Tensor:
    """See ``PolynomialUnit.piece``; the same for every piece."""
    matrix, input_D = delay_system(order, window)
    found = np.zeros((steps + order, steps, order))
    response_D, power = input_D, matrix
    # a memory answers A^lag B to the input of lag steps before, and A^(steps so far) to the memory before the piece
    for lag in range(steps):
        for step in range(lag, steps):
            found[step - lag, step] = response_D
        found[steps:, lag] = power.T
        response_D, power = matrix @ response_D, matrix @ power
    return torch.from_numpy(found.reshape(steps + order, steps * order))
