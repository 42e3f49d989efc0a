"""The mLSTM of xLSTM as a unit of deep models (arXiv 2405.04517, equations 19 to 27): a matrix holds values by keys.

    C_t = f_t C_{t-1} + i_t v_t k_t',   n_t = f_t n_{t-1} + i_t k_t,   i_t = exp(w_i x_t + b_i),
    h_t = sigmoid(W_o x_t + b_o) C_t q_t / max(|n_t' q_t|, 1),   y_t = W h_t

f_t is the sigmoid or the exponential of w_f x_t + b_f; i and f are one number for each head; keys are divided by
sqrt(D). C and n are kept divided by exp(m_t), m_t = max(log f_t + m_{t-1}, log i_t) with m_{-1} = 0 (equations 15 to
17), so that nothing overflows; h does not depend on m, and no gradient passes it. n is a further row of C, whose values
are ones. The published block around it (up-projection, norm of the heads, skip) is not here.

Letters: see memsweep.models.deep.attention.heads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from memsweep.config.core.fields import setting
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.attention.heads import HeadsConfig, HeadsUnit
from memsweep.models.deep.unit import State, mapped
from memsweep.models.initialization import lecun_normal
from memsweep.recurrence.layer import affine
from memsweep.recurrence.matrix.states import matrix_states
from memsweep.registry import register_unit

SIGMOID, EXP = "sigmoid", "exp"
INPUT, FORGET, OUTPUT = "input", "forget", "output"
_FIRST_BIAS, _LAST_BIAS = 3.0, 6.0  # of the forget gates of the first and of the last head
_BIAS_DEVIATION = 0.1  # of the input gates


@register_unit("mlstm")
class MLSTMUnit(HeadsUnit):
    """mLSTM: a matrix of each head holds values by their keys; new ones enter by an exponential gate."""

    @dataclass(frozen=True, kw_only=True)
    class Config(HeadsConfig):
        """Heads, and how they forget."""

        forget: str = setting(
            SIGMOID, "the forget gate's function: sigmoid or exp, both published", choices=(SIGMOID, EXP)
        )

    def roles(self) -> Mapping[str, Role]:
        roles = dict(super().roles())
        for gate in (INPUT, FORGET):
            roles[f"encoder_{gate}"] = Role(Part.RECURRENT, ("head", "feature"), group=Group.RECURRENT)
            roles[f"bias_{gate}"] = Role(Part.BIAS, ("head",), group=Group.RECURRENT)
        roles[f"encoder_{OUTPUT}"] = Role(Part.READOUT, ("width", "feature"))
        return roles | {f"bias_{OUTPUT}": Role(Part.BIAS, ("width",))}

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Gates as in the authors' code: i and f begin as functions of their biases alone.

        Those of forget gates are spread over 3 ... 6, so that f is 0.95 to 0.998; with ``exp`` f begins at the same
        numbers, for an f above 1 would keep the first step and no other.
        """
        weights, heads = super().initial(horizon, rng), self.config.heads
        forget = np.linspace(_FIRST_BIAS, _LAST_BIAS, heads)
        for gate in (INPUT, FORGET):
            weights[f"encoder_{gate}"] = np.zeros((heads, self.features))
        weights[f"bias_{INPUT}"] = _BIAS_DEVIATION * rng.standard_normal(heads)
        weights[f"bias_{FORGET}"] = forget if self.config.forget == SIGMOID else -np.log1p(np.exp(-forget))
        weights[f"encoder_{OUTPUT}"] = lecun_normal(self.width, self.features, rng)
        return weights | {f"bias_{OUTPUT}": np.zeros(self.width)}

    def going_on(self, weights: Weights, x_NBTF: Tensor, state: State | None) -> tuple[Tensor, State]:
        joined, after = self.convolved(weights, x_NBTF, state)
        query, key, value = (self.by_head(part) for part in joined.chunk(3, -1))
        log_into, log_forget = self._log_gates(weights, x_NBTF)
        before = torch.zeros_like(log_into[..., :1, :]) if state is None else state["stabilizer"]
        # h does not depend on m, so that its gradient is zero: it need not be computed
        with torch.no_grad():
            scale = _stabilizer(log_forget, log_into, before)
            step_before = torch.cat([before, scale[..., :-1, :]], -2)
        # the ones beside the values make n a further row of C; decays and inputs are in units of exp(m), as C is
        found, left = matrix_states(
            query.flatten(0, 2),
            (key / math.sqrt(key.shape[-1]) * torch.exp(log_into - scale)).flatten(0, 2),
            functional.pad(value, (0, 1), value=1.0).flatten(0, 2),
            (log_forget + step_before - scale).flatten(0, 2),
            start_XVK=None if state is None else state["matrix"].flatten(0, 2),
        )
        read, normalizer = found.unflatten(0, query.shape[:3]).split([query.shape[-1], 1], -1)
        # max(|n' q|, 1), both divided by exp(m)
        answers = self.together(read / torch.maximum(normalizer.abs(), torch.exp(-scale)))
        shown = torch.sigmoid(affine(x_NBTF, weights[f"encoder_{OUTPUT}"], weights[f"bias_{OUTPUT}"])) * answers
        after |= {"matrix": left.unflatten(0, query.shape[:3]), "stabilizer": scale[..., -1:, :]}
        return mapped(weights["readout"], shown), after

    def products(self, horizon: int) -> int:
        return 3 * self.width**2 // self.config.heads

    def eigenvalues(self, weights: Weights) -> Tensor:
        """f at input zero, ``[N, M]``, one for each key."""
        bias = weights[f"bias_{FORGET}"]
        forget = torch.sigmoid(bias) if self.config.forget == SIGMOID else torch.exp(bias)
        return forget.repeat_interleave(self.width // self.config.heads, 1)

    def _log_gates(self, weights: Weights, x_NBTF: Tensor) -> tuple[Tensor, Tensor]:
        """log i and log f, ``[N, B, H, T, 1]``."""
        into, forget = (
            self.by_head(affine(x_NBTF, weights[f"encoder_{gate}"], weights[f"bias_{gate}"]))
            for gate in (INPUT, FORGET)
        )
        return into, functional.logsigmoid(forget) if self.config.forget == SIGMOID else forget


def _stabilizer(log_forget: Tensor, log_into: Tensor, before: Tensor) -> Tensor:
    """m of every step, ``[..., T, 1]``: spans of steps are joined in pairs, so that it takes log T rounds.

    A difference of cumulated logarithms would lose its digits on long sequences.
    """
    kept, largest, span = log_forget, log_into, 1
    while span < kept.shape[-2]:
        earlier, later = slice(None, -span), slice(span, None)
        reached = torch.maximum(largest[..., later, :], kept[..., later, :] + largest[..., earlier, :])
        largest = torch.cat([largest[..., :span, :], reached], -2)
        kept = torch.cat([kept[..., :span, :], kept[..., later, :] + kept[..., earlier, :]], -2)
        span *= 2
    return torch.maximum(largest, kept + before)
