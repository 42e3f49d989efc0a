"""Affine maps W x + b of stacked models, one after the other.

Letters: N leading dimensions (replicas, copies), B batch, T time, J outputs and K inputs of a map.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

Affine = tuple[Tensor, Tensor]
"""W ``[N..., J, K]`` and b ``[N..., J]``."""


def affine(x_NBTK: Tensor, weight_NJK: Tensor, bias_NJ: Tensor) -> Tensor:
    """W x + b at every step of every sequence, in one product over all of them: ``[N, B, T, J]``."""
    flat = torch.baddbmm(bias_NJ.unsqueeze(1), x_NBTK.flatten(1, 2), weight_NJK.transpose(1, 2))
    y_NBTJ: Tensor = flat.unflatten(1, x_NBTK.shape[1:3])
    return y_NBTJ


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
    scales = (logs.mean(0) - logs).exp()
    # the product of the scales up to each map; after the last map exactly 1, without rounding
    so_far = torch.cat([scales[:-1].cumprod(0), torch.ones_like(scales[:1])])
    return [
        (weight * scale[..., None, None], bias * total.unsqueeze(-1))
        for (weight, bias), scale, total in zip(maps, scales, so_far, strict=True)
    ]
