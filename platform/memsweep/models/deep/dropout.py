"""Dropout of features, by masks that depend on replica, step, place and sequence alone.

A mask holds at all steps of its sequence. It depends neither on their number nor on how a batch is cut into pieces, so
that a batch computed in pieces, or step by step, drops what the whole one does.

Letters: R replicas, B sequences, P places at which something is dropped, F features; N replicas, then copies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from memsweep.streams import Stream


class Dropout:
    """What a model drops in one training step; before the first ``start_step``, nothing.

    Args:
        share: of the features that are dropped; the others grow by 1 / (1 - share).
        places: P.
        features: F.
    """

    def __init__(self, share: float, places: int, features: int) -> None:
        self.share, self.shape = share, (places, features)
        self.start_step([], 0)

    def start_step(self, seeds: Sequence[int], step: int) -> None:
        """Draws the masks of one training step, for replicas with these seeds."""
        active = seeds if self.share else []
        self._generators = [Stream(seed, "dropout").generator(step) for seed in active]
        self._masks_RBPF = np.zeros((len(self._generators), 0, *self.shape), bool)

    def apply(self, x_NBTF: Tensor, place: int, first_row: int) -> Tensor:
        """Sets some features to zero and scales the others; copies of a replica share its mask.

        Args:
            x_NBTF: ``[N, B, T, F]``.
            place: 0 ... P-1.
            first_row: where in the batch the first sequence of x stands.
        """
        if not self._generators:
            return x_NBTF
        rows = slice(first_row, first_row + x_NBTF.shape[1])
        mask_RBF = torch.from_numpy(self._masks(rows.stop)[:, rows, place])
        scale_RBF = mask_RBF.to(x_NBTF) / (1.0 - self.share)
        return x_NBTF * scale_RBF.repeat_interleave(x_NBTF.shape[0] // len(scale_RBF), 0).unsqueeze(2)

    def _masks(self, rows: int) -> np.ndarray:
        """Masks of at least so many rows of the batch; more rows continue the same random numbers."""
        more = rows - self._masks_RBPF.shape[1]
        if more > 0:
            drawn = np.stack([generator.random((more, *self.shape)) for generator in self._generators])
            self._masks_RBPF = np.concatenate([self._masks_RBPF, drawn >= self.share], 1)
        return self._masks_RBPF
