"""What every task must do."""

from __future__ import annotations

import dataclasses
import json
import math

import torch

from memsweep import registry
from memsweep.config.canonical import to_dict
from memsweep.learning.objectives import Batch, Task
from memsweep.learning.streams import TEST, TRAIN, VALIDATION, Stream


class TaskSuite:
    """Inherit and set ``task``; the default Config is tested, or the one in ``config``.

    Attributes:
        task: registered name.
        config: a Config to test instead of the default one.
        oracle_loss: largest loss, relative to chance, that the oracle may have (noise in the targets needs more).
    """

    task: str
    config: object = None
    oracle_loss = 1e-10

    def build(self) -> Task:
        task_class = registry.get(registry.TASK, self.task)
        task: Task = task_class(self.config if self.config is not None else task_class.Config())
        return task

    def batch(self, stream: str = TRAIN, index: int = 0, size: int = 6) -> Batch:
        return self.build().draw(Stream(0, stream), index, size)

    def test_config_is_documented_and_plain(self) -> None:
        config = self.build().config
        assert all(field.metadata.get("doc") for field in dataclasses.fields(config))
        json.dumps(to_dict(config), allow_nan=False)

    def test_shapes_and_types(self) -> None:
        task, batch = self.build(), self.batch(size=6)
        assert batch.inputs.shape == (6, task.horizon, task.inputs)
        assert batch.inputs.dtype == torch.float64
        assert batch.targets.shape[0] == 6
        assert torch.isfinite(batch.inputs).all()
        assert torch.isfinite(batch.targets).all()

    def test_a_batch_is_a_function_of_stream_and_index(self) -> None:
        first, again = self.batch(index=3), self.batch(index=3)
        assert torch.equal(first.inputs, again.inputs)
        assert torch.equal(first.targets, again.targets)

    def test_streams_are_disjoint(self) -> None:
        batches = [self.batch(stream, index) for stream in (TRAIN, VALIDATION, TEST) for index in (0, 1)]
        rows = torch.cat([batch.inputs.flatten(1) for batch in batches])
        assert len(rows.unique(dim=0)) == len(rows)

    def test_chance_is_a_level_that_the_oracle_beats(self) -> None:
        task, batch = self.build(), self.batch(size=32)
        chance = task.chance()
        assert math.isfinite(chance)
        assert chance > 0
        answer = task.oracle(batch.inputs)
        assert float(task.loss(answer, batch)) <= self.oracle_loss * chance

    def test_chance_is_what_an_answer_without_input_reaches(self) -> None:
        task, batch = self.build(), self.batch(size=512)
        right = task.oracle(batch.inputs)
        blind = [torch.zeros_like(right), right.mean(0, keepdim=True).expand_as(right)]
        best = min(float(task.loss(answer, batch)) for answer in blind)
        assert 0.7 * task.chance() < best < 1.4 * task.chance()

    def test_loss_keeps_leading_dimensions(self) -> None:
        task, batch = self.build(), self.batch()
        answer = task.oracle(batch.inputs)
        stacked = torch.stack([answer, answer + 0.5, answer - 1.0])
        together = task.loss(stacked, batch)
        alone = torch.stack([task.loss(one, batch) for one in stacked])
        torch.testing.assert_close(together, alone)
