"""The diagonal linear RNN: independent modes, each with one rate.

h_t = lambda * h_{t-1} + g * (u x_t + b),   y_t = c . h_t + d

with eigenvalues lambda from the parameterization of the raw recurrent weights, encoder (u, b), readout (c, d), and
g = 1, or sqrt(1 - lambda^2) with ``normalize`` (the state keeps unit variance under white noise). It is the
hypothesis class of the curse of memory for diagonal recurrences (arXiv 2305.19190, eq. 1 with linear activation),
whose impulse response is a sum of exponentials.

Letters: see memsweep.models.base.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from memsweep.config.fields import setting
from memsweep.models.base import LinearModel, Part, Response, Role, Signature, Weights
from memsweep.models.parameterization import EULER, EXACT, Exp, Mixture, build
from memsweep.recurrence.impulse import diagonal_response
from memsweep.registry import register_model


@register_model("diagonal_rnn")
class DiagonalRNN(LinearModel):
    """Diagonal recurrent network with linear activation, encoder and readout."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """A recurrence of independent modes, each with one rate, between a linear encoder and a linear readout."""

        width: int = setting(8, "hidden size: the number of modes", at_least=1, at_most=1_000_000)
        parameterization: Any = setting(
            doc="map from the raw recurrent weights to rates", factory=Exp.Config, registered="parameterization"
        )
        activation: str = setting("linear", "activation inside the recurrence", choices=("linear",))
        discretization: str = setting(
            EXACT,
            "eigenvalue of a rate r over one step: exact, exp(-r dt), or euler, 1 - r dt, which adds a blow-up at "
            "r dt > 2 that has nothing to do with memory (direct: 1 - w dt in both)",
            choices=(EXACT, EULER),
        )
        dt: float = setting(1.0, "length of a time step", at_least=1e-6, at_most=1e3)
        normalize: bool = setting(
            False, "scale the input of a mode by sqrt(1 - eigenvalue^2), so that its state keeps unit variance"
        )

    roles: ClassVar[Mapping[str, Role]] = {
        "recurrent_weight": Role(Part.RECURRENT, ("width",), diagonal=True),
        "encoder_weight": Role(Part.ENCODER, ("width", "input")),
        "encoder_bias": Role(Part.BIAS, ("width",)),
        "readout_weight": Role(Part.READOUT, ("output", "width")),
        "readout_bias": Role(Part.BIAS, ("output",)),
    }
    pack_fields = frozenset({"width", "parameterization"})

    @classmethod
    def initial(cls, config: Config, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Rates log-uniform between 1/horizon and 1, spread evenly; every mode alive; amplitudes of order 1/width."""
        width = config.width
        # one draw in each of `width` equal parts of the range: no model starts with all of its modes at one end
        place = (np.arange(width) + rng.uniform(size=width)) / width
        rates = max(signature.horizon, 2) ** -place / config.dt
        raw = build(config.parameterization).raw(torch.from_numpy(rates)).numpy()
        return {
            "recurrent_weight": raw,
            "encoder_weight": rng.standard_normal((width, signature.inputs)) / math.sqrt(width),
            "encoder_bias": np.zeros(width),
            "readout_weight": rng.standard_normal((signature.outputs, width)) / math.sqrt(width),
            "readout_bias": np.zeros(signature.outputs),
        }

    def setup(self) -> None:
        self.configure([self.config])

    def configure(self, configs: Sequence[Config]) -> None:
        self.parameterizations = Mixture([config.parameterization for config in configs])

    def eigenvalues(self, weights: Weights) -> Tensor:
        return self.parameterizations.eigenvalue(
            weights["recurrent_weight"], self.config.dt, self.config.discretization
        )

    def _gain(self, eigenvalues: Tensor) -> Tensor:
        """Input scale of each mode; NaN beyond |eigenvalue| = 1 with ``normalize``: no such normalized state exists."""
        return torch.sqrt(1.0 - eigenvalues.square()) if self.config.normalize else torch.ones_like(eigenvalues)

    def forward(self, inputs: Tensor) -> Tensor:
        """The plain recurrence over time: the oracle of every faster path."""
        weights = dict(self.named_parameters())
        eigenvalues = self.eigenvalues({"recurrent_weight": weights["recurrent_weight"].unsqueeze(0)}).squeeze(0)
        drive_BTM = self._gain(eigenvalues) * (inputs @ weights["encoder_weight"].T + weights["encoder_bias"])
        state_BM = torch.zeros_like(drive_BTM[:, 0])
        states = []
        for drive_BM in drive_BTM.unbind(1):
            state_BM = eigenvalues * state_BM + drive_BM
            states.append(state_BM)
        return torch.stack(states, 1) @ weights["readout_weight"].T + weights["readout_bias"]

    def response(self, weights: Weights, horizon: int) -> Response:
        eigenvalues_NM = self.eigenvalues(weights)
        # channels: every input, then the encoder bias as one more input that is always on
        drive_NMI = torch.cat([weights["encoder_weight"], weights["encoder_bias"].unsqueeze(-1)], -1)
        drive_NIM = (self._gain(eigenvalues_NM).unsqueeze(-1) * drive_NMI).transpose(-1, -2)
        readout_NOM = weights["readout_weight"]
        amplitudes = readout_NOM.unsqueeze(-2) * drive_NIM.unsqueeze(-3)
        outputs, channels = amplitudes.shape[-3:-1]
        flat = diagonal_response(amplitudes.flatten(-3, -2), eigenvalues_NM, horizon)
        answers_NOIT = flat.unflatten(-2, (outputs, channels))
        drift_NOT = answers_NOIT[..., -1, :].cumsum(-1) + weights["readout_bias"].unsqueeze(-1)
        return Response(kernel=answers_NOIT[..., :-1, :], drift=drift_NOT)

    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        encoder, readout = weights["encoder_weight"], weights["readout_weight"]
        encoder_size, readout_size = encoder.norm(dim=-1), readout.norm(dim=-2)
        alive = (encoder_size > 0) & (readout_size > 0)  # a mode without input or output has no gauge to choose
        ratio = torch.where(alive, encoder_size, 1.0) / torch.where(alive, readout_size, 1.0)
        scale = ratio.sqrt()
        return dict(weights) | {
            "encoder_weight": encoder / scale.unsqueeze(-1),
            "encoder_bias": weights["encoder_bias"] / scale,
            "readout_weight": readout * scale.unsqueeze(-2),
        }
