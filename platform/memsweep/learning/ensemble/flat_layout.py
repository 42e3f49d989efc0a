"""The layout of many replicas' weights in one flat tensor, at fixed shapes.

Replicas of different widths share a tensor: widths are padded to a bucket, and the number of replicas to a number of
slots. Shapes depend on the bucket alone, never on the other replicas. A padded weight is masked: its initial value has
no effect, and it never changes. So a replica's numbers are the same alone and in any pack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.models.base import Group, Part, Role

SMALLEST_BUCKET = 8
LARGEST_FULL_BUCKET = 64
SLOTS = 64
"""Replicas per program. Throughput saturates between 64 and 256 models of small width."""
SAMPLED_SLOTS = 16
"""The same for models that run over every sequence, where a dummy costs as much as a replica."""


def bucket(width: int) -> int:
    """The padded width: the next power of two, at least 8."""
    return max(SMALLEST_BUCKET, 1 << (width - 1).bit_length())


def slots(padded_width: int, full: int = SLOTS) -> int:
    """The padded number of replicas for a bucket; wide models come in smaller ensembles, to bound memory."""
    if padded_width <= LARGEST_FULL_BUCKET:
        return full
    return max(8, full * LARGEST_FULL_BUCKET // padded_width)


@dataclass(frozen=True)
class Segment:
    """The position of one weight tensor in the flat vector of a replica."""

    name: str
    role: Role
    shape: tuple[int, ...]
    start: int
    stop: int


class Layout:
    """The map between named weight tensors ``[..., *shape]`` and one flat tensor ``[..., size]``."""

    def __init__(self, roles: Mapping[str, Role], shapes: Mapping[str, tuple[int, ...]]) -> None:
        segments, start = [], 0
        for name, role in roles.items():
            stop = start + int(np.prod(shapes[name]))
            segments.append(Segment(name, role, tuple(shapes[name]), start, stop))
            start = stop
        self.segments = tuple(segments)
        self.sizes = [segment.stop - segment.start for segment in segments]
        self.size = start
        widths = [
            size
            for segment in segments
            for axis, size in zip(segment.role.axes, segment.shape, strict=True)
            if axis == "width"
        ]
        self.width = max(widths, default=0)  # a model whose weights have no such axis is never padded

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """The weight tensors of a flat tensor ``[..., size]``.

        Contiguous copies: on strided views, torch's transcendental functions take another code path with other last
        bits, and a replica's numbers would depend on the layout of the others.
        """
        parts = flat.split(self.sizes, -1)
        leading = flat.shape[:-1]
        return {
            s.name: part.contiguous().view(*leading, *s.shape) for s, part in zip(self.segments, parts, strict=True)
        }

    def flat(self, named: Mapping[str, Tensor]) -> Tensor:
        """Inverse of ``named``: a new tensor ``[..., size]``."""
        return torch.cat([named[s.name].flatten(-len(s.shape)) for s in self.segments], -1)

    def select(self, *of: Part | Group) -> Tensor:
        """Which entries belong to one of these parts or groups: ``[size]``, bool."""
        mask = torch.zeros(self.size, dtype=torch.bool)
        for segment in self.segments:
            mask[segment.start : segment.stop] = segment.role.part in of or segment.role.group in of
        return mask


def padded(
    roles: Mapping[str, Role], replicas: Sequence[Mapping[str, np.ndarray]], width: int, rows: int
) -> tuple[Layout, Tensor, Tensor]:
    """Stack replicas of any widths up to ``width`` into ``rows`` rows of one flat tensor.

    Rows beyond the replicas are dummies, which repeat the first one.

    Returns:
        The layout, the weights ``[rows, size]`` (float64), and a mask ``[rows, size]`` of the weights that exist.
    """
    shapes = {
        name: tuple(width if axis == "width" else size for axis, size in zip(role.axes, value.shape, strict=True))
        for name, role in roles.items()
        for value in [replicas[0][name]]
    }
    layout = Layout(roles, shapes)
    weights, masks = [], []
    for replica in replicas:
        values, exists = {}, {}
        for name, role in roles.items():
            value = replica[name]
            room = [(0, to - size) for to, size in zip(shapes[name], value.shape, strict=True)]
            # a padded recurrent mode copies the last one: a rate that every parameterization accepts
            mode = "edge" if role.part is Part.RECURRENT and role.diagonal else "constant"
            values[name] = torch.from_numpy(np.pad(value, room, mode=mode))  # type: ignore[call-overload]
            exists[name] = torch.from_numpy(np.pad(np.ones(value.shape, bool), room))
        weights.append(layout.flat(values))
        masks.append(layout.flat(exists))
    dummies = rows - len(replicas)
    return (
        layout,
        torch.stack(weights + weights[:1] * dummies),
        torch.stack(masks + masks[:1] * dummies),
    )
