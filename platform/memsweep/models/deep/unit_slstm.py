"""The sLSTM of xLSTM as a unit of deep models (arXiv 2405.04517, equations 8 to 18): cells with exponential gates.

    c_t = f_t c_{t-1} + i_t z_t,   n_t = f_t n_{t-1} + i_t,   h_t = o_t c_t / n_t,   y_t = h_t,
    z = tanh(a_z), i = exp(a_i), f = sigmoid(a_f) or exp(a_f), o = sigmoid(a_o),   a = W x_t + R h_{t-1} + b each

R mixes the cells of one head alone. c and n are kept divided by exp(m_t), m_t = max(log f_t + m_{t-1}, log i_t) with
m_0 = log i_0, so that nothing overflows and n >= 1; h does not depend on m, and no gradient passes it. The layer goes
on with h itself, so that width and features are one number. Time is a loop: the gates read the state.

Letters: see memsweep.models.deep.unit; H heads, D = M / H cells of each, G = 4 D: i, f, z, o of a head's cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.unit import State, Unit
from memsweep.recurrence.layer import affine
from memsweep.registry import register_unit

SIGMOID, EXP = "sigmoid", "exp"
_GATES = ("input", "forget", "candidate", "output")
_SLOWEST, _SPREAD, _POWER = 5.0, 12.0, 0.3  # of the forget gates' biases


@register_unit("slstm")
class SLSTMUnit(Unit):
    """sLSTM: cells with exponential input gates and a normalizer, whose heads mix their own cells alone."""

    answers_with_states = True

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Heads of cells, and how they forget; width and features are one number."""

        heads: int = setting(2, "number of heads, each with width / heads cells", at_least=1, at_most=1_000_000)
        forget: str = setting(
            SIGMOID, "the forget gate's function: sigmoid or exp, both published", choices=(SIGMOID, EXP)
        )

    @classmethod
    def refusal(cls, config: Config, width: int, features: int) -> str | None:
        if width != features:
            return (
                f"the unit slstm answers with its states, so that width and features are one number, but width is "
                f"{width} and features is {features}: give both the same value"
            )
        if width % config.heads == 0:
            return None
        return (
            f"the unit slstm needs a whole number of cells in each of its {config.heads} heads, but width is {width}: "
            f"let width be a multiple of {config.heads}"
        )

    def roles(self) -> Mapping[str, Role]:
        roles = {}
        for gate in _GATES:
            roles[f"matrix_{gate}"] = Role(Part.RECURRENT, ("width", "cell"), group=Group.RECURRENT)
            roles[f"encoder_{gate}"] = Role(Part.ENCODER, ("width", "feature"), group=Group.INPUT)
            roles[f"bias_{gate}"] = Role(Part.BIAS, ("width",), group=Group.INPUT)
        return roles

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """As in the authors' code: R zero, W normal with variance 2 / (5 F), forget biases 5 - 12 (j / (D - 1))^0.3.

        j is the cell of a head; the power is that of a single block. With ``exp`` f begins at the same numbers, for an
        f above 1 would keep the first step and no other.
        """
        del horizon  # time scales are spread alike for all lengths
        cells = self.width // self.config.heads
        weights, deviation = {}, math.sqrt(2.0 / (5.0 * self.features))
        for gate in _GATES:
            weights[f"matrix_{gate}"] = np.zeros((self.width, cells))
            weights[f"encoder_{gate}"] = deviation * rng.standard_normal((self.width, self.features))
            weights[f"bias_{gate}"] = np.zeros(self.width)
        forget = _SLOWEST - _SPREAD * (np.arange(cells) / max(cells - 1, 1)) ** _POWER
        forget = forget if self.config.forget == SIGMOID else -np.log1p(np.exp(-forget))
        return weights | {"bias_forget": np.tile(forget, self.config.heads)}

    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        state, answers, matrix_NHGD = None, [], self._matrix(weights)
        for drive_NBHG in self._drive(weights, x_NBTF).unbind(2):
            state = self._advance(drive_NBHG, matrix_NHGD, state)
            answers.append(state["shown"].flatten(2))
        return torch.stack(answers, 2)

    def step(self, weights: Weights, x_NBF: Tensor, state: State | None) -> tuple[Tensor, State]:
        after = self._advance(self._drive(weights, x_NBF.unsqueeze(2)).squeeze(2), self._matrix(weights), state)
        return after["shown"].flatten(2), after

    def _advance(self, drive_NBHG: Tensor, matrix_NHGD: Tensor, state: State | None) -> State:
        """The state after a step: h, c, n and m, ``[N, B, H, D]`` each."""
        if state is None:
            still = torch.zeros_like(drive_NBHG[..., : matrix_NHGD.shape[-1]])
            state = {"shown": still, "cell": still, "normalizer": still, "stabilizer": still - torch.inf}
        sums = drive_NBHG + torch.einsum("nbhd,nhgd->nbhg", state["shown"], matrix_NHGD)
        into, forget, candidate, out = sums.chunk(4, -1)
        log_kept = (forget if self.config.forget == EXP else logsigmoid(forget)) + state["stabilizer"]
        scale = torch.maximum(log_kept, into).detach()
        kept, new = torch.exp(log_kept - scale), torch.exp(into - scale)
        cell, normalizer = kept * state["cell"] + new * torch.tanh(candidate), kept * state["normalizer"] + new
        shown = torch.sigmoid(out) * cell / normalizer
        return {"shown": shown, "cell": cell, "normalizer": normalizer, "stabilizer": scale}

    def _drive(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        """W x + b by heads, ``[N, B, T, H, G]``."""
        encoder, bias = (torch.cat([weights[f"{kind}_{gate}"] for gate in _GATES], 1) for kind in ("encoder", "bias"))
        by_gate = affine(x_NBTF, encoder, bias).unflatten(-1, (4, self.config.heads, -1))
        return by_gate.transpose(3, 4).flatten(4)

    def _matrix(self, weights: Weights) -> Tensor:
        """R of all heads, ``[N, H, G, D]``."""
        by_head = [weights[f"matrix_{gate}"].unflatten(1, (self.config.heads, -1)) for gate in _GATES]
        return torch.cat(by_head, 2)
