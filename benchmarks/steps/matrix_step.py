"""Time of one full optimizer step of each network with a recurrent matrix, against a plain implementation of it.

The shape is copying memory's: ten symbols, a delay of 200, batches of ten sequences, width 128. A round runs the plain
network and then a step of each trial, so that all of them meet the same machine; ``ratio`` is the median over the
rounds of the plain network's time by our time per model. Both sides find their batch drawn, have the same weights at
the start, compute in the row's dtype, and take an RMSprop step so small that nothing changes on the way.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final

import torch

from benchmarks import harness
from benchmarks.harness import Options, Row
from benchmarks.published.matrix import PublishedMatrix, PublishedMatrixTraining
from benchmarks.steps.product import ENDLESS
from memsweep import registry, trial
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.learning import loop
from memsweep.learning.loss.batch_sharding import ShardedBatch
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.training.learner import Learner
from memsweep.models.base import Model, Signature
from memsweep.recurrence.freed_memory import keep_freed_memory
from memsweep.streams import TRAIN, Stream

WIDTH: Final = 128
BATCH: Final = 10
DELAY: Final = 200
SEEDS: Final = (1, 5)


@cache
def _discovered() -> None:
    registry.discover(harness.ROOT)


@dataclass(frozen=True)
class Case:
    """One comparison: a plain network, and trials of the same model."""

    model: str
    stair: str = "none"
    map: str | None = None
    dtype: str = "float64"

    def config(self, seeds: int, quick: bool) -> TrialConfig:
        _discovered()
        fields: dict[str, Any] = {"map": self.map} if self.map else {}
        width, delay = (16, 20) if quick else (WIDTH, DELAY)
        return TrialConfig(
            # one number a symbol, as published, would let the rates of exp_alpha overflow before any training
            task=registry.get(registry.TASK, "copying_memory").Config(delay=delay, encoding="one_hot"),
            model=registry.get(registry.MODEL, self.model).Config(width=width, stair=self.stair, **fields),
            training=TrainingConfig(
                seeds=seeds,
                steps=ENDLESS,
                batch_size=BATCH,
                dtype=self.dtype,
                optimizer="rmsprop",
                learning_rate=1e-6,
                amplitude_penalty=0.0,
                clip=0.0,
            ),
        )


def cases() -> list[Case]:
    """In the order of the table."""
    return [
        *(Case(name) for name in ("rnn", "orthogonal_rnn", "published_rnn_orth")),
        *(Case("exp_rnn", map=name) for name in ("exponential", "cayley")),
        Case("nn_rnn", map="exponential"),
        *(Case("exp_rnn", stair, "exponential") for stair in ("n", "exp_alpha")),
        Case("exp_rnn", map="exponential", dtype="float32"),
    ]


class MatrixTraining:
    """The models of one trial in training on one batch that lies ready, as a worker trains them.

    Args:
        config: of the trial; its seeds are the models.
    """

    def __init__(self, config: TrialConfig) -> None:
        keep_freed_memory()
        (task,), groups = trial._tasks_and_ensembles([config], padded=True)
        self.config = config
        self.task_loss = task_loss_for([task], config.has_closed_form, getattr(torch, config.training.dtype))
        self.learners = [Learner.start(group, self.task_loss, config.training) for group in groups]
        drawn = self.task_loss.draw(Stream(config.training.data_seed, TRAIN), 0, config.training.batch_size)
        self.data = self.task_loss.prepare(drawn)
        self.batch = ShardedBatch([(1.0, self.data)])
        self.done = 0

    def first(self) -> Model:
        """The model of the first seed, with its initial weights."""
        (learner, *_) = self.learners
        weights = learner.ensemble.layout.named(learner.ensemble.initial)
        config, task = self.config, self.task_loss.task  # type: ignore[attr-defined]  # sampled losses have one
        model = registry.get(registry.MODEL, config.model.name)(
            config.model, Signature(task.inputs, task.outputs, task.horizon)
        )
        for name, parameter in model.named_parameters():
            parameter.data = weights[name][0].detach().clone()
        return model

    def step(self) -> None:
        """One full optimizer step of every model."""
        for learner in self.learners:
            loop._step(learner, self.task_loss, self.batch, self.done, self.config.training)
        self.done += 1

    def check(self) -> None:
        """The time of models that have diverged would say nothing."""
        for learner in self.learners:
            assert bool(learner.running[learner.ensemble.real].all()), f"a model diverged: {self.config.model}"


def measured(case: Case, seeds: tuple[int, ...], pairs: int, quick: bool) -> list[Row]:
    """A row for each number of models."""
    ours = {count: MatrixTraining(case.config(count, quick)) for count in seeds}
    one = ours[seeds[0]]
    plain = PublishedMatrixTraining(PublishedMatrix(one.first()), one.data.inputs, one.data.targets)
    sides = {"plain": plain.step} | {str(count): training.step for count, training in ours.items()}
    times = harness.alternate(sides, pairs=pairs, shortest=0.002 if quick else harness.SHORTEST)
    rows = []
    for count, training in ours.items():
        training.check()
        each = [seconds / count for seconds in times[str(count)]]
        rows.append(
            asdict(case)
            | {"width": training.config.model.width, "models": count}
            | {"milliseconds_per_model": 1e3 * harness.median(each), "ratio": harness.ratio(times["plain"], each)}
            | {"plain_milliseconds": 1e3 * harness.median(times["plain"]), "pairs": pairs}
        )
    return rows


def run(options: Options) -> None:
    """Measure, print and write ``matrix_step.json``."""
    harness.one_thread()
    rows = []
    for case in cases():
        if options.wants(asdict(case)):
            for row in measured(case, SEEDS, 2 if options.quick else harness.PAIRS, options.quick):
                harness.tell(row)
                rows.append(row)
    settings = {
        "baseline": "plain implementation of the same network, one model, same dtype, batch ready",
        "clock": "CPU time of the process, one thread",
        "sequences": BATCH,
        "steps of a sequence": (20 if options.quick else DELAY) + 20,
        "activation": "modrelu",
        "optimizer": "rmsprop",
        "ratio": "median over the rounds of the plain network's time by our time per model",
    }
    harness.publish("matrix_step", settings, rows, options)
