"""The diagonal RNN: independent modes, each with one rate, between a linear encoder and a linear readout.

h_t = h_{t-1} + dt sigma( [(lambda - 1) h_{t-1} + g (u x_t + b)] / dt ),   y_t = c . h_t + d

with eigenvalues lambda from the parameterization of the raw recurrent weights, activation sigma, encoder (u, b),
readout (c, d), and g = 1, or with ``normalize`` sqrt(1 - lambda^2) (the state keeps unit variance under white noise).
With linear activation this is h_t = lambda h_{t-1} + g (u x_t + b), whose impulse response is a sum of exponentials.
It is the hypothesis class of the curse of memory (arXiv 2305.19190, eq. 1) with a diagonal recurrence: the activation
acts on the whole increment, so the states of a bounded one move by at most dt a step.

The Curse-of-memory code calls ``lru`` what is here the parameterization ``lru`` with ``normalize`` and
``normalization: increment``: real eigenvalues, and g = sqrt(1 - (lambda - 1)^2).

Letters: see memsweep.models.base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models import initialization
from memsweep.models.base import Response, Role, Signature, Traits, Weights, leading_shape
from memsweep.models.modal.base import (
    ENCODER_AND_READOUT,
    PACKED,
    RATES,
    ModalConfig,
    ModalModel,
    balanced_modes,
    modal_response,
)
from memsweep.recurrence.layer import FlatDiagonal, Layer, width_in_flat
from memsweep.recurrence.linear.modal_loss import Modes
from memsweep.registry import register_model

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig


TURNING_AT_ZERO = frozenset({"direct", "relu", "exp", "lru", "softplus", "sigmoid", "heavy_tail", "best"})
"""Parameterizations whose eigenvalues are monotone in the raw weight on each side of 0, whatever the discretization."""


@register_model("diagonal_rnn")
class DiagonalRNN(ModalModel):
    """Diagonal recurrent network: linear with the activation ``linear``, nonlinear inside the recurrence otherwise."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ModalConfig):
        """A recurrence of independent modes, each with one rate, between a linear encoder and a linear readout."""

        activation: str = setting(
            "linear",
            "activation inside the recurrence, on the whole increment of the state",
            choices=("linear", "hardtanh", "tanh", "relu"),
        )

    @classmethod
    def problems_of_certificates(cls, trial: TrialConfig) -> Iterator[str]:
        config: Any = trial.model
        if not trial.has_closed_form or trial.perturbation.error == "sampled":
            yield "the error is a mean over test sequences, not an expectation in closed form"
        if config.normalize:
            yield "model.normalize is true, under which no bound is known"
        if config.parameterization.name not in TURNING_AT_ZERO:
            yield f"no bound is known under the parameterization {config.parameterization.name}"

    @classmethod
    def roles(cls, config: Config) -> Mapping[str, Role]:
        return RATES | ENCODER_AND_READOUT

    @classmethod
    def traits(cls, config: Config) -> Traits:
        return Traits(linear=config.activation == "linear", layer=True, separate_modes=True, pack_fields=PACKED)

    @classmethod
    def initial(cls, config: Config, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """See memsweep.models.initialization."""
        raw = initialization.raw_rates(config, signature.horizon, rng)
        return {"recurrent_weight": raw} | initialization.encoder_and_readout(
            config.initialization, config.width, signature, rng
        )

    def eigenvalues(self, weights: Weights) -> Tensor:
        return self.modes(weights)

    def layer(self, weights: Weights) -> Layer:
        leading, dt = leading_shape(self, weights), self.config.dt
        # modes first, then flatten: replicas may differ in their parameterization, copies of one replica may not
        eigenvalues = self.modes(weights)
        drive = self.gain(eigenvalues) / dt
        flat = len(leading) - 1
        return Layer(
            encoder=(drive.unsqueeze(-1) * weights["encoder_weight"]).flatten(0, flat),
            bias=(drive * weights["encoder_bias"]).flatten(0, flat),
            matrix=((eigenvalues - 1.0) / dt).flatten(0, flat),
            readout=weights["readout_weight"].flatten(0, flat),
            offset=weights["readout_bias"].flatten(0, flat),
            activation=self.config.activation,
            leak=1.0,
            gain=dt,
        )

    def flat_diagonal(self, weights: Tensor) -> FlatDiagonal | None:
        config, inputs, outputs = self.config, self.signature.inputs, self.signature.outputs
        scaled = config.normalize or config.dt != 1.0  # encoder and readout are
        if scaled or type(self) is not DiagonalRNN:  # a class of a user's may have another layer
            return None
        least, mapped = self.parameterizations.least(config.discretization), None
        if least is None:
            width = width_in_flat(weights, inputs, outputs)
            raw = weights[:, :width].detach().contiguous()
            mapped = self.parameterizations.differentiated(raw, config.discretization) or self._graph_of(raw)
        return FlatDiagonal(weights, inputs, outputs, config.activation, least or 0.0, mapped)

    def _graph_of(self, raw_NM: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The same as ``Parameterization.differentiated``, by torch's autograd."""
        raw_NM.requires_grad_(True)
        modes_NM = self.modes({"recurrent_weight": raw_NM})
        return modes_NM.detach(), lambda of_modes_NM: torch.autograd.grad(modes_NM, raw_NM, of_modes_NM)[0]

    def response(self, weights: Weights, horizon: int) -> Response:
        eigenvalues_NM = self.modes(weights)
        return modal_response(weights, eigenvalues_NM, self.gain(eigenvalues_NM), horizon)

    def as_modes(self, weights: Weights) -> Modes:
        return self.separated(weights, self.modes(weights))

    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        return balanced_modes(weights)
