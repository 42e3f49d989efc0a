"""Comparison of a learning rule's gradient with that of backpropagation through time, in training.

Every ``alignment_every`` steps both gradients of one batch are compared: the cosine of the angle between them, and the
ratio of their norms, for the weights of each layer (its unit, its norm and its gates) and for all weights, as the
published code of arXiv 2305.15947 does. The gradients are those of the loss without penalties.

Letters: P rows (replicas and dummies), S size of the flat weights, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.schema.training import TrainingConfig
from memsweep.learning.ensemble.replicas import Ensemble

QUANTILES = {"median": 0.5, "q90": 0.9}


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
        return {"max": self.largest} | {name: ratios.nanquantile(q, -1) for name, q in QUANTILES.items()}


ALL = "all"
"""The name of the comparison of all weights, encoder and readout included."""


class Comparison(NamedTuple):
    """One comparison of a replica's gradients.

    Attributes:
        step: steps that were done before.
        layer: ``0``, ``1``, ..., or ``all``.
        cosine: 0 where the rule's gradient is zero; nan where the gradient of backpropagation is zero.
        norm_ratio: norm of the rule's gradient over that of backpropagation; nan where the latter is zero.
    """

    step: int
    layer: str
    cosine: float
    norm_ratio: float


@dataclass
class Alignment:
    """The comparisons of an ensemble's gradients.

    Attributes:
        rows: P.
        every: steps between them; 0: none, always so where the rule is backpropagation itself.
        weights: which weights belong to each layer, ``[S]`` bool, by its name; all weights last.
        measured: one tensor for each comparison, ``[P, L + 1, 2]`` float64: cosines, then ratios of norms.
    """

    rows: int
    every: int
    weights: dict[str, Tensor]
    measured: list[Tensor] = field(default_factory=list)

    @staticmethod
    def start(ensemble: Ensemble, training: TrainingConfig) -> Alignment:
        """No comparisons yet."""
        forward = registry.get(registry.RULE, training.rule).forward
        return Alignment(ensemble.rows, training.alignment_every if forward else 0, _by_layer(ensemble))

    def is_due(self, step: int) -> bool:
        """Whether the gradients of the step after ``step`` steps are compared."""
        return self.every > 0 and step % self.every == 0

    def expected(self, steps: int) -> int:
        """Number of comparisons in ``steps`` steps."""
        return -(-steps // self.every) if self.every else 0

    def pattern(self) -> Tensor:
        """A tensor of the shape of one comparison."""
        shape = self.rows, len(self.weights), 2
        return torch.full(shape, torch.nan, dtype=torch.float64, device=self.weights[ALL].device)

    def observe(self, gradient: Tensor, true: Tensor) -> None:
        """Compare a rule's gradients ``[P, S]`` with those of backpropagation through time."""
        gradient, true = gradient.double(), true.double()
        compared = [_compare(gradient[:, own], true[:, own]) for own in self.weights.values()]
        self.measured.append(torch.stack(compared, 1))

    def of(self, row: int, steps: int) -> list[Comparison]:
        """The comparisons of one replica in its first ``steps`` steps."""
        return [
            Comparison(index * self.every, layer, cosine, ratio)
            for index, values in enumerate(self.measured)
            if index * self.every < steps
            for layer, (cosine, ratio) in zip(self.weights, values[row].tolist(), strict=True)
        ]


def _by_layer(ensemble: Ensemble) -> dict[str, Tensor]:
    segments = ensemble.layout.segments
    weights = {}
    for layer in sorted({segment.role.layer for segment in segments if segment.role.layer is not None}):
        own = weights[str(layer)] = torch.zeros_like(ensemble.exists[0])
        for segment in segments:
            if segment.role.layer == layer:
                own[segment.start : segment.stop] = True
    return weights | {ALL: torch.ones_like(ensemble.exists[0])}


def _compare(gradient_PS: Tensor, true_PS: Tensor) -> Tensor:
    """Cosine and ratio of norms, ``[P, 2]``."""
    size_P, true_size_P = gradient_PS.norm(dim=-1), true_PS.norm(dim=-1)
    # divided before they are multiplied: the product of the norms of small gradients underflows
    gradient_PS = gradient_PS / torch.where(size_P > 0, size_P, 1.0).unsqueeze(-1)
    cosine_P = (gradient_PS * (true_PS / true_size_P.unsqueeze(-1))).sum(-1)
    ratio_P = torch.where(true_size_P > 0, size_P / true_size_P, torch.nan)
    return torch.stack([cosine_P, ratio_P], -1)
