"""A diagonal linear recurrence whose coefficients change from step to step: h_t = d_t h_{t-1} + x_t, h_{-1} = 0.

Letters: N leading dimension (replicas and copies), B batch, T time, M width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def varying_scan(slope_NBTM: Tensor, drive_NBTM: Tensor) -> Tensor:
    """States of h_t = d_t h_{t-1} + x_t, differentiable by the drive alone.

    Args:
        slope_NBTM: d, ``[N, B, T, M]``, taken as constants; that of step 0 does nothing.
        drive_NBTM: x, ``[N, B, T, M]``.

    Returns:
        ``[N, B, T, M]``.
    """
    state_NBM, found = torch.zeros_like(drive_NBTM[:, :, 0]), []
    for slope_NBM, drive_NBM in zip(slope_NBTM.detach().unbind(2), drive_NBTM.unbind(2), strict=True):
        state_NBM = slope_NBM * state_NBM + drive_NBM
        found.append(state_NBM)
    return torch.stack(found, 2)
