"""The dense RNN: a recurrent matrix with chosen eigenvalues in a trained basis, between a linear encoder and readout.

h_t = h_{t-1} + dt sigma( [P^T diag(lambda - 1) P h_{t-1} + g (u x_t + b)] / dt ),   y_t = c . h_t + d

with eigenvalues lambda from the parameterization of the raw recurrent weights, activation sigma, encoder (u, b) and
readout (c, d). What P is, ``basis`` says:

``orthogonal``: P = exp((A - A^T) / 2) with trained A. Then lambda are the eigenvalues of the recurrence whatever the
    weights, and with linear activation the model is a diagonal RNN seen from rotated axes: P u and c P^T are its
    encoder and readout. With ``normalize``, g = P^T diag(sqrt(1 - lambda^2)) P: every mode keeps unit variance under
    white noise; otherwise g = 1.
``free``: P is trained as it stands, orthogonal at the start alone, as in the code published with arXiv 2305.19190.
    With rates r = f(w), h_t = h_{t-1} + dt sigma( (u x_t + b) / dt - P^T diag(r) P h_{t-1} ): what the rates are no
    longer decides how fast the model forgets, and a P that grows makes any of them leave the unit circle. The basis
    scales Euler's increment and nothing else, so that ``euler`` is the one discretization.

Letters: see memsweep.models.base.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models import initialization
from memsweep.models.balance import balanced_as_a_whole, driven_response
from memsweep.models.base import LayerModel, Part, Response, Role, Signature, Traits, Weights, leading_shape
from memsweep.models.modal.config import ModalConfig
from memsweep.models.modal.modes import balanced_modes, modal_response
from memsweep.models.orthogonal_maps import random_orthogonal, rotation
from memsweep.models.parameterizations.build import EULER, Mixture
from memsweep.recurrence.layer import Layer
from memsweep.registry import register_model

ORTHOGONAL, FREE = "orthogonal", "free"
_TURN = 2.0
"""Deviation of the entries of sqrt(M) A at the start: the angles of P then fill (-2.8, 2.8) like a semicircle."""


@register_model("dense_rnn")
class DenseRNN(LayerModel):
    """Dense recurrent network: linear with the activation ``linear``, nonlinear inside the recurrence otherwise."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ModalConfig):
        """A recurrent matrix with chosen eigenvalues in a trained basis, between a linear encoder and readout."""

        basis: str = setting(
            ORTHOGONAL,
            "the basis in which the recurrent matrix is diagonal: orthogonal, and kept so, or free (orthogonal at the "
            "start, then trained without constraint, as published; with discretization euler)",
            choices=(ORTHOGONAL, FREE),
        )
        activation: str = setting(
            "linear",
            "activation inside the recurrence, on the whole increment of the state",
            choices=("linear", "hardtanh", "tanh", "relu"),
        )

        def problems(self) -> Iterable[str]:
            if self.basis == FREE and self.discretization != EULER:
                yield (
                    f"basis free is a form of Euler's step, but discretization is {self.discretization}: use "
                    "discretization euler, or basis orthogonal"
                )
            if self.basis == FREE and self.normalize:
                yield (
                    "normalize needs independent modes, which basis free does not have: use normalize false, or basis "
                    "orthogonal"
                )

    @classmethod
    def roles(cls, config: Config) -> Mapping[str, Role]:
        return {
            "recurrent_weight": Role(Part.RECURRENT, ("width",), diagonal=True, rate=True),
            "basis": Role(Part.RECURRENT, ("width", "width")),
            "encoder_weight": Role(Part.ENCODER, ("width", "input")),
            "encoder_bias": Role(Part.BIAS, ("width",)),
            "readout_weight": Role(Part.READOUT, ("output", "width")),
            "readout_bias": Role(Part.BIAS, ("output",)),
        }

    @classmethod
    def traits(cls, config: Config) -> Traits:
        """An orthogonal basis has separate modes; with a nonlinear activation they are the modes of small states."""
        separate = config.basis == ORTHOGONAL
        return Traits(
            linear=config.activation == "linear",
            layer=True,
            separate_modes=separate,
            # a free P, padded with zeros, would have modes of eigenvalue 1 in its padding
            pack_fields=frozenset({"width", "parameterization"}) if separate else frozenset(),
        )

    @classmethod
    def initial(cls, config: Config, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """See memsweep.models.initialization; the basis is a random rotation, or a random orthogonal matrix if free."""
        width = config.width
        raw = initialization.raw_rates(config, signature.horizon, rng)
        if config.basis == FREE:
            basis = random_orthogonal(width, rng)
        else:
            basis = rng.standard_normal((width, width)) * (_TURN / math.sqrt(width))
        weights = {"recurrent_weight": raw, "basis": basis}
        return weights | initialization.encoder_and_readout(config.initialization, width, signature, rng)

    def configure(self, configs: Sequence[Config]) -> None:
        self.parameterizations = Mixture([config.parameterization for config in configs])

    def _diagonal(self, weights: Weights) -> Tensor:
        """lambda, of which the basis makes the recurrent matrix: ``[N..., M]``."""
        return self.parameterizations.eigenvalue(
            weights["recurrent_weight"], self.config.dt, self.config.discretization
        )

    def _basis(self, weights: Weights) -> Tensor:
        """P: ``[N..., M, M]``."""
        return rotation(weights["basis"]) if self.config.basis == ORTHOGONAL else weights["basis"]

    def _increment(self, basis_NMM: Tensor, diagonal_NM: Tensor) -> Tensor:
        """P^T diag(lambda - 1) P, what one step of the linear recurrence adds to the state: ``[N..., M, M]``."""
        return basis_NMM.mT @ ((diagonal_NM - 1.0).unsqueeze(-1) * basis_NMM)

    def _gain(self, diagonal_NM: Tensor) -> Tensor:
        """Input scale of each mode; NaN beyond |lambda| = 1 with ``normalize``: no such normalized state exists."""
        return torch.sqrt(1.0 - diagonal_NM.square()) if self.config.normalize else torch.ones_like(diagonal_NM)

    def eigenvalues(self, weights: Weights) -> Tensor:
        """In the order of the width axis; those of a free basis ascend."""
        diagonal_NM = self._diagonal(weights)
        if self.config.basis == ORTHOGONAL:
            return diagonal_NM
        step_NMM = self._increment(self._basis(weights), diagonal_NM)
        known = torch.isfinite(step_NMM).all(-1).all(-1)
        moved_NM = torch.linalg.eigvalsh(torch.where(known[..., None, None], step_NMM, 0.0))
        return torch.where(known.unsqueeze(-1), 1.0 + moved_NM, torch.nan)

    def modal(self, weights: Weights, inverse: bool = False) -> dict[str, Tensor]:
        basis_NMM = self._basis(weights)
        return self._rotated(weights, basis_NMM.mT if inverse else basis_NMM)

    def _rotated(self, weights: Weights, basis_NMM: Tensor) -> dict[str, Tensor]:
        """Encoder and readout of the states P h."""
        return dict(weights) | {
            "encoder_weight": basis_NMM @ weights["encoder_weight"],
            "encoder_bias": (basis_NMM @ weights["encoder_bias"].unsqueeze(-1)).squeeze(-1),
            "readout_weight": weights["readout_weight"] @ basis_NMM.mT,
        }

    def layer(self, weights: Weights) -> Layer:
        """In the basis of the modes where they stay apart."""
        leading, dt = leading_shape(self, weights), self.config.dt
        # before the leading dimensions are flattened: replicas may differ in their parameterization, copies may not
        flat = len(leading) - 1
        diagonal_NM, basis_NMM = self._diagonal(weights).flatten(0, flat), self._basis(weights).flatten(0, flat)
        weights = {name: value.flatten(0, flat) for name, value in weights.items()}
        if self.config.basis == ORTHOGONAL and self.config.activation == "linear":
            weights, matrix = self._rotated(weights, basis_NMM), diagonal_NM - 1.0
            gain_NM = self._gain(diagonal_NM)
            encoder_NMI, bias_NM = gain_NM.unsqueeze(-1) * weights["encoder_weight"], gain_NM * weights["encoder_bias"]
        else:
            matrix = self._increment(basis_NMM, diagonal_NM)
            encoder_NMI, bias_NM = weights["encoder_weight"], weights["encoder_bias"]
            if self.config.normalize:
                gain_NMM = basis_NMM.mT @ (self._gain(diagonal_NM).unsqueeze(-1) * basis_NMM)
                encoder_NMI, bias_NM = gain_NMM @ encoder_NMI, (gain_NMM @ bias_NM.unsqueeze(-1)).squeeze(-1)
        return Layer(
            encoder=encoder_NMI / dt,
            bias=bias_NM / dt,
            matrix=matrix / dt,
            readout=weights["readout_weight"],
            offset=weights["readout_bias"],
            activation=self.config.activation,
            leak=1.0,
            gain=dt,
        )

    def response(self, weights: Weights, horizon: int) -> Response:
        diagonal_NM, basis_NMM = self._diagonal(weights), self._basis(weights)
        if self.config.basis == ORTHOGONAL:
            return modal_response(self._rotated(weights, basis_NMM), diagonal_NM, self._gain(diagonal_NM), horizon)
        identity_MM = torch.eye(self.config.width, dtype=diagonal_NM.dtype, device=diagonal_NM.device)
        matrix_NMM = identity_MM + self._increment(basis_NMM, diagonal_NM)
        return driven_response(
            matrix_NMM,
            weights["encoder_weight"],
            weights["encoder_bias"],
            weights["readout_weight"],
            weights["readout_bias"],
            horizon,
        )

    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        """|encoder| = |readout| in every mode of an orthogonal basis, in all where the basis is free."""
        if self.config.basis == ORTHOGONAL:
            return self.modal(balanced_modes(self.modal(weights)), inverse=True)
        return balanced_as_a_whole(weights, ["encoder_weight"], ["encoder_bias"], ["readout_weight"])
