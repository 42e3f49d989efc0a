"""The contract of every task."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from memsweep import registry
from memsweep.data.api import Batch, CarriedTask, Task
from memsweep.data.meaning import of_squares
from memsweep.data.sizes import at_horizon, horizon_field
from memsweep.data.task import are_symbols
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream
from memsweep.testing.checks import equal, finite, plain_config, same


class TaskSuite:
    """Inherit and set ``task``; the default Config is tested, or the one in ``config``.

    Attributes:
        task: registered name.
        config: a Config to test instead of the default one.
        oracle_loss: how far the oracle's loss may be from the task's ``best_loss``, relative to chance. Where the
            targets hold noise (``best_loss`` above 0), a finite batch may be a tenth off besides.
        chance_metric: how far the metrics of an answer without input may be from those of ``metric_levels``.
    """

    task: str
    config: object = None
    oracle_loss = 1e-10
    chance_metric = 0.06

    def build(self) -> Task:
        task_class = registry.get(registry.TASK, self.task)
        task: Task = task_class(self.config if self.config is not None else task_class.Config())
        return task

    def batch(self, stream: str = TRAIN, index: int = 0, size: int = 6) -> Batch:
        return self.build().draw(Stream(0, stream), index, size)

    def test_config_is_documented_and_plain(self) -> None:
        plain_config(self.build().config)

    def test_the_horizon_has_a_field_if_any(self) -> None:
        task = self.build()
        if (field := horizon_field(task.config)) is None:
            return
        longer = at_horizon(task.config, 2 * task.horizon)
        equal(f"horizon with {field} {getattr(longer, field)}", type(task)(longer).horizon, 2 * task.horizon)

    def test_shapes_and_types(self) -> None:
        task, batch = self.build(), self.batch(size=6)
        if are_symbols(batch.inputs):
            equal("shape of the inputs of 6 sequences", batch.inputs.shape, (6, task.horizon))
            least, most = int(batch.inputs.min()), int(batch.inputs.max())
            assert -1 <= least <= most < task.inputs, (
                f"symbols: expected -1 to {task.inputs - 1}, got {least} to {most}"
            )
        else:
            equal("shape of the inputs of 6 sequences", batch.inputs.shape, (6, task.horizon, task.inputs))
            equal("kind of the inputs", batch.inputs.dtype, torch.float64)
        equal("sequences of the targets", batch.targets.shape[0], 6)
        finite("inputs", batch.inputs)
        finite("targets", batch.targets)

    def test_a_batch_is_a_function_of_stream_and_index(self) -> None:
        first, again = self.batch(index=3), self.batch(index=3)
        same("inputs of a batch that is drawn twice (seed 0, index 3)", first.inputs, again.inputs)
        same("targets of a batch that is drawn twice (seed 0, index 3)", first.targets, again.targets)

    def test_streams_are_disjoint(self) -> None:
        batches = [self.batch(stream, index) for stream in (TRAIN, VALIDATION, TEST) for index in (0, 1)]
        steps = min(batch.inputs.shape[1] for batch in batches)  # test sequences may be longer
        rows = torch.cat([batch.inputs[:, :steps].flatten(1) for batch in batches])
        equal("different sequences of two batches of each stream", len(rows.unique(dim=0)), len(rows))

    def test_chance_is_a_level_that_the_oracle_beats(self) -> None:
        task, batch = self.build(), self.batch(size=128)
        chance, best = task.chance(), task.best_loss()
        assert math.isfinite(chance), f"chance: expected a finite number, got {chance}"
        assert 0 <= best < 0.9 * chance, f"best_loss: expected 0 to below 0.9 of chance ({chance:g}), got {best:g}"
        answer = task.oracle(batch.inputs)
        equal("shape of the oracle's answers", answer.shape, (*batch.inputs.shape[:2], task.outputs))
        loss, tolerance = float(task.loss(answer, batch)), self.oracle_loss * chance + 0.1 * best
        assert abs(loss - best) <= tolerance, (
            f"loss of the oracle on 128 sequences (seed 0): expected best_loss, {best:g}, within {tolerance:.2g} "
            f"(oracle_loss {self.oracle_loss:g} of chance {chance:g}), got {loss:g}"
        )

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
        self.metrics_at_chance(task, answer.detach())
        least, chance = loss().item(), task.chance()
        assert 0.8 * chance < least < 1.25 * chance, (
            f"least loss of an answer without input on 512 sequences (seed 0): expected 0.8 to 1.25 of chance, "
            f"{chance:g}, got {least:g}"
        )

    def metrics_at_chance(self, task: Task, answer: Tensor) -> None:
        """The metrics of the best answer without input, on sequences that it was not fitted to, are those at chance."""
        batch = self.batch(index=1, size=512)
        found = task.metrics(answer.expand(batch.inputs.shape[0], -1, -1), batch)
        for name, (_, chance) in task.metric_levels().items():
            assert abs(float(found[name]) - chance) < self.chance_metric, (
                f"{name} of an answer without input on 512 sequences (seed 0): expected {chance:g} within "
                f"{self.chance_metric:g}, by metric_levels, got {float(found[name]):g}"
            )

    def test_the_oracle_has_the_best_metrics(self) -> None:
        """A verdict by a metric says of a model that it solves the task: it must be known what that is."""
        task, batch = self.build(), self.batch(size=128)
        found = task.metrics(task.oracle(batch.inputs), batch)
        for name, (best, chance) in task.metric_levels().items():
            equal(f"{name} of the oracle", float(found[name]), best)
            assert 0.0 <= chance < best, f"{name}: expected a level of chance from 0 to below {best:g}, got {chance:g}"

    def test_squared_weights_say_what_the_loss_is(self) -> None:
        """Kernels that compute loss and gradient in one pass read them in the loss's place."""
        task, batch = self.build(), self.batch()
        weights = task.squared_weights()
        if weights is None:
            return
        answer = 0.7 * task.oracle(batch.inputs).roll(1, 0)
        squares = of_squares(weights, answer, batch.targets)
        same("the loss, by squared_weights", task.loss(answer, batch), squares, rtol=1e-12, atol=0.0)

    def test_reports_names_the_metrics(self) -> None:
        """A study whose objective no metric has is refused before anything runs: by this list."""
        task, batch = self.build(), self.batch()
        equal(
            "names of the metrics (reports says what is expected)",
            tuple(task.metrics(task.oracle(batch.inputs), batch)),
            task.reports,
        )

    def test_loss_and_metrics_keep_leading_dimensions(self) -> None:
        task, batch = self.build(), self.batch()
        answer = task.oracle(batch.inputs)
        stacked = torch.stack([answer, answer + 0.5 * answer.flip(1), answer.roll(1, 0), 0.1 - answer])
        together = {"loss": task.loss(stacked, batch)} | task.metrics(stacked, batch)
        nested = stacked.unflatten(0, (2, 2))
        twice = {"loss": task.loss(nested, batch)} | task.metrics(nested, batch)
        alone = [{"loss": task.loss(one, batch)} | task.metrics(one, batch) for one in stacked]
        for name, values in together.items():
            same(
                "the loss or metric of four models at once",
                values,
                torch.stack([one[name] for one in alone]),
                rtol=1e-7,
                atol=1e-7,
            )
            same("the loss or metric of 2 x 2 models", twice[name].flatten(), values, rtol=1e-7, atol=1e-7)

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
            same(
                "the loss or metric of 6 sequences, by its parts of 2 and 4",
                value,
                first[name] / 3 + 2 * second[name] / 3,
                rtol=1e-7,
                atol=1e-7,
            )

    def test_a_carried_task_goes_on_from_window_to_window(self) -> None:
        """Two windows are one of twice the length, in training and in the sequences of an evaluation."""
        task = self.build()
        if not isinstance(task, CarriedTask):
            return
        steps = max(2, task.horizon // 8)  # so that there are several windows in little data
        short, long = (type(task)(dataclasses.replace(task.config, horizon=count)) for count in (steps, 2 * steps))
        equal(
            "whether batches 0 and 1 begin new sequences", [short.begins(index, 4) for index in (0, 1)], [True, False]
        )
        two = [short.draw(Stream(0, TRAIN), index, 4).inputs for index in (0, 1)]
        same("two windows after one another", torch.cat(two, 1), long.draw(Stream(0, TRAIN), 0, 4).inputs)
        for stream in (VALIDATION, TEST):
            first = short.draw(Stream(0, stream), 0, 64).inputs.unflatten(0, (short.runs(64), -1))[0]
            same(
                "two windows after one another", first[:2].flatten(0, 1), long.draw(Stream(0, stream), 0, 64).inputs[0]
            )

    def test_a_carried_task_has_all_rows_in_every_batch(self) -> None:
        """States belong to rows; a batch of an evaluation holds as many windows of each of its sequences."""
        task = self.build()
        if not isinstance(task, CarriedTask):
            return
        for size in (1, 4, 10):
            drawn = [len(task.draw(Stream(0, TRAIN), index, size).inputs) for index in range(3)]
            equal(f"sequences of training batches 0 to 2 of {size}", drawn, [size] * 3)
            for stream in (VALIDATION, TEST):
                held = len(task.draw(Stream(0, stream), 0, size).inputs)
                runs = task.runs(size)
                assert 1 <= runs <= held <= size, f"{stream}, {size} windows: runs {runs}, drawn {held}"
                equal("windows of an evaluation beyond whole sequences", held % task.runs(size), 0)
