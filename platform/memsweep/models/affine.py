"""Affine maps W x + b of stacked models, one after the other.

Letters: N leading dimensions (replicas, copies), B batch, T time, J outputs and K inputs of a map.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from memsweep.models.base import Response, Weights
from memsweep.recurrence.linear.krylov import dense_response

Affine = tuple[Tensor, Tensor]
"""W ``[N..., J, K]`` and b ``[N..., J]``."""


def composed(maps: Sequence[Affine]) -> Affine:
    """The one map that does the same as these, of which the first is applied first."""
    return reduce(_after, maps)


def _after(first: Affine, second: Affine) -> Affine:
    return second[0] @ first[0], (second[0] @ first[1].unsqueeze(-1)).squeeze(-1) + second[1]


def equalized(maps: Sequence[Affine]) -> list[Affine]:
    """The same composition, scaled from map to map so that all W have the same Frobenius norm.

    A linear layer may stand between two of the maps: what reaches it is scaled by a positive number. Models of which
    one W is zero stay as they are.
    """
    norms = torch.stack([weight.flatten(-2).norm(dim=-1) for weight, _ in maps])
    alive = (norms > 0).all(0)
    logs = torch.where(alive, norms, 1.0).log()
    # to the geometric mean of the norms: these scales multiply to 1, and the composition stays the same
    scales = (logs.mean(0) - logs).exp()
    # the product of the scales up to each map; after the last map exactly 1, without rounding
    so_far = torch.cat([scales[:-1].cumprod(0), torch.ones_like(scales[:1])])
    return [
        (weight * scale[..., None, None], bias * total.unsqueeze(-1))
        for (weight, bias), scale, total in zip(maps, scales, so_far, strict=True)
    ]


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
