"""The rounded and pushed weights of trained replicas, at which capacity and task metric are measured again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memsweep.config.schema.trial import RadiiConfig, TrialConfig
from memsweep.learning.loss.base import Data, TaskLoss
from memsweep.learning.state.trained import TrainedEnsemble
from memsweep.models.base import Part, Weights
from memsweep.stability.evaluation import metrics_of, worst_weights
from memsweep.stability.fixed_point import fixed
from memsweep.stability.optional import Subject
from memsweep.stability.perturbation.ball import ALL, ENTRYWISE
from memsweep.streams import Stream

if TYPE_CHECKING:
    from memsweep.stability.optional import Measured

PATH = 4.0
"""The search climbs at a radius so many times smaller first: a path leads from there to the radius."""
ROUNDED, PUSHED = "{}_bits", "radius_{:g}"
"""After the name of the block, or of the task's metric: with rounded weights, and with weights that were moved, by
chance for the block, by the worst push that a search finds for the metric."""


@dataclass(frozen=True)
class Moved:
    """The moved weights of one replica, stacked: ``[1, ...]``.

    Attributes:
        rounded: by name, as of ``ROUNDED``.
        pushed: by radius, moved by chance, and by the worst push that a search finds.
    """

    rounded: Mapping[str, Weights]
    pushed: Mapping[float, tuple[Weights, Weights]]


@dataclass(frozen=True)
class MovedWeights:
    """The moved weights of an ensemble's replicas.

    Attributes:
        subject: the replicas.
        rounded: by name, as of ``ROUNDED``: ``[rows, size]``.
        pushed: by radius, moved by chance and by the worst push: ``[rows, size]`` each.
    """

    subject: Subject
    rounded: Mapping[str, Tensor]
    pushed: Mapping[float, tuple[Tensor, Tensor]]

    @classmethod
    def of(cls, subject: Subject, bits: Sequence[int], radii: Sequence[float]) -> MovedWeights:
        """Round to so many bits, and push within these radii."""
        pack, config = subject.pack, subject.config
        rounded = {ROUNDED.format(each): rounded_weights(pack, each) for each in bits}
        pushed = {
            radius: (
                pushed_weights(pack, radius, config.perturbation.seed),
                worst_push(pack, subject.task_loss, radius, config),
            )
            for radius in radii
        }
        return cls(subject, rounded, pushed)

    def of_replica(self, row: int) -> Moved:
        """The moved weights of one replica."""

        def own(weights: Tensor) -> Weights:
            return self.subject.pack.ensemble.layout.named(weights[row : row + 1])

        pushed = {radius: (own(chance), own(worst)) for radius, (chance, worst) in self.pushed.items()}
        return Moved({how: own(weights) for how, weights in self.rounded.items()}, pushed)

    def with_metrics(self, measured: Measured) -> Measured:
        """The measurements with the task's first metric at moved weights, by how they moved; nan where diverged."""
        name = next((name for _, measurement in measured.values() for name in measurement.metrics), None)
        if name is None:
            return measured
        pack, config = self.subject.pack, self.subject.config
        task_loss = pack.split(self.subject.task_loss)
        moved = {**self.rounded, **{PUSHED.format(radius): worst for radius, (_, worst) in self.pushed.items()}}
        again = {f"{name}_{how}": metrics_of(pack.ensemble, task_loss, at, config) for how, at in moved.items()}
        found = {}
        for row, (trial, one) in measured.items():
            own = {key: values[row][name] if math.isfinite(one.error) else math.nan for key, values in again.items()}
            found[row] = trial, replace(one, metrics={**one.metrics, **own})
        return found


def rounded_weights(pack: TrainedEnsemble, bits: int) -> Tensor:
    """The trained weights ``[rows, size]``, each at the nearest of 2^bits - 1 values over +- its tensor's largest."""
    ensemble, weights = pack.ensemble, pack.weights
    sizes, largest = torch.where(ensemble.exists, weights.abs(), 0.0), torch.zeros_like(weights)
    for segment in ensemble.layout.segments:
        columns = slice(segment.start, segment.stop)
        largest[:, columns] = sizes[:, columns].amax(1, keepdim=True)
    return _moved(pack, fixed(weights, bits, largest))


def pushed_weights(pack: TrainedEnsemble, radius: float, seed: int) -> Tensor:
    """The trained weights ``[rows, size]``, each moved by the radius up or down.

    Args:
        pack: of the weights.
        radius: of the entrywise ball of which this is a corner.
        seed: of the draws; every replica has signs of its own, the same ones at all radii.
    """
    stream, size = Stream(seed, "corner of a ball"), pack.weights.shape[1]
    drawn = [stream.generator(each.seed).random(size) < 0.5 for each in pack.ensemble.replicas]
    up = pack.ensemble.spread(drawn).to(pack.weights.device)
    return _moved(pack, pack.weights + torch.where(up, radius, -radius))


def worst_push(pack: TrainedEnsemble, task_loss: TaskLoss[Data], radius: float, config: TrialConfig) -> Tensor:
    """The weights ``[rows, size]`` of largest error that a search finds in the entrywise ball around the trained ones.

    Args:
        pack: of the weights, which move as they are stored, biases included.
        task_loss: of the error.
        radius: of the ball.
        config: any trial of the pack: its search's effort and test sequences.
    """
    grid = RadiiConfig(from_=radius / PATH, to=radius, count=2)
    how = replace(config.perturbation, radii=grid, norm=ENTRYWISE, balance=False, method="worst_case")
    ensemble = pack.ensemble
    targets = ensemble.spread([task_loss.target(replica.trial) for replica in ensemble.replicas])
    numbers = (pack.weights, targets, ALL, replace(config, perturbation=how))
    return worst_weights(ensemble, pack.split(task_loss), *numbers)


def _moved(pack: TrainedEnsemble, weights: Tensor) -> Tensor:
    """These weights, but for padding and statistics, which stay."""
    moving = pack.ensemble.exists & ~pack.ensemble.select(Part.STATISTIC)
    return torch.where(moving, weights, pack.weights)
