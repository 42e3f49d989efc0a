"""Normalizations in the layers of a deep model: of the features of a step, or of each feature over a batch.

Over a batch every step of every sequence counts alike, including the padding of shorter sequences.

Letters: see memsweep.models.deep.unit.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from memsweep.models.base import Part, Role, Weights

LAYER, BATCH, NONE = "layer", "batch", "none"
NORMS = (LAYER, BATCH, NONE)
MOMENTUM = 0.1
"""Share of a batch's statistics in the running ones, as torch.nn.BatchNorm1d has it."""
_LAYER_EPSILON = 1e-6  # flax's LayerNorm; torch's has 1e-5
_BATCH_EPSILON = 1e-5  # flax's and torch's BatchNorm

_GAIN, _BIAS, _MEAN, _VARIANCE = "norm_weight", "norm_bias", "norm_mean", "norm_variance"


def norm_roles(norm: str) -> dict[str, Role]:
    """Weights of one normalization."""
    if norm == NONE:
        return {}
    roles = {_GAIN: Role(Part.GAIN, ("feature",)), _BIAS: Role(Part.BIAS, ("feature",))}
    if norm == BATCH:
        roles |= {name: Role(Part.STATISTIC, ("feature",)) for name in (_MEAN, _VARIANCE)}
    return roles


def norm_initial(norm: str, features: int) -> dict[str, np.ndarray]:
    """A normalization that changes nothing of features with mean 0 and variance 1."""
    ones, zeros = np.ones(features), np.zeros(features)
    initial = {_GAIN: ones, _BIAS: zeros, _MEAN: zeros, _VARIANCE: ones}
    return {name: initial[name] for name in norm_roles(norm)}


class Norm:
    """One normalization; over a batch it keeps the statistics of the last training batch."""

    def __init__(self, norm: str) -> None:
        self.norm = norm
        self._last: tuple[Tensor, Tensor] | None = None

    def __call__(self, weights: Weights, x_NBTF: Tensor, training: bool) -> Tensor:
        """The features, normalized, times a gain and plus a bias: ``[N, B, T, F]``.

        Args:
            weights: of this normalization, ``[N, F]`` each.
            x_NBTF: features.
            training: take the statistics of this batch, not the running ones.
        """
        if self.norm == NONE:
            return x_NBTF
        gain, bias = weights[_GAIN][:, None, None], weights[_BIAS][:, None, None]
        if self.norm == LAYER:
            return torch.addcmul(bias, functional.layer_norm(x_NBTF, x_NBTF.shape[-1:], eps=_LAYER_EPSILON), gain)
        # folded into one scale and one shift per feature, [N, 1, 1, F]: one pass over the features
        mean, variance = self._batch_statistics(x_NBTF) if training else self._running_statistics(weights)
        scale = gain * torch.rsqrt(variance + _BATCH_EPSILON)
        return torch.addcmul(bias - mean * scale, x_NBTF, scale)

    def updated_statistics(self, weights: Weights) -> Mapping[str, Tensor]:
        """The running statistics after the last batch in training, by name; none before the first."""
        if self._last is None:
            return {}
        names = (_MEAN, _VARIANCE)
        return {name: weights[name].lerp(last, MOMENTUM) for name, last in zip(names, self._last, strict=True)}

    def _batch_statistics(self, x_NBTF: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance over batch and time, ``[N, 1, 1, F]``; the running one is the unbiased variance."""
        variance, mean = torch.var_mean(x_NBTF, (1, 2), correction=0, keepdim=True)
        count = x_NBTF.shape[1] * x_NBTF.shape[2]
        unbiased = variance.detach() * (count / max(count - 1, 1))
        self._last = (mean.detach()[:, 0, 0], unbiased[:, 0, 0])
        return mean, variance

    def _running_statistics(self, weights: Weights) -> tuple[Tensor, Tensor]:
        """Running mean and variance over all training batches so far, as constants."""
        return weights[_MEAN].detach()[:, None, None], weights[_VARIANCE].detach()[:, None, None]
