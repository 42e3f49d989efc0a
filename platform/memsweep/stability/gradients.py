"""Norms of gradients through time: ||dh_T / dh_{T-k}||_2 of a trained model over the lag k.

The Jacobians of the steps (``Model.jacobians``) are multiplied from the last step back, so that memory is that of one
product per sequence. Products are scaled by powers of two, so that none under- or overflows. A norm costs more than a
product, so norms are computed at ``measured_lags`` only.

Letters: N replicas, B sequences, T time (horizon), I inputs, M width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from memsweep.data.task import as_read
from memsweep.models.base import Model, Weights

SEQUENCES = (5, 3, 1)
"""Numbers of sequences for the median: the first one that costs at most ``_CHEAP``. Norms of one model differ little
between sequences; of an odd number, the median is the norm of one of them."""
NORMS = 64
"""Number of lags with a norm, for models up to width 256; wider models have fewer, in proportion."""
_WIDE = 256
_CHEAP, _MOST = 1e11, 1e12  # operations in the products of one replica: seconds, and about ten seconds
_NEAR, _SCALING = 8, 100  # exponents that need no scaling, and the largest scaling of a step: both fit float32


def gradient_norms(model: Model, weights: Weights, inputs: Tensor, measured: Sequence[bool]) -> Tensor | None:
    """Norms at the measured lags, medians over a few of the sequences.

    Computed replica by replica, so that no number depends on the other replicas and memory is that of one.

    Args:
        model: of all replicas.
        weights: stacked, ``[N, *shape]``.
        inputs: ``[B, T, I]``, or symbols ``[B, T]``: sequences to choose from.
        measured: ``[N]``, which replicas to measure.

    Returns:
        ``[N, T]``, float64: nan for other replicas, between the measured lags, beyond the longest affordable lag, and
        where a matrix is not finite. None where the model has no Jacobians.
    """
    steps, width = inputs.shape[1], int(model.config.width)
    count = _sequences(width, steps)
    chosen = as_read(inputs[:: max(1, len(inputs) // count)][:count], model.signature.inputs, _dtype(weights))
    lags = measured_lags(width, steps)
    norms = torch.full((len(measured), steps), math.nan, dtype=torch.float64)
    for row in np.flatnonzero(measured).tolist():
        single = {name: value[row : row + 1] for name, value in weights.items()}
        own_norms = _norms_of_one(model, single, chosen, lags)
        if own_norms is None:
            return None
        norms[row] = own_norms
    return norms


def gradient_bounds(model: Model, weights: Weights, horizon: int) -> Tensor | None:
    """``Model.gradient_bound`` of stacked models on the processor, ``[N, T]`` float64; None where none is known."""
    bound = model.gradient_bound(weights, horizon)
    return None if bound is None else bound.detach().to("cpu", torch.float64)


def measured_lags(width: int, steps: int) -> list[int]:
    """The lags with a norm, increasing: all lags where they are few, else evenly spread in their logarithm.

    The longest is ``steps - 1``, or the longest that is affordable for a model of this width.
    """
    longest = min(steps - 1, int(_MOST / _operations(width)))
    count = min(NORMS, max(2, NORMS * _WIDE // width))
    if longest < count:
        return list(range(longest + 1))
    return sorted({0, *np.geomspace(1, longest, count - 1).round().astype(int).tolist()})


def _dtype(weights: Weights) -> torch.dtype:
    return next(iter(weights.values())).dtype


def _sequences(width: int, steps: int) -> int:
    work = _operations(width) * (steps - 1)
    return next((count for count in SEQUENCES if count * work <= _CHEAP), SEQUENCES[-1])


def _operations(width: int) -> float:
    return 2.0 * width**3


def _norms_of_one(model: Model, weights: Weights, inputs_BTI: Tensor, lags: Sequence[int]) -> Tensor | None:
    matrices = model.jacobians(weights, inputs_BTI)
    if matrices is None:
        return None
    norms_T = torch.full((inputs_BTI.shape[1],), math.nan, dtype=torch.float64)
    norms_T[0] = 1.0
    product_BMM: Tensor | None = None  # dh_T / dh_{T-lag}, over 2^exponents_B
    exponents_B = np.zeros(len(inputs_BTI))
    for lag, matrix_NBMM in enumerate(matrices, start=1):
        if lag > lags[-1]:
            break
        step_BMM = matrix_NBMM[0]
        product_BMM = step_BMM if product_BMM is None else product_BMM @ step_BMM
        product_BMM, exponent_B = _scaled(product_BMM)
        exponents_B += exponent_B.cpu().numpy()
        if lag in lags:
            if not torch.isfinite(product_BMM).all():
                break
            with np.errstate(over="ignore", under="ignore"):
                norms_B = np.ldexp(_spectral(product_BMM), exponents_B.astype(int))
            norms_T[lag] = float(np.median(norms_B))
    return norms_T


def _scaled(product_BMM: Tensor) -> tuple[Tensor, Tensor]:
    """The products divided by powers of two near their largest entries, and the exponents ``[B]``."""
    _, exponent_B = torch.frexp(product_BMM.abs().amax((-2, -1)))
    exponent_B = torch.where(exponent_B.abs() > _NEAR, exponent_B.clamp(-_SCALING, _SCALING), 0)
    if not exponent_B.any():
        return product_BMM, exponent_B
    return product_BMM * torch.exp2(-exponent_B.to(product_BMM.dtype))[:, None, None], exponent_B


def _spectral(product_BMM: Tensor) -> np.ndarray:
    """Largest singular values ``[B]``, from the Gram matrix: as accurate as a decomposition, at half the cost."""
    gram_BMM = product_BMM @ product_BMM.mT
    largest: np.ndarray = torch.linalg.eigvalsh(gram_BMM)[..., -1].clamp(min=0).sqrt().cpu().double().numpy()
    return largest
