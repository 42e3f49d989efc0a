"""Ratios of gradients to recurrent weights in training: a criterion that compares parameterizations."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from memsweep.learning.ensemble.replicas import Ensemble

QUANTILES = {"median": 0.5, "q90": 0.9}
TORCH_MOST = 1 << 24
"""Numbers in a row of which torch computes quantiles."""


@dataclass
class GradientOverWeight:
    """The ratios of one ensemble in training.

    Attributes:
        entries: positions of the diagonal recurrent weights in the flat vector: ``[E]``.
        exists: ``[rows, E]``, bool: padding is False.
        count: rows that are replicas; the ratios of the dummies behind them are zeros.
        largest: ``[rows]``, over all entries and steps so far; 0 before the first step.
        samples: ``[rows, E]`` each, the ratios at the validated steps; nan where a replica did not run.
    """

    entries: Tensor
    exists: Tensor
    count: int
    largest: Tensor
    samples: list[Tensor] = field(default_factory=list)

    @staticmethod
    def start(ensemble: Ensemble) -> GradientOverWeight:
        """No ratios yet."""
        rates = [segment for segment in ensemble.layout.segments if segment.role.rate]
        positions = [position for segment in rates for position in range(segment.start, segment.stop)]
        entries = torch.tensor(positions, dtype=torch.long, device=ensemble.initial.device)
        exists, count = ensemble.exists[:, entries], len(ensemble.replicas)
        return GradientOverWeight(entries, exists, count, torch.zeros_like(ensemble.initial[:, 0]))

    def observe(self, weights: Tensor, gradient: Tensor, running: Tensor, keep: bool) -> None:
        """Add the ratios of one step.

        Args:
            weights, gradient: ``[rows, size]``.
            running: ``[rows]``, bool.
            keep: whether the ratios count for the quantiles, too.
        """
        if not len(self.entries):
            return
        own = slice(self.count)
        ratio = (gradient[own].index_select(1, self.entries) / weights[own].index_select(1, self.entries)).abs_()
        counted = self.exists[own] & running[own].unsqueeze(-1) & ~ratio.isnan()  # 0/0: a dead mode has no ratio
        largest = self.largest[own]
        torch.maximum(largest, torch.where(counted, ratio, 0.0).amax(-1), out=largest)
        if keep:
            self.samples.append(ratio.new_zeros(self.exists.shape))
            self.samples[-1][own] = torch.where(counted, ratio, torch.nan)

    def summary(self) -> dict[str, Tensor]:
        """``max`` over modes and steps, quantiles over modes and validated steps: ``[rows]``, nan where undefined."""
        undefined = torch.full_like(self.largest, torch.nan)
        if not self.samples:
            return {"max": undefined} | dict.fromkeys(QUANTILES, undefined)
        ratios = torch.cat(self.samples, -1)
        if is_beyond_torch(ratios):
            return {"max": self.largest} | {name: _by_numpy(ratios, q) for name, q in QUANTILES.items()}
        return {"max": self.largest} | {name: ratios.nanquantile(q, -1) for name, q in QUANTILES.items()}


def is_beyond_torch(ratios: Tensor) -> bool:
    """Whether the rows are too long for torch's quantiles, as after 10,000 validations of 2,048 modes.

    Torch refused them, so nothing stored was made without this branch: it is in no identity.
    """
    return ratios.shape[-1] > TORCH_MOST


def _by_numpy(ratios: Tensor, q: float) -> Tensor:
    """The quantile of each row without its nan; nan of a row that has nothing else."""
    rows = [row[~np.isnan(row)] for row in ratios.cpu().numpy()]
    return ratios.new_tensor([np.quantile(row, q) if len(row) else np.nan for row in rows])
