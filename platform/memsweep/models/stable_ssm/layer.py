"""The parts of a state-space layer with one kernel per channel: discretization, kernel, normalization.

A mode of a channel obeys dh/dt = A h + x, A = -rate + i frequency, with the input held over steps of length dt
(zero-order hold). Over one step h is multiplied by e^{dt A}, and the input enters with the weight (e^{dt A} - 1)/A.

Letters: N replicas and copies, M channels (width), S modes of a channel, B batch, T time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.recurrence.linear.impulse import diagonal_response

_SMALL = 1e-4  # below, four terms of the series are exact in float64
_NORM_EPSILON = 1e-5  # torch.nn.LayerNorm's


def discretized(rate_NMS: Tensor, frequency_NMS: Tensor, log_dt_NM: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues e^{dt A} per step, and input weights (e^{dt A} - 1)/A: complex, ``[N, M, S]`` each.

    Args:
        rate_NMS: -Re A.
        frequency_NMS: Im A, radians per unit of time.
        log_dt_NM: logarithm of the step of each channel.
    """
    dt = torch.exp(log_dt_NM).unsqueeze(-1)
    exponent = torch.complex(-rate_NMS * dt, frequency_NMS * dt)
    return torch.exp(exponent), dt * _mean_growth(exponent)


def _mean_growth(exponent: Tensor) -> Tensor:
    """(e^z - 1)/z, which is 1 at z = 0: a mode that neither decays nor turns integrates its input."""
    small = exponent.abs() < _SMALL
    # the series of the excluded values, and the quotient at excluded ones, must not poison the gradient
    near, far = torch.where(small, exponent, 0.0), torch.where(small, 1.0, exponent)
    series = 1.0 + near * (0.5 + near * (1.0 / 6.0 + near / 24.0))
    return torch.where(small, series, torch.expm1(far) / far)


def kernel(output_NMS: Tensor, eigenvalues_NMS: Tensor, gain_NMS: Tensor, horizon: int) -> Tensor:
    """K_l = 2 Re sum_s C_s gain_s eigenvalue_s^l of every channel: real, ``[N, M, T]``, lags 0 ... horizon-1.

    The modes stand for conjugate pairs, hence twice the real part. All other arguments are complex.
    """
    amplitudes = (output_NMS * gain_NMS).unsqueeze(-2)
    return 2.0 * diagonal_response(amplitudes, eigenvalues_NMS, horizon).squeeze(-2).real


def layer_norm(x_NMTB: Tensor, weight_NM: Tensor, bias_NM: Tensor) -> Tensor:
    """torch.nn.LayerNorm over the channels, with channels in the second place."""
    centered = x_NMTB - x_NMTB.mean(1, keepdim=True)
    deviation = (centered.square().mean(1, keepdim=True) + _NORM_EPSILON).sqrt()
    return centered / deviation * weight_NM[..., None, None] + bias_NM[..., None, None]
