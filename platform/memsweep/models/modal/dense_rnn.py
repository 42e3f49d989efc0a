"""The dense RNN: a recurrent matrix with chosen eigenvalues in a trained basis, between a linear encoder and readout.

h_t = h_{t-1} + dt sigma( [P^T diag(lambda - 1) P h_{t-1} + g (u x_t + b)] / dt ),   y_t = c . h_t + d

with eigenvalues lambda from the parameterization of the raw recurrent weights, activation sigma, encoder (u, b) and
readout (c, d). What P is, ``basis`` says:

``orthogonal``: P = exp((A - A^T) / 2) with trained A. Then lambda are the eigenvalues of the recurrence whatever the
    weights, and with linear activation the model is a diagonal RNN seen from rotated axes: P u and c P^T are its
    encoder and readout. With ``normalize``, g = P^T diag(sqrt(1 - lambda^2)) P: every mode keeps unit variance under
    white noise; otherwise g = 1.
``free``: P is trained as it stands, orthogonal at the start alone, as in the code published with arXiv 2305.19190.
    With rates r = f(w), h_t = h_{t-1} + dt sigma( (u x_t + b) / dt - P^T diag(r) P h_{t-1} ): the rates alone no longer
    decide how fast the model forgets, and a growing P makes any eigenvalue leave the unit circle. The basis
    scales Euler's increment and nothing else, so that ``euler`` is the one discretization.

Letters: see memsweep.models.base.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models import initialization
from memsweep.models.affine import balanced_as_a_whole, driven_response
from memsweep.models.base import Part, Response, Role, Signature, Traits, Weights, leading_shape
from memsweep.models.modal.base import (
    ENCODER_AND_READOUT,
    PACKED,
    RATES,
    ModalConfig,
    ModalModel,
    balanced_modes,
    modal_response,
)
from memsweep.models.orthogonal_maps import random_orthogonal, rotation
from memsweep.models.parameterizations.base import EULER
from memsweep.models.spectrum import symmetric_eigenvalues
from memsweep.recurrence.layer import Layer
from memsweep.registry import register_model

ORTHOGONAL, FREE = "orthogonal", "free"
_TURN = 2.0
"""Deviation of the entries of sqrt(M) A at the start: the angles of P then fill (-2.8, 2.8) like a semicircle."""


@register_model("dense_rnn")
class DenseRNN(ModalModel):
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
            yield from super().problems()
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
        return RATES | {"basis": Role(Part.RECURRENT, ("width", "width"))} | ENCODER_AND_READOUT

    @classmethod
    def traits(cls, config: Config) -> Traits:
        """An orthogonal basis has separate modes; with a nonlinear activation they are the modes of small states."""
        separate = config.basis == ORTHOGONAL
        return Traits(
            linear=config.activation == "linear",
            layer=True,
            separate_modes=separate,
            # a free P, padded with zeros, would have modes of eigenvalue 1 in its padding
            pack_fields=PACKED if separate else frozenset(),
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

    def _basis(self, weights: Weights) -> Tensor:
        """P: ``[N..., M, M]``."""
        return rotation(weights["basis"]) if self.config.basis == ORTHOGONAL else weights["basis"]

    def _increment(self, basis_NMM: Tensor, diagonal_NM: Tensor) -> Tensor:
        """P^T diag(lambda - 1) P, what one step of the linear recurrence adds to the state: ``[N..., M, M]``."""
        return basis_NMM.mT @ ((diagonal_NM - 1.0).unsqueeze(-1) * basis_NMM)

    def eigenvalues(self, weights: Weights) -> Tensor:
        """In the order of the width axis; those of a free basis ascend."""
        diagonal_NM = self.modes(weights)
        if self.config.basis == ORTHOGONAL:
            return diagonal_NM
        return 1.0 + symmetric_eigenvalues(self._increment(self._basis(weights), diagonal_NM))

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
        """In the basis of the modes where no activation mixes them."""
        leading, dt = leading_shape(self, weights), self.config.dt
        # modes first, then flatten: replicas may differ in their parameterization, copies of one replica may not
        flat = len(leading) - 1
        diagonal_NM, basis_NMM = self.modes(weights).flatten(0, flat), self._basis(weights).flatten(0, flat)
        weights = {name: value.flatten(0, flat) for name, value in weights.items()}
        if self.config.basis == ORTHOGONAL and self.config.activation == "linear":
            # the basis of the modes, where the recurrence is diagonal, [N, M]: a step costs M products, not M^2
            weights, matrix = self._rotated(weights, basis_NMM), diagonal_NM - 1.0
            gain_NM = self.gain(diagonal_NM)
            encoder_NMI, bias_NM = gain_NM.unsqueeze(-1) * weights["encoder_weight"], gain_NM * weights["encoder_bias"]
        else:
            matrix = self._increment(basis_NMM, diagonal_NM)
            encoder_NMI, bias_NM = weights["encoder_weight"], weights["encoder_bias"]
            if self.config.normalize:
                gain_NMM = basis_NMM.mT @ (self.gain(diagonal_NM).unsqueeze(-1) * basis_NMM)
                encoder_NMI, bias_NM = gain_NMM @ encoder_NMI, (gain_NMM @ bias_NM.unsqueeze(-1)).squeeze(-1)
        return Layer(
            # the activation acts on the rate of change: h_t = h_{t-1} + dt sigma(increment / dt)
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
        diagonal_NM, basis_NMM = self.modes(weights), self._basis(weights)
        if self.config.basis == ORTHOGONAL:
            return modal_response(self._rotated(weights, basis_NMM), diagonal_NM, self.gain(diagonal_NM), horizon)
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
