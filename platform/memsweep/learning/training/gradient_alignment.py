"""How well a learning rule's gradient points where that of backpropagation through time does, along the way.

Every so many steps both gradients of one batch are compared: the cosine of the angle between them, and the size of the
rule's over that of the other, for the weights of each layer (its unit's, its norm's and its mixing's) and for all
weights, as the published code of arXiv 2305.15947 does. It is the gradient of the loss that is compared, before
penalties.

Letters: P rows (replicas and dummies), S size of the flat weights, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.schema.trial import TrainingConfig
from memsweep.learning.ensemble.replicas import Ensemble

ALL = "all"
"""The name under which all weights are compared, those before and behind the layers among them."""


class Compared(NamedTuple):
    """One comparison of a replica's gradients.

    Attributes:
        step: steps that were done when they were taken.
        layer: ``0``, ``1``, ..., or ``all``.
        cosine: 0 where the rule's gradient is zero: no step along it comes any nearer; nan where that of
            backpropagation is, and nothing is there to compare with.
        norm_ratio: the rule's over that of backpropagation; nan where the latter is zero.
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
        every: steps between them; 0: none is made, also where the rule is backpropagation itself.
        weights: which weights belong to each layer, ``[S]`` bool, by its name; all of them last.
        measured: one for each comparison, ``[P, L + 1, 2]`` float64: cosines and ratios of norms, in that order.
    """

    rows: int
    every: int
    weights: dict[str, Tensor]
    measured: list[Tensor] = field(default_factory=list)

    @staticmethod
    def start(ensemble: Ensemble, training: TrainingConfig) -> Alignment:
        forward = registry.get(registry.RULE, training.rule).forward
        return Alignment(ensemble.rows, training.alignment_every if forward else 0, _by_layer(ensemble))

    def is_due(self, step: int) -> bool:
        """Whether the gradients of the step after so many are compared."""
        return self.every > 0 and step % self.every == 0

    def expected(self, steps: int) -> int:
        """How many comparisons ``steps`` steps hold."""
        return -(-steps // self.every) if self.every else 0

    def pattern(self) -> Tensor:
        """A tensor of the shape of one comparison."""
        shape = self.rows, len(self.weights), 2
        return torch.full(shape, torch.nan, dtype=torch.float64, device=self.weights[ALL].device)

    def observe(self, gradient: Tensor, true: Tensor) -> None:
        """Compare a rule's gradients ``[P, S]`` with those of backpropagation through time."""
        found, wanted = gradient.double(), true.double()
        compared = [_compared(found[:, own], wanted[:, own]) for own in self.weights.values()]
        self.measured.append(torch.stack(compared, 1))

    def of(self, row: int, steps: int) -> list[Compared]:
        """The comparisons of one replica, which has made so many steps."""
        return [
            Compared(place * self.every, layer, cosine, ratio)
            for place, one in enumerate(self.measured)
            if place * self.every < steps
            for layer, (cosine, ratio) in zip(self.weights, one[row].tolist(), strict=True)
        ]


def _by_layer(ensemble: Ensemble) -> dict[str, Tensor]:
    segments = ensemble.layout.segments
    found = {}
    for layer in sorted({segment.role.layer for segment in segments if segment.role.layer is not None}):
        found[str(layer)] = torch.zeros_like(ensemble.exists[0])
        for segment in segments:
            if segment.role.layer == layer:
                found[str(layer)][segment.start : segment.stop] = True
    return found | {ALL: torch.ones_like(ensemble.exists[0])}


def _compared(found_PS: Tensor, true_PS: Tensor) -> Tensor:
    """Cosine and ratio of norms, ``[P, 2]``."""
    size_P, true_size_P = found_PS.norm(dim=-1), true_PS.norm(dim=-1)
    # divided before they are multiplied: the product of small gradients' sizes underflows
    found_PS = found_PS / torch.where(size_P > 0, size_P, 1.0).unsqueeze(-1)
    cosine_P = (found_PS * (true_PS / true_size_P.unsqueeze(-1))).sum(-1)
    ratio_P = torch.where(true_size_P > 0, size_P / true_size_P, torch.nan)
    return torch.stack([cosine_P, ratio_P], -1)
