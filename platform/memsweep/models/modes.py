"""What linear models of independent modes share: the response to impulses, and the balanced gauge.

Weights have the names encoder_weight ``[N, M, I]``, encoder_bias ``[N, M]``, readout_weight ``[N, O, M]`` and
readout_bias ``[N, O]``; see memsweep.models.base for the letters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.models.base import Response, Weights
from memsweep.recurrence.impulse import diagonal_response


def modal_response(weights: Weights, eigenvalues_NM: Tensor, gain_NM: Tensor, horizon: int) -> Response:
    """Response of h_t = eigenvalue h_{t-1} + gain (u x_t + b), y_t = c . h_t + d."""
    # channels: every input, then the encoder bias as one more input that is always on
    drive_NMI = torch.cat([weights["encoder_weight"], weights["encoder_bias"].unsqueeze(-1)], -1)
    drive_NIM = (gain_NM.unsqueeze(-1) * drive_NMI).transpose(-1, -2)
    amplitudes = weights["readout_weight"].unsqueeze(-2) * drive_NIM.unsqueeze(-3)
    outputs, channels = amplitudes.shape[-3:-1]
    flat = diagonal_response(amplitudes.flatten(-3, -2), eigenvalues_NM, horizon)
    answers_NOIT = flat.unflatten(-2, (outputs, channels))
    drift_NOT = answers_NOIT[..., -1, :].cumsum(-1) + weights["readout_bias"].unsqueeze(-1)
    return Response(kernel=answers_NOIT[..., :-1, :], drift=drift_NOT)


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
