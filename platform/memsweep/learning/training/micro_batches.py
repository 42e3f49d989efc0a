"""How many sequences of a batch are computed at a time: as many as a budget of memory holds, by measurement.

The gradient of a batch is a sum over its sequences, so it may come piece by piece: what the pieces need is never in
memory together. The bytes that the gradient takes are counted while it is computed on a few sequences
(``memsweep.learning.memory.growth``). They, and so the choice, depend on shapes and code alone, never on the machine:
a sum in other pieces has other last bits, and a trial has the same bits on every machine of its kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsweep.learning.loss.problem import CHUNK, Problem
from memsweep.learning.memory.growth import footprint
from memsweep.streams import TRAIN, Stream

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrainingConfig
    from memsweep.learning.training.learner import Learner

BUDGETS = {"cpu": 1 << 30, "cuda": 16 << 30}
"""Bytes of tensors that the gradient of one piece of a batch may hold, by type of device.

A gibibyte leaves a processor's other workers theirs, and 16 gibibytes leave half of a common card to the data and to
the workspaces of its libraries, which are not counted. Neither is a matter of speed: smaller pieces cost little.
"""


def micro_batch(learner: Learner, problem: Problem, training: TrainingConfig) -> int | None:
    """Sequences whose losses and gradients are computed at a time; None where the problem has another way.

    Args:
        learner: before its first step; it is as it was afterwards.
        problem: that it is to be trained on.
        training: ``micro_batch`` decides where it is set. Otherwise the number is a power of two, at most ``CHUNK``.
    """
    model = learner.ensemble.model
    if not problem.splits(model):
        return None
    if training.micro_batch:
        return training.micro_batch
    if model.whole_batch(model.config):
        return max(CHUNK, training.batch_size)
    stream = Stream(training.data_seed, TRAIN)

    def work(sequences: int) -> None:
        learner.rehearse(problem, problem.sample(stream, training.batch_size, sequences))

    budget = BUDGETS[learner.weights.device.type]
    fitting = footprint(work, budget).fitting(budget)
    return min(CHUNK, 1 << (fitting.bit_length() - 1))
