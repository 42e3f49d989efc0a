"""The contract of every task."""

from __future__ import annotations

import dataclasses
import json
import math

import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.schema.canonical import to_dict
from memsweep.data.api import Batch, CarriedTask, Task
from memsweep.data.task import are_symbols
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream


class TaskSuite:
    """Inherit and set ``task``; the default Config is tested, or the one in ``config``.

    Attributes:
        task: registered name.
        config: a Config to test instead of the default one.
        oracle_loss: how far the oracle's loss may be from the task's ``best_loss``, relative to chance. Where the
            targets hold noise (``best_loss`` above 0), a finite batch may be a tenth off besides.
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
        if are_symbols(batch.inputs):
            assert batch.inputs.shape == (6, task.horizon)
            assert batch.inputs.min() >= -1
            assert batch.inputs.max() < task.inputs
        else:
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
        steps = min(batch.inputs.shape[1] for batch in batches)  # test sequences may be longer
        rows = torch.cat([batch.inputs[:, :steps].flatten(1) for batch in batches])
        assert len(rows.unique(dim=0)) == len(rows)

    def test_chance_is_a_level_that_the_oracle_beats(self) -> None:
        task, batch = self.build(), self.batch(size=128)
        chance, best = task.chance(), task.best_loss()
        assert math.isfinite(chance)
        assert 0 <= best < 0.9 * chance
        answer = task.oracle(batch.inputs)
        assert answer.shape == (*batch.inputs.shape[:2], task.outputs)
        assert abs(float(task.loss(answer, batch)) - best) <= self.oracle_loss * chance + 0.1 * best

    def test_chance_is_what_an_answer_without_input_reaches(self) -> None:
        """The best such answer, one for every step, is found by minimizing the loss over it."""
        task, batch = self.build(), self.batch(size=512)
        answer = torch.zeros(1, task.horizon, task.outputs, dtype=torch.float64, requires_grad=True)
        done = 1e-6 * task.chance()
        optimizer = torch.optim.LBFGS([answer], max_iter=100, tolerance_change=done, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = task.loss(answer.expand(batch.inputs.shape[0], -1, -1), batch)
            value.backward()
            return value

        optimizer.step(loss)
        assert 0.8 * task.chance() < loss().item() < 1.25 * task.chance()

    def test_squared_weights_say_what_the_loss_is(self) -> None:
        """Kernels that compute loss and gradient in one pass read them in the loss's place."""
        task, batch = self.build(), self.batch()
        weights = task.squared_weights()
        if weights is None:
            return
        answer = 0.7 * task.oracle(batch.inputs).roll(1, 0)
        squares = weights.unsqueeze(-1) * (answer - batch.targets).square()
        torch.testing.assert_close(task.loss(answer, batch), squares.sum() / len(answer), rtol=1e-12, atol=0.0)

    def test_reports_names_the_metrics(self) -> None:
        """A study whose objective no metric has is refused before anything runs: by this list."""
        task, batch = self.build(), self.batch()
        assert tuple(task.metrics(task.oracle(batch.inputs), batch)) == task.reports

    def test_loss_and_metrics_keep_leading_dimensions(self) -> None:
        task, batch = self.build(), self.batch()
        answer = task.oracle(batch.inputs)
        stacked = torch.stack([answer, answer + 0.5 * answer.flip(1), answer.roll(1, 0), 0.1 - answer])
        together = {"loss": task.loss(stacked, batch)} | task.metrics(stacked, batch)
        nested = stacked.unflatten(0, (2, 2))
        twice = {"loss": task.loss(nested, batch)} | task.metrics(nested, batch)
        alone = [{"loss": task.loss(one, batch)} | task.metrics(one, batch) for one in stacked]
        for name, values in together.items():
            torch.testing.assert_close(values, torch.stack([one[name] for one in alone]))
            torch.testing.assert_close(twice[name].flatten(), values)

    def test_loss_and_metrics_are_averaged_over_the_batch(self) -> None:
        """The engine may cut a batch into chunks."""
        task, batch = self.build(), self.batch(size=6)
        answer = 0.7 * task.oracle(batch.inputs).roll(1, 0)
        parts = [Batch(batch.inputs[rows], batch.targets[rows]) for rows in (slice(0, 2), slice(2, 6))]
        first, second = (
            {"loss": task.loss(answer[rows], part)} | task.metrics(answer[rows], part)
            for rows, part in zip((slice(0, 2), slice(2, 6)), parts, strict=True)
        )
        whole = {"loss": task.loss(answer, batch)} | task.metrics(answer, batch)
        for name, value in whole.items():
            torch.testing.assert_close(value, first[name] / 3 + 2 * second[name] / 3)

    def test_a_carried_task_goes_on_from_window_to_window(self) -> None:
        """Two windows are one of twice the length, in training and in the sequences of an evaluation."""
        task = self.build()
        if not isinstance(task, CarriedTask):
            return
        steps = max(2, task.horizon // 8)  # so that there are several windows in little data
        short, long = (type(task)(dataclasses.replace(task.config, horizon=count)) for count in (steps, 2 * steps))
        assert [short.begins(index, 4) for index in (0, 1)] == [True, False]
        two = [short.draw(Stream(0, TRAIN), index, 4).inputs for index in (0, 1)]
        assert torch.equal(torch.cat(two, 1), long.draw(Stream(0, TRAIN), 0, 4).inputs)
        for stream in (VALIDATION, TEST):
            first = short.draw(Stream(0, stream), 0, 64).inputs.unflatten(0, (short.runs(64), -1))[0]
            assert torch.equal(first[:2].flatten(0, 1), long.draw(Stream(0, stream), 0, 64).inputs[0])

    def test_a_carried_task_has_all_rows_in_every_batch(self) -> None:
        """States belong to rows; a batch of an evaluation holds as many windows of each of its sequences."""
        task = self.build()
        if not isinstance(task, CarriedTask):
            return
        for size in (1, 4, 10):
            assert all(len(task.draw(Stream(0, TRAIN), index, size).inputs) == size for index in range(3))
            for stream in (VALIDATION, TEST):
                held = len(task.draw(Stream(0, stream), 0, size).inputs)
                assert 1 <= task.runs(size) <= held <= size
                assert held % task.runs(size) == 0
