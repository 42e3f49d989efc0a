"""The impulse response and the balanced gauge of linear models of independent modes.

Weights have the names encoder_weight ``[N, M, I]``, encoder_bias ``[N, M]``, readout_weight ``[N, O, M]`` and
readout_bias ``[N, O]``; see memsweep.models.base for the letters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.models.base import Response, Weights
from memsweep.recurrence.linear.impulse import pulled_back, vandermonde
from memsweep.recurrence.padding import aligned


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
        # one amplitude per output, channel and mode: answers are amplitudes times powers of the eigenvalues
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
        # by encoder and bias: through the gain, which each channel shares
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
