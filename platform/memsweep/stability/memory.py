"""The memory function of a model: how much of an input it still feels later.

For a linear model with response K it is |K_s| (arXiv 2305.19190, eq. 4). For any model it is read off the answer to a
step: M(t) = sup over inputs x of |d/dt H_t(x 1[t >= 0])| / |x| (Definition 3.1); the supremum is taken over given
directions and scales, because a nonlinear model is not homogeneous.

Letters: N leading dimensions, T time (horizon), I inputs, D directions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.models.base import LinearModel, Model, Weights

SCALES = (0.01, 0.1, 1.0, 10.0)


def memory_function(model: Model, weights: Weights, horizon: int) -> Tensor:
    """Memory at lags 0 ... horizon-1 of stacked models: ``[N, T]``; exact for linear models."""
    if isinstance(model, LinearModel):
        return model.response(weights, horizon).kernel.square().sum((-3, -2)).sqrt()
    return step_memory(model, weights, horizon)


def step_memory(
    model: Model, weights: Weights, horizon: int, scales: tuple[float, ...] = SCALES, directions: Tensor | None = None
) -> Tensor:
    """Memory from answers to steps: ``[N, T]``, a lower bound of the supremum.

    Args:
        model: any model.
        weights: stacked, ``[N, ...]``.
        horizon: lags.
        scales: sizes of the steps.
        directions: ``[D, I]``, unit inputs; the coordinate axes, both ways, when left out.
    """
    example = next(iter(weights.values()))
    if directions is None:
        axes = torch.eye(model.signature.inputs, dtype=example.dtype, device=example.device)
        directions = torch.cat([axes, -axes])
    worst = example.new_zeros(example.shape[0], horizon)
    for scale in scales:
        steps_DTI = (scale * directions).unsqueeze(1).expand(-1, horizon, -1)
        answers = model.outputs(weights, torch.cat([torch.zeros_like(steps_DTI[:, :1]), steps_DTI], 1))
        slopes = answers.diff(dim=2).norm(dim=-1) / scale
        worst = torch.maximum(worst, slopes.amax(1))
    return worst
