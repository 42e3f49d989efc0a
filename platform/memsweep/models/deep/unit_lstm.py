"""The LSTM as a unit of deep models (with a forget gate: Gers et al. 2000).

    i, f, o = sigmoid(W x_t + U h_{t-1} + b) each,   g = tanh(W_g x_t + U_g h_{t-1} + b_g),
    c_t = f c_{t-1} + i g,   h_t = o tanh(c_t),   y_t = h_t

The same as torch.nn.LSTM, which has a second bias besides. The layer goes on with h itself, so that width and features
are one number. A state is two numbers, c and h, so that the learning rules of one recurrence do not fit.

Letters: see memsweep.models.deep.unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models import spectrum
from memsweep.models.base import Group, Part, Role, Weights
from memsweep.models.deep.no_encoder.first_layer import reads_inputs
from memsweep.models.deep.unit import State, Unit
from memsweep.models.initialization import chrono_biases, lecun_normal
from memsweep.recurrence.gated.lstm import lstm_states, lstm_step
from memsweep.recurrence.layer import affine
from memsweep.registry import register_unit

_GATES = ("input", "forget", "output", "candidate")


@register_unit("lstm")
class LSTMUnit(Unit):
    """Long short-term memory: gates decide what a cell keeps, what is new in it, and what of it is shown."""

    answers_with_states = True

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Gated cells; width and features are one number."""

        chrono: bool = setting(
            False,
            "draw the biases of forgetting so that time scales are spread over 1 ... the horizon (arXiv 1804.11188); "
            "otherwise those of the forget gates are 1, and a cell keeps 73 % of its content at each step",
        )

    @classmethod
    def refusal(cls, config: Config, width: int, features: int) -> str | None:
        if width == features:
            return None
        return (
            f"the unit lstm answers with its states, so that width and features are one number, but width is {width} "
            f"and features is {features}: give both the same value"
        )

    def roles(self) -> Mapping[str, Role]:
        roles = {}
        for gate in _GATES:
            roles[f"matrix_{gate}"] = Role(Part.RECURRENT, ("width", "width"), group=Group.RECURRENT)
            roles[f"encoder_{gate}"] = Role(Part.ENCODER, ("width", "feature"), group=Group.INPUT)
            roles[f"bias_{gate}"] = Role(Part.BIAS, ("width",), group=Group.INPUT)
        return roles

    def initial(self, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Flax's defaults for dense layers, and a forget bias of 1 (Jozefowicz et al. 2015) or chrono's."""
        weights = {}
        for gate in _GATES:
            weights[f"matrix_{gate}"] = lecun_normal(self.width, self.width, rng)
            weights[f"encoder_{gate}"] = lecun_normal(self.width, self.features, rng)
            weights[f"bias_{gate}"] = np.zeros(self.width)
        if self.config.chrono:
            spread = chrono_biases(self.width, horizon, rng)
            return weights | {"bias_forget": spread, "bias_input": -spread}
        return weights | {"bias_forget": np.ones(self.width)}

    def run(self, weights: Weights, x_NBTF: Tensor) -> Tensor:
        encoder, bias, matrix = (_joined(weights, kind) for kind in ("encoder", "bias", "matrix"))
        return lstm_states(x_NBTF, encoder, bias, matrix)

    def step(self, weights: Weights, x_NBF: Tensor, state: State | None) -> tuple[Tensor, State]:
        still_NBM = torch.zeros_like(x_NBF)
        if reads_inputs(self):
            still_NBM = x_NBF.new_zeros(*x_NBF.shape[:2], self.width)
        cell_NBM, shown_NBM = (still_NBM, still_NBM) if state is None else (state["cell"], state["shown"])
        drive_NBG = affine(x_NBF.unsqueeze(2), _joined(weights, "encoder"), _joined(weights, "bias")).squeeze(2)
        sums = drive_NBG + shown_NBM @ _joined(weights, "matrix").mT
        cell_NBM, shown_NBM = lstm_step(sums, cell_NBM)
        return shown_NBM, {"cell": cell_NBM, "shown": shown_NBM}

    def eigenvalues(self, weights: Weights) -> Tensor:
        """Of the step of (c, h), ``[N, 2 M]``, at states and input zero: at rest while the candidate's bias is zero."""
        into, forget, out = (torch.sigmoid(weights[f"bias_{gate}"]) for gate in _GATES[:3])
        candidate = torch.tanh(weights["bias_candidate"])
        cell = torch.tanh(into * candidate)
        shown = (out * (1.0 - cell.square())).unsqueeze(-1)  # dh / dc, all within one step
        of_c_by_c = torch.diag_embed(forget)
        of_c_by_h = (into * (1.0 - candidate.square())).unsqueeze(-1) * weights["matrix_candidate"]
        of_c_by_h = of_c_by_h + (candidate * into * (1.0 - into)).unsqueeze(-1) * weights["matrix_input"]
        of_h_by_h = shown * of_c_by_h + (cell * out * (1.0 - out)).unsqueeze(-1) * weights["matrix_output"]
        rows = [torch.cat([of_c_by_c, of_c_by_h], -1), torch.cat([shown * of_c_by_c, of_h_by_h], -1)]
        return spectrum.eigenvalues(torch.cat(rows, -2))


def _joined(weights: Weights, kind: str) -> Tensor:
    """Weights of the four gates, one below the other: i, f, o, g."""
    return torch.cat([weights[f"{kind}_{gate}"] for gate in _GATES], 1)
