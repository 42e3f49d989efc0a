"""HiPPO-LegS as a unit of deep models (Gu et al. 2020, arXiv 2008.07669, Theorem 2): all the past in polynomials.

    m_t = A_t m_{t-1} + B_t u_t,   u_t = W x_t,   y_t = C m_t + D x_t

Of every channel of u, the d numbers m are the coefficients of all steps so far in the first d Legendre polynomials,
stretched over 0 ... t: nothing is forgotten, old steps are told apart less and less. dm/dt = (-A m + B u) / t with the
LegS matrices has an exact solution where u is constant over a step, with r = log (t / (t - 1)):

    A_t = exp(-A r),   B_t = A^(-1) (1 - A_t) B,   A_1 = 0

A and B are given and W, C and D trained, as of the unit ``lmu``. The matrices change from step to step: the recurrence
is linear, but its impulse response changes, and its eigenvalues go to 1.

Letters: see memsweep.models.deep.fixed.polynomials.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from memsweep.models.deep.fixed.polynomials import PolynomialConfig, PolynomialUnit
from memsweep.models.stable_ssm.legs import normal_part
from memsweep.registry import register_unit


@register_unit("hippo_legs")
class HiPPOLegSUnit(PolynomialUnit):
    """All the past as Legendre polynomials; the recurrence is fixed, all maps around it are trained."""

    @dataclass(frozen=True, kw_only=True)
    class Config(PolynomialConfig):
        """The polynomials that describe the past."""

    def piece(self, before: int, steps: int) -> Tensor:
        return _piece(self.config.order, before, steps)


def legs_step(order: int, time: int) -> tuple[np.ndarray, np.ndarray]:
    """A_t ``[D, D]`` and B_t ``[D]`` of step ``time``, from 1."""
    root = np.sqrt(2.0 * np.arange(order) + 1.0)
    flow = normal_part(order) - np.outer(root, root) / 2.0  # -A
    if time == 1:
        kept = np.zeros((order, order))
    else:
        kept = torch.linalg.matrix_exp(torch.from_numpy(flow * -np.log1p(-1.0 / time))).numpy()
    return kept, np.linalg.solve(flow, (kept - np.eye(order)) @ root)


@lru_cache(maxsize=4096)
def _piece(order: int, before: int, steps: int) -> Tensor:
    """See ``PolynomialUnit.piece``."""
    found, reached = np.empty((steps + order, steps, order)), np.zeros((steps + order, order))
    reached[steps:] = np.eye(order)
    for step in range(steps):
        kept, held = legs_step(order, before + step + 1)
        reached = reached @ kept.T
        reached[step] = held
        found[:, step] = reached
    return torch.from_numpy(found.reshape(steps + order, steps * order))
