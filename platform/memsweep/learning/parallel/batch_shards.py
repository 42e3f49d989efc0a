"""Batches in parts: the loss and the gradient of a batch, as the sum of what was computed on each of its parts.

The parts of a batch are fixed by their number alone, and are summed in their order. So the numbers depend on how many
parts there are, and not on how many processes compute them: a crew of as many workers gives the same bits as one
process that computes one part after the other. They equal those of the whole batch within rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from memsweep.data.api import Batch, Stream
from memsweep.learning.loss.problem import Parts, Problem
from memsweep.learning.parallel.process_group import ProcessGroup
from memsweep.models.base import Model, Weights


class CrewApartError(RuntimeError):
    """The workers of a crew no longer hold the same weights."""


class ProblemInParts(Problem):
    """A problem whose batches are computed in parts; what stands for all sequences at once cannot be cut.

    Args:
        whole: the problem.
        parts: of every batch.
        crew: whose workers compute one part each; None: this process computes all of them.
    """

    def __init__(self, whole: Problem, parts: int, crew: ProcessGroup | None = None) -> None:
        if crew is not None and crew.size != parts:
            raise ValueError(f"{crew.size} workers cannot share {parts} parts of a batch: there is one for each")
        self.whole, self.parts, self.crew = whole, parts, crew

    def sequences(self, stream: Stream, index: int, size: int) -> Any:
        return self.whole.sequences(stream, index, size)

    def chosen(self, sequences: Any, rows: Tensor) -> Any:
        return self.whole.chosen(sequences, rows)

    def prepared(self, sequences: Any) -> Parts:
        """The parts that this process computes, each with its share of the batch."""
        count = len(sequences.inputs if isinstance(sequences, Batch) else sequences)
        if count < self.parts:
            raise ValueError(
                f"a batch of {count} sequences cannot be cut into {self.parts} parts: use a larger training.batch_size "
                "and training.validation_size, fewer resources.workers, or resources.strategy=replicas"
            )
        cuts = torch.arange(count, device="cpu").tensor_split(self.parts)
        own = cuts if self.crew is None else cuts[self.crew.rank : self.crew.rank + 1]
        return [(len(rows) / count, self.whole.prepared(self.whole.chosen(sequences, rows))) for rows in own]

    def splits(self, model: Model) -> bool:
        return self.whole.splits(model)

    def in_chunks(self, size: int) -> ProblemInParts:
        return ProblemInParts(self.whole.in_chunks(size), self.parts, self.crew)

    def sample(self, stream: Stream, size: int, count: int) -> Any:
        """Of one part, as if it were a batch of its own."""
        return self.whole.sample(stream, size, count)

    def population(self) -> Any:
        raise ValueError(
            "training.objective=population has no batch to cut into parts: use resources.strategy=replicas with it"
        )

    def target(self, trial: int) -> Tensor:
        return self.whole.target(trial)

    def loss(self, model: Model, weights: Weights, data: Any, targets: Tensor, live: Tensor | None = None) -> Tensor:
        """Of one part, as if it were a batch of its own."""
        return self.whole.loss(model, weights, data, targets, live)

    def metrics(self, model: Model, weights: Weights, data: Any) -> dict[str, Tensor]:
        return self.whole.metrics(model, weights, data)

    def summed(
        self, data: Parts, compute: Callable[[Any], Sequence[Tensor]], weights: Tensor, live: Tensor
    ) -> list[Tensor]:
        own = [[share * value for value in compute(part)] for share, part in data]
        shapes = [value.shape for value in own[0]]
        flat = [torch.cat([value.flatten() for value in values]) for values in own]
        everybody = flat if self.crew is None else _together(self.crew, flat[0], weights, live)
        total = everybody[0].clone()
        for more in everybody[1:]:
            total += more
        sizes = [shape.numel() for shape in shapes]
        return [piece.view(shape) for piece, shape in zip(total.split(sizes), shapes, strict=True)]


def _together(crew: ProcessGroup, mine: Tensor, weights: Tensor, live: Tensor) -> list[Tensor]:
    """Everybody's numbers, after a look at whether all computed them at the same weights.

    Workers that drift apart would sum up gradients of different models, and at last wait for one another for ever.
    Every one of them sees it at the same step, so that all end.
    """
    seal = _seal(weights, live).view(mine.dtype)
    found = crew.gathered(torch.cat([mine, seal]))
    seals = torch.stack([tensor[-len(seal) :] for tensor in found]).view(torch.uint8)
    if bool((seals != seals[0]).any()):
        raise CrewApartError(
            "the workers that share out the data of a trial do not hold the same weights any more: they must run on "
            "one kind of processor with the same versions. Use nodes of one kind, or resources.strategy=replicas"
        )
    return [tensor[: -len(seal)] for tensor in found]


def _seal(weights: Tensor, live: Tensor) -> Tensor:
    """One number that changes with any bit of the weights and with who is live: ``[1]``, int64."""
    bits = weights.detach().contiguous().view({8: torch.int64, 4: torch.int32}[weights.element_size()])
    places = torch.arange(1, len(live) + 1, device=live.device)
    return (bits.sum(dtype=torch.int64) + (live.long() * places).sum()).view(1)
