"""HiPPO-LegS as a unit of deep models (Gu et al. 2020, arXiv 2008.07669, Theorem 2): all the past in polynomials.

    m_t = A_t m_{t-1} + B_t u_t,   u_t = W x_t,   y_t = C m_t + D x_t

Of every channel of u, the d numbers m are the coefficients of all steps so far in the first d Legendre polynomials,
stretched over 0 ... t: nothing is forgotten, old steps are told apart less and less. dm/dt = (-A m + B u) / t with the
LegS matrices has an exact solution where u is constant over a step, with r = log (t / (t - 1)):

    A_t = exp(-A r),   B_t = A^(-1) (1 - A_t) B,   A_1 = 0

A and B are given and W, C and D trained, as of the unit ``lmu``. The matrices change from step to step: the recurrence
is linear, but its impulse response changes, and its eigenvalues go to 1. A sequence runs in pieces, as that of ``lmu``.

Letters: see memsweep.models.deep.fixed.lmu.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.unit import State, Unit, mapped
from memsweep.models.initialization import lecun_normal
from memsweep.models.stable_ssm.legs import normal_part
from memsweep.registry import register_unit

_PIECE = 32


@register_unit("hippo_legs")
class HiPPOLegSUnit(Unit):
    """All the past as Legendre polynomials; the recurrence is fixed, all maps around it are trained."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The polynomials that describe the past."""

        order: int = setting(
            4, "polynomials of a channel, d: width counts those of all channels", at_least=1, at_most=1000
        )

    @classmethod
    def refusal(cls, config: Config, width: int, features: int) -> str | None:
        if width % config.order == 0:
            return None
        return (
            f"the unit hippo_legs has {config.order} numbers for each channel, but width is {width}: let width be a "
            f"multiple of {config.order}, or give the unit another order"
        )

    def roles(self) -> Mapping[str, Role]:
        return {
            "encoder": Role(Part.ENCODER, ("channel", "feature"), group=Group.INPUT),
            "readout": Role(Part.READOUT, ("feature", "width")),
            "skip": Role(Part.GAIN, ("feature",)),
        }

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """As those of the unit lmu."""
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
            matrix = _piece(self.config.order, time, steps).to(x_NBTF)
            found = (torch.cat([piece_NBPL, memory_NBPD], -1) @ matrix).unflatten(-1, (steps, -1))
            memory_NBPD, time = found[..., -1, :], time + steps
            pieces.append(found)
        memories_NBTPD = torch.cat(pieces, 3).transpose(2, 3)
        after = {"memory": memory_NBPD, "steps": torch.tensor(time)}
        skipped = weights["skip"][:, None, None] * x_NBTF
        return mapped(weights["readout"], memories_NBTPD.flatten(3)) + skipped, after


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
    """All memories of a piece from its inputs and the memory before it, ``[L + D, L D]``, float64."""
    found, reached = np.empty((steps + order, steps, order)), np.zeros((steps + order, order))
    reached[steps:] = np.eye(order)
    for step in range(steps):
        kept, held = legs_step(order, before + step + 1)
        reached = reached @ kept.T
        reached[step] = held
        found[:, step] = reached
    return torch.from_numpy(found.reshape(steps + order, steps * order))
