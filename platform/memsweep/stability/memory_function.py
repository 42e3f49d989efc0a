"""The memory function of a model: the influence of an input on later outputs.

For a linear model with response K it is the sum of |K_s| over the inputs (arXiv 2305.19190, eq. 4). For any model it
is computed from the response to a step: M(t) = sup over inputs x of |d/dt H_t(x 1[t >= 0])| / max|x| (Definition 3.1,
where H_t(0) = 0: the response to the biases alone is subtracted). The supremum is over given directions and scales,
because a nonlinear model is not homogeneous. Several outputs enter by their Euclidean norm.

Letters: N leading dimensions, T time (horizon), I inputs, D directions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.models.base import Model, Weights, as_linear

SCALES = (0.01, 0.1, 1.0, 10.0)
_TOGETHER = 64
"""Directions of a step that are computed at a time."""


def memory_function(model: Model, weights: Weights, horizon: int) -> Tensor:
    """Memory at lags 0 ... horizon-1 of stacked models: ``[N, T]``.

    Of linear models it is exact where inputs or outputs are one, and else an upper bound: each output has its own worst
    input. Of others it is the lower bound of ``step_memory``, so that the two are not to be compared number by number.
    """
    linear = as_linear(model)
    if linear is not None:
        return linear.response(weights, horizon).kernel.abs().sum(-2).norm(dim=-2)
    return step_memory(model, weights, horizon)


def step_memory(
    model: Model, weights: Weights, horizon: int, scales: tuple[float, ...] = SCALES, directions: Tensor | None = None
) -> Tensor:
    """Memory from responses to steps: ``[N, T]``, a lower bound of the supremum.

    Args:
        model: any model.
        weights: stacked, ``[N, ...]``.
        horizon: lags.
        scales: sizes of the steps.
        directions: ``[D, I]``, inputs of largest entry 1; None: the axes and the diagonal, in both directions.
    """
    example, traits = next(iter(weights.values())), model.traits(model.config)
    if traits.reads_ids:
        return _memory_of_ids(model, weights, horizon)
    before = int(traits.runs_longer)  # steps of rest before the step
    if directions is None:
        axes = torch.eye(model.signature.inputs, dtype=example.dtype, device=example.device)
        directions = torch.cat([axes, axes.new_ones(1, len(axes))])
        directions = torch.cat([directions, -directions])
    worst = example.new_zeros(example.shape[0], horizon)
    for some in directions.split(_TOGETHER):  # an alphabet has thousands
        at_rest = model.outputs(weights, torch.zeros_like(some).unsqueeze(1).expand(-1, horizon + before, -1))
        for scale in scales:
            steps_DTI = (scale * some).unsqueeze(1).expand(-1, horizon, -1)
            answers = model.outputs(weights, torch.cat([torch.zeros_like(steps_DTI[:, :before]), steps_DTI], 1))
            worst = torch.maximum(worst, _slopes(answers - at_rest, horizon).amax(1) / scale)
    return worst


def _memory_of_ids(model: Model, weights: Weights, horizon: int) -> Tensor:
    """The same of a model that reads ids, ``[N, T]``: at rest it reads the first id, and a step is to another one."""
    device = next(iter(weights.values())).device
    at_rest = model.outputs(weights, torch.zeros(1, horizon, dtype=torch.long, device=device))
    worst = at_rest.new_zeros(at_rest.shape[0], horizon)
    for ids in torch.arange(1, max(2, model.signature.inputs), device=device).split(_TOGETHER):
        answers = model.outputs(weights, ids.unsqueeze(1).expand(-1, horizon))
        worst = torch.maximum(worst, _slopes(answers - at_rest, horizon).amax(1))
    return worst


def _slopes(responses_NDTO: Tensor, horizon: int) -> Tensor:
    """Differences over time of responses that begin at 0, norms over outputs: ``[N, D, horizon]``."""
    before = (
        responses_NDTO[:, :, :0] if responses_NDTO.shape[2] > horizon else torch.zeros_like(responses_NDTO[:, :, :1])
    )
    return responses_NDTO.diff(dim=2, prepend=before).norm(dim=-1)
