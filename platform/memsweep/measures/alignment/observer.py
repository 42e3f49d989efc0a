"""Comparison of a learning rule's gradient with that of backpropagation through time, in training.

At some steps both gradients of one batch are compared: the cosine of the angle between them, and the ratio of their
norms, for the weights of each layer (its unit, its norm and its gates) and for all weights, as the published code of
arXiv 2305.15947 does. The gradients are those of the loss without penalties.

Letters: P rows (replicas and dummies), S size of the flat weights, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from memsweep.learning.ensemble.replicas import Ensemble
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.loss.batch_sharding import ShardedBatch
from memsweep.learning.training.learner import BPTT, Learner
from memsweep.learning.training.observer import Observer
from memsweep.measures.alignment.names import ALL


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


@dataclass(kw_only=True)
class AlignmentObserver(Observer):
    """The comparisons of an ensemble's gradients: ``[P, L + 1, 2]``, cosines, then ratios of norms.

    Attributes:
        weights: which weights belong to each layer, ``[S]`` bool, by its name; all weights last.
    """

    weights: Mapping[str, Tensor]

    @staticmethod
    def start(table: str, ensemble: Ensemble, every: int) -> AlignmentObserver:
        """No comparisons yet."""
        return AlignmentObserver(table=table, rows=ensemble.rows, every=every, weights=_by_layer(ensemble))

    def expected(self, step: int) -> int:
        """Number of comparisons in ``step`` steps."""
        return -(-step // self.every)

    def pattern(self, device: torch.device) -> Tensor:
        return torch.full((self.rows, len(self.weights), 2), torch.nan, dtype=torch.float64, device=device)

    def differentiated(
        self, learner: Learner, task_loss: TaskLoss[Data], data: ShardedBatch[Data], step: int, gradient: Tensor
    ) -> None:
        """Compare the gradient with that of backpropagation, where it is due."""
        if self.is_due(step):
            with learner.in_training(step):  # with the same random numbers once more
                _, true_gradient = learner.gradients(task_loss, data, BPTT)
            self.compare(gradient, true_gradient)

    def compare(self, gradient: Tensor, true: Tensor) -> None:
        """Compare a rule's gradients ``[P, S]`` with those of backpropagation through time."""
        gradient, true = gradient.double(), true.double()
        compared = [_compare(gradient[:, own], true[:, own]) for own in self.weights.values()]
        self.measured.append(torch.stack(compared, 1))

    def of(self, row: int, steps: int) -> list[Mapping[str, Any]]:
        """The comparisons of one replica in its first ``steps`` steps."""
        return [
            Comparison(index * self.every, layer, cosine, ratio)._asdict()
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
