"""The impulse response and the balanced gauge of linear models with a dense recurrent matrix.

Letters: see memsweep.models.base; L stands for any leading dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from memsweep.models.base import Response, Weights
from memsweep.recurrence.linear.krylov import dense_response


def driven_response(
    matrix_LMM: Tensor,
    encoder_LMI: Tensor,
    bias_LM: Tensor,
    readout_LOM: Tensor,
    readout_bias_LO: Tensor,
    horizon: int,
) -> Response:
    """Response of h_t = A h_{t-1} + u x_t + b, y_t = c h_t + d, at lags 0 ... horizon-1."""
    # the encoder bias is one more input, which is always on
    drive_LMC = torch.cat([encoder_LMI, bias_LM.unsqueeze(-1)], -1)
    answers_LOCT = dense_response(readout_LOM, matrix_LMM, drive_LMC, horizon)
    drift_LOT = answers_LOCT[..., -1, :].cumsum(-1) + readout_bias_LO.unsqueeze(-1)
    return Response(kernel=answers_LOCT[..., :-1, :], drift=drift_LOT)


def balanced_as_a_whole(
    weights: Weights, encoders: Sequence[str], biases: Sequence[str], readouts: Sequence[str]
) -> dict[str, Tensor]:
    """The same linear models with encoder and readout of equal Frobenius norm, by one scale for all units.

    Every matrix that commutes with the recurrent one gives a gauge; all models have the gauge of one scale.

    Args:
        weights: stacked, ``[L, *shape]``, matrices for encoders and readouts, vectors for biases.
        encoders: names of the weights from the input to the states; ``biases`` are scaled with them.
        biases: names of the biases of the states.
        readouts: names of the weights that read the states.
    """
    encoder_L, readout_L = (
        torch.cat([weights[name].flatten(-2) for name in names], -1).norm(dim=-1) for names in (encoders, readouts)
    )
    alive = (encoder_L > 0) & (readout_L > 0)  # a model without input or output has no gauge to choose
    scale = (torch.where(alive, encoder_L, 1.0) / torch.where(alive, readout_L, 1.0)).sqrt()
    return (
        dict(weights)
        | {name: weights[name] / scale[..., None, None] for name in encoders}
        | {name: weights[name] / scale[..., None] for name in biases}
        | {name: weights[name] * scale[..., None, None] for name in readouts}
    )
