"""The base class of models whose recurrence is a set of modes with chosen rates, and the fields of their Configs.

Letters: see memsweep.models.base.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.config.core.fields import setting
from memsweep.models import initialization
from memsweep.models.base import LayerModel, Part, Response, Role, Weights
from memsweep.models.parameterizations.base import DISCRETIZATIONS, EXACT, Mixture
from memsweep.models.parameterizations.maps import Exp
from memsweep.recurrence.linear.impulse import pulled_back, vandermonde
from memsweep.recurrence.linear.modal_loss import Modes
from memsweep.recurrence.padding import aligned

STATE, INCREMENT = "state", "increment"


@dataclass(frozen=True, kw_only=True)
class ModalConfig:
    """The fields that decide the modes of a model and their initial weights; a model's own Config adds to them."""

    width: int = setting(8, "hidden size: the number of modes", at_least=1, at_most=1_000_000)
    parameterization: Any = setting(
        doc="map from the raw recurrent weights to rates", factory=Exp.Config, registered="parameterization"
    )
    discretization: str = setting(
        EXACT,
        "eigenvalue of a rate r over one step: exact (zero-order hold), exp(-r dt); euler, 1 - r dt, which adds a "
        "blow-up at r dt > 2 that has nothing to do with memory (direct and relu: 1 - w dt in both); or discrete, the "
        "parameterization's own discrete-time map",
        choices=DISCRETIZATIONS,
    )
    dt: float = setting(1.0, "length of a time step", at_least=1e-6, at_most=1e3)
    normalize: bool = setting(False, "scale the input of a mode by a function of its eigenvalue (see normalization)")
    normalization: str = setting(
        STATE,
        "with normalize: state, sqrt(1 - eigenvalue^2), so that the state keeps unit variance; or increment, "
        "sqrt(1 - (eigenvalue - 1)^2), as the lru of the Curse-of-memory code has it: 1 for slow modes, 0 for fast "
        "ones, so that it shrinks no slow state",
        choices=(STATE, INCREMENT),
    )
    initialization: str = setting(initialization.SPREAD, initialization.DOC, choices=initialization.CHOICES)

    def problems(self) -> Iterable[str]:
        if self.normalization == INCREMENT and not self.normalize:
            yield "normalization is increment, but normalize is off: set normalize to true, or normalization to state"


RATES = {"recurrent_weight": Role(Part.RECURRENT, ("width",), diagonal=True, rate=True)}
"""The role of the raw weights that a parameterization maps to rates."""
ENCODER_AND_READOUT = {
    "encoder_weight": Role(Part.ENCODER, ("width", "input")),
    "encoder_bias": Role(Part.BIAS, ("width",)),
    "readout_weight": Role(Part.READOUT, ("output", "width")),
    "readout_bias": Role(Part.BIAS, ("output",)),
}
"""The roles of the weights that ``initialization.encoder_and_readout`` draws."""
PACKED = frozenset({"width", "parameterization"})
"""Fields in which the replicas of one ensemble may differ, where the modes are separate."""


class ModalModel(LayerModel):
    """A model with raw weights of rates (``recurrent_weight``), which may have another parameterization each."""

    Config: ClassVar[type] = ModalConfig

    def configure(self, configs: Sequence[ModalConfig]) -> None:
        self.parameterizations = Mixture([config.parameterization for config in configs])

    def modes(self, weights: Weights) -> Tensor:
        """lambda, the eigenvalues per step that the parameterization gives the modes, ``[N..., M]``."""
        return self.parameterizations.eigenvalue(
            weights["recurrent_weight"], self.config.dt, self.config.discretization
        )

    def gain(self, modes_NM: Tensor) -> Tensor:
        """Input scale of each mode; NaN where the square of a normalized one is negative.

        That is beyond |lambda| = 1, where no such state exists, and for ``increment`` outside of 0 <= lambda <= 2.
        """
        if not self.config.normalize:
            return torch.ones_like(modes_NM)
        if self.config.normalization == INCREMENT:
            return torch.sqrt(modes_NM * (2.0 - modes_NM))  # 1 - (lambda - 1)^2 without its cancellation
        return torch.sqrt(1.0 - modes_NM.square())

    def separated(self, weights: Weights, modes_NM: Tensor) -> Modes:
        """The modes with these eigenvalues, encoder and readout; see ``LinearModel.as_modes``."""
        names = ("encoder_weight", "encoder_bias", "readout_weight", "readout_bias")
        encoder_NMI, bias_NM, readout_NOM, offset_NO = (weights[name] for name in names)
        if self.config.normalize:
            gain_NM = self.gain(modes_NM)
            encoder_NMI, bias_NM = encoder_NMI * gain_NM.unsqueeze(-1), bias_NM * gain_NM
        return Modes(encoder_NMI, bias_NM, readout_NOM, modes_NM, offset_NO)


def modal_response(weights: Weights, eigenvalues_NM: Tensor, gain_NM: Tensor, horizon: int) -> Response:
    """Response of h_t = eigenvalue h_{t-1} + gain (u x_t + b), y_t = c . h_t + d, all real."""
    names = ("encoder_weight", "encoder_bias", "readout_weight", "readout_bias")
    kernel_NOIT, drift_NOT = _ModalAnswers.apply(*(weights[name] for name in names), eigenvalues_NM, gain_NM, horizon)
    return Response(kernel=kernel_NOIT, drift=drift_NOT)


class _ModalAnswers(torch.autograd.Function):
    """Kernel and drift from the weights, differentiated by hand.

    In small models autograd's many small steps from weights to amplitudes would cost more than the products.
    Channels are every input, then the encoder bias as one more input that is always on.
    """

    @staticmethod
    def forward(
        ctx: Any,
        encoder_NMI: Tensor,
        bias_NM: Tensor,
        readout_NOM: Tensor,
        offset_NO: Tensor,
        eigenvalues_NM: Tensor,
        gain_NM: Tensor,
        horizon: int,
    ) -> tuple[Tensor, Tensor]:
        powers_NMT = vandermonde(eigenvalues_NM, aligned(horizon))
        *leading, width, inputs = encoder_NMI.shape
        drive_NCM = encoder_NMI.new_empty(*leading, inputs + 1, width)
        torch.mul(encoder_NMI.mT, gain_NM.unsqueeze(-2), out=drive_NCM[..., :-1, :])
        torch.mul(bias_NM, gain_NM, out=drive_NCM[..., -1, :])
        # one amplitude per output, channel and mode: a response is amplitudes times powers of the eigenvalues
        amplitudes_NOCM = readout_NOM.unsqueeze(-2) * drive_NCM.unsqueeze(-3)
        outputs, channels = amplitudes_NOCM.shape[-3:-1]
        answers_NOCT = (amplitudes_NOCM.flatten(-3, -2) @ powers_NMT).unflatten(-2, (outputs, channels))
        drift_NOT = answers_NOCT[..., -1, :horizon].cumsum(-1) + offset_NO.unsqueeze(-1)
        ctx.save_for_backward(encoder_NMI, bias_NM, readout_NOM, gain_NM, powers_NMT, drive_NCM, amplitudes_NOCM)
        return answers_NOCT[..., :-1, :horizon], drift_NOT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        kernel_NOIT, drift_NOT = grads
        encoder_NMI, bias_NM, readout_NOM, gain_NM, powers_NMT, drive_NCM, amplitudes_NOCM = ctx.saved_tensors
        *leading, outputs, channels, _ = amplitudes_NOCM.shape
        horizon = drift_NOT.shape[-1]
        onward_NOT = drift_NOT.flip(-1).cumsum(-1).flip(-1)  # an answer to the bias stays in all later drifts
        room = kernel_NOIT.new_empty(*leading, 2, outputs, channels, powers_NMT.shape[-1])
        room[..., 0, :, :-1, :horizon] = kernel_NOIT
        room[..., 0, :, -1, :horizon] = onward_NOT
        room[..., 0, :, :, horizon:] = 0.0
        # [N, O, C, M] each: gradients by amplitudes, and by eigenvalues per unit of amplitude
        both = pulled_back(room.flatten(-3, -2), powers_NMT)
        amplitudes, slopes = (part.unflatten(-2, (outputs, channels)) for part in both)
        drives_NCM = (amplitudes * readout_NOM.unsqueeze(-2)).sum(-3)
        # encoder and bias act through the gain, which all channels share
        gained_NCM = drives_NCM * gain_NM.unsqueeze(-2)
        gains_NM = None
        if ctx.needs_input_grad[5]:
            gains_NM = (drives_NCM[..., :-1, :] * encoder_NMI.mT).sum(-2) + drives_NCM[..., -1, :] * bias_NM
        return (
            gained_NCM[..., :-1, :].mT,
            gained_NCM[..., -1, :],
            (amplitudes * drive_NCM.unsqueeze(-3)).sum(-2),
            onward_NOT[..., 0],
            (amplitudes_NOCM * slopes).sum((-3, -2)),
            gains_NM,
            None,
        )


def balanced_modes(weights: Weights) -> dict[str, Tensor]:
    """The same linear models with encoder and readout of equal size in every mode."""
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
