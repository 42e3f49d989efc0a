"""The contract of a task: what a study refuses before it starts, in numbers, and at what price."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from memsweep import registry
from memsweep.cli import main
from memsweep.config.load.study import load_study
from memsweep.data.api import Batch, LinearFunctionalTask, Task
from memsweep.data.contract import Contract, contract
from memsweep.data.meaning import meant, of_oracle
from memsweep.streams import TEST, TRAIN, Stream
from paths import ROOT


class Sum(Task):
    """The running sum of white noise, without a fault."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Its length."""

        horizon: int = 7
        name: ClassVar[str] = "sum"

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        inputs = torch.from_numpy(stream.generator(index).standard_normal((size, self.horizon, 1)))
        return Batch(inputs, inputs.cumsum(1))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return (outputs - batch.targets).square().mean((-1, -2, -3))

    def chance(self) -> float:
        return 4.0

    def oracle(self, inputs: Tensor) -> Tensor:
        return inputs.cumsum(1)


def batch(inputs: Tensor, targets: Tensor | None = None) -> dict[str, Any]:
    """A method ``draw`` that gives these."""
    return {"draw": lambda self, stream, index, size: Batch(inputs, inputs if targets is None else targets)}


def found(**members: Any) -> tuple[str, ...]:
    """The faults of the task that has these members in place of its own."""
    return contract(type("Changed", (Sum,), members), Sum.Config()).problems


def squares(outputs: Tensor, batch: Batch) -> Tensor:
    return (outputs - batch.targets).square()


NUMBERS = torch.zeros(3, 7, 1, dtype=torch.float64)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a loss for each sequence": (
        {"loss": lambda self, outputs, batch: squares(outputs, batch).mean((-1, -2))},
        "loss of the task 'sum' is [2, 3] of float64 for outputs [2, 3, 7, 1] (models, sequences, steps, outputs) and "
        "targets [3, 7, 1] of float64; it must be [2] of float64, a number for each model",
    ),
    "one loss for all models": (
        {"loss": lambda self, outputs, batch: squares(outputs, batch).mean()},
        "loss of the task 'sum' is [] of float64 for outputs [2, 3, 7, 1]",
    ),
    "a loss that is no tensor": (
        {"loss": lambda self, outputs, batch: squares(outputs, batch).mean().item()},
        "is a value of type float for outputs",
    ),
    "a loss without a gradient": (
        {"loss": lambda self, outputs, batch: squares(outputs.detach(), batch).mean((-1, -2, -3))},
        "no gradient goes through the loss of the task 'sum'",
    ),
    "a loss that torch refuses": (
        {"loss": lambda self, outputs, batch: (outputs @ batch.targets).mean((-1, -2, -3))},
        "loss of the task 'sum' for outputs [2, 3, 7, 1] (models, sequences, steps, outputs) and targets [3, 7, 1] of "
        "float64 failed: RuntimeError (test_contract.py, line ",
    ),
    "targets of other sequences": (
        batch(NUMBERS, NUMBERS[1:]),
        "gave targets [2, 7, 1] of float64; their first axis must be that of the 3 sequences",
    ),
    "inputs with time first": (
        batch(NUMBERS.transpose(0, 1), NUMBERS),
        "draw of the task 'sum' for 3 sequences of the stream 'validation' gave inputs [7, 3, 1] of float64; it must "
        "give numbers [3, 7, 1] (sequences, horizon, inputs), or symbols [3, 7], whole numbers from 0 to 0",
    ),
    "inputs that are not finite": (batch(NUMBERS / 0), "inputs with 21 numbers that are not finite"),
    "symbols beyond the last": (batch(torch.full((3, 7), 4)), "gave the symbols 4 to 4; it must give 0 to 0"),
    "no batch": (
        {"draw": lambda self, stream, index, size: NUMBERS},
        "gave [3, 7, 1] of float64; it must give a Batch of two tensors",
    ),
    "sequences of a global generator": (
        {"draw": lambda self, stream, index, size: Batch(torch.rand(size, 7, 1), NUMBERS)},
        "draw of the task 'sum' gave other sequences of the stream 'train' when it was asked for",
    ),
    "targets of a global generator": (
        {"draw": lambda self, stream, index, size: Batch(NUMBERS, torch.rand(size, 7, 1))},
        "draw of the task 'sum' gave other sequences",
    ),
    "no outputs": ({"outputs": 0}, "outputs of the task 'sum' is 0; it must be a whole number of at least 1"),
    "a chance of nothing": ({"chance": lambda self: 0.0}, "chance of the task 'sum' gave 0.0; it must give a finite"),
    "a metric that is not reported": (
        {"metrics": lambda self, outputs, batch: {"accuracy": outputs.mean((-1, -2, -3))}},
        "metrics of the task 'sum' gave ['accuracy']; they must have the names in reports, []",
    ),
    "a metric for each sequence": (
        {"reports": ("hits",), "metrics": lambda self, outputs, batch: {"hits": outputs.mean((-1, -2))}},
        "metric 'hits' of the task 'sum' is [2, 3] of float64",
    ),
    "a loss that is a sum": (
        {"loss": lambda self, outputs, batch: squares(outputs, batch).mean((-1, -2)).sum(-1)},
        "for the same ones twice; it must be their mean, which does not depend on their number",
    ),
    "a loss that is the root of a sum": (
        {
            "loss": lambda self, outputs, batch: squares(outputs, batch).sum((-1, -2, -3)).sqrt(),
            "chance": lambda self: 9,
        },
        "for the same ones twice; it must be their mean",
    ),
    "a chance above that of zeros": (
        {"chance": lambda self: 13.0},
        "chance of the task 'sum' gave 13, and outputs of zero have the loss ",
    ),
    "tests on what was trained on": (
        {"draw": lambda self, stream, index, size: Sum.draw(self, Stream(0, TRAIN), index, size)},
        "gave the same 64 sequences for the streams 'train' and 'test'",
    ),
    "test sequences of another kind": (
        {"draw": lambda self, stream, index, size: Batch(NUMBERS[:, : 6 if stream.name == TEST else 7], NUMBERS)},
        "of the stream 'test' gave inputs [3, 6, 1] of float64; it must give numbers [3, 7, 1]",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_in_numbers(what: str) -> None:
    members, words = WRONG[what]
    (told,) = found(**members)
    assert words in told


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (torch.ones(8), "gave [8] of float32; it must give a tensor of real numbers [7], one for each lag"),
        (torch.ones(7, dtype=torch.complex64), "gave [7] of complex64; it must give a tensor of real numbers [7]"),
        ([1.0] * 7, "gave a value of type list; it must give a tensor of real numbers [7]"),
        (torch.ones(7) / 0, "gave 7 numbers that are not finite; all must be"),
    ],
)
def test_a_memory_has_a_number_for_each_lag(memory: Tensor, words: str) -> None:
    part = type("Remembering", (LinearFunctionalTask,), {"kernel": lambda self: memory, "variance": 1.0})
    (told,) = contract(part, Sum.Config()).problems
    assert words in told
    assert found(kernel=lambda self, x, y: x) == ()  # of a task that has no memory function


def test_a_task_in_order_has_no_problems() -> None:
    assert found() == ()
    in_place = {"loss": lambda self, outputs, batch: outputs.sub_(batch.targets).square().mean((-1, -2, -3))}
    assert found(**in_place) == ()  # as in training, where outputs are a result
    assert found(**batch(torch.zeros(2, 7, 1, dtype=torch.float32))) == ()  # finite data, which the engine converts
    assert found(inputs=5, **batch(torch.full((3, 7), 4), NUMBERS)) == ()


def of_few(self: Sum, stream: Stream, index: int, size: int) -> Batch:
    """Sequences of a set of eight, in one order for all streams."""
    inputs = torch.arange(8.0, dtype=torch.float64).repeat(size // 8 + 1)[:size, None, None].expand(size, 7, 1)
    return Batch(inputs, inputs)


def of_one_order(self: Sum, stream: Stream, index: int, size: int) -> Batch:
    """Sequences of a finite set without shuffling: all seeds see the same."""
    return Sum.draw(self, Stream(5, stream.name), index, size)


def over_known(self: Sum, outputs: Tensor, batch: Batch) -> Tensor:
    """A loss over the targets that are not nan."""
    known = ~batch.targets.isnan()
    return torch.where(known, squares(outputs, batch), 0.0).sum((-1, -2, -3)) / known.sum()


@pytest.mark.parametrize(
    "members",
    [
        {"draw": of_few, "chance": lambda self: 1.0},
        {"draw": of_one_order},
        {"chance": lambda self: 0.4},  # the best answer without an input may be far better than zeros
        {"loss": over_known},
        {
            "loss": lambda self, outputs, batch: squares(outputs, batch).mean((-1, -2, -3)).sqrt(),
            "chance": lambda self: 2,
        },
        {"loss": lambda self, outputs, batch: squares(outputs, batch).mean((-1, -2, -3)) / batch.targets.var()},
    ],
)
def test_what_is_not_certainly_wrong_is_not_refused(members: dict[str, Any]) -> None:
    assert found(**({"chance": lambda self: 0.5} | members if "loss" in members else members)) == ()


def coupled(self: Sum, outputs: Tensor, batch: Batch) -> Tensor:
    """A loss by which models and sequences see each other; not at outputs of zero."""
    return squares(outputs, batch).mean((-1, -2, -3)) + 0.1 * outputs.square().sum()


ONES = {"squared_weights": lambda self: torch.ones(7, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (ONES, "models would be trained on the one and judged by the other"),
        (
            {"squared_weights": lambda self: torch.ones(3)},
            "gave a tensor [3], for targets [16, 7, 1]; it must give [7]",
        ),
        ({"squared_weights": lambda self: 1.0}, "gave no tensor"),
        ({"loss": coupled}, "must be of each model alone"),
        (
            {
                "reports": ("odd",),
                "metrics": lambda self, outputs, batch: {"odd": outputs.sum((-1, -2, -3)) + outputs.sum()},
            },
            "metric 'odd' of the task 'sum' is",
        ),
        (
            {"loss": lambda self, outputs, batch: squares(outputs, batch).mean((-1, -2, -3)) * math.nan},
            "is not finite for outputs of zero, nor for random ones",
        ),
    ],
)
def test_a_loss_that_means_something_else_is_refused(members: dict[str, Any], words: str) -> None:
    assert words in found(**members)[-1]


def relative(self: Sum, outputs: Tensor, batch: Batch) -> Tensor:
    """A loss that outputs of zero do not have."""
    return squares(outputs, batch).mean((-1, -2, -3)) / outputs.square().mean((-1, -2, -3))


def test_squared_weights_that_say_the_loss_and_a_loss_that_zeros_lack_are_let_through() -> None:
    assert found(squared_weights=lambda self: torch.full((7,), 1 / 7, dtype=torch.float64)) == ()
    assert found(loss=relative) == ()


def test_what_a_draw_raises_is_noted() -> None:
    raising = type("Raising", (Sum,), {"draw": lambda self, *about: exec("raise RuntimeError('no disk')")})
    (note,) = raising.notes_of_code(SimpleNamespace(task=Sum.Config()))
    assert note.startswith("draw of the task 'sum' failed: RuntimeError")
    assert note.endswith("no disk. Correct its code, or its trials fail")
    assert not list(Sum.notes_of_code(SimpleNamespace(task=Sum.Config())))


def test_the_tasks_of_memsweep_mean_what_they_say() -> None:
    registry.discover(ROOT)
    looked_at = 0
    for name in registry.names(registry.TASK):
        part = registry.get(registry.TASK, name)
        if registry.is_own(part):
            with contextlib.suppress(ValueError):  # its data are not here
                assert meant(part, part.Config()) + of_oracle(part, part.Config()) == (), name
                looked_at += 1
    assert looked_at > 15


@pytest.mark.parametrize("harm", ["raise KeyError('x')", "os._exit(3)", "os.abort()", "time.sleep(60)"])
def test_what_a_draw_does_to_its_process_is_left_to_its_trial(monkeypatch: pytest.MonkeyPatch, harm: str) -> None:
    monkeypatch.setattr("memsweep.data.contract.SECONDS", 0.5)
    harmful = type("Harmful", (Sum,), {"draw": lambda self, *about: exec(harm, {"os": os, "time": time})})
    start = time.monotonic()
    for config in (Sum.Config(), Sum.Config(horizon=8)):
        assert replace(contract(harmful, config), failed=None) == Contract()
    assert time.monotonic() - start < 20


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    registry.discover(ROOT)
    (tmp_path / "tasks").mkdir()
    text = (ROOT / "tasks" / "functionals" / "linear_functional.py").read_text()
    for name, member in (("summed", "def loss(self, outputs, batch):\n        return outputs.sum(-1)"),
                         ("unfair", "def chance(self):\n        return 0.0")):  # fmt: skip
        changed = text.replace('"linear_functional"', f'"contract_{name}"')
        (tmp_path / "tasks" / f"{name}.py").write_text(f"{changed}\n    {member}\n")
    study = "task: {name: contract_summed, horizon: 9}\nmodel: {name: lru, width: 2}\n"
    (tmp_path / "study.yaml").write_text(f"{study}grid: {{task.name: [contract_summed, contract_unfair]}}\n")
    yield tmp_path
    for name in ("contract_summed", "contract_unfair"):
        registry._parts[registry.TASK].pop(name, None)


@pytest.mark.parametrize("verb", ["plan", "sweep"])
def test_a_study_is_refused_before_anything_starts_with_all_that_is_wrong(
    workspace: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    results = workspace / "results"
    words = [str(workspace / "study.yaml"), "--workspace", str(workspace), "--results", str(results)]
    assert main([verb, *words]) == 2
    told = capsys.readouterr().err
    assert "2 problems" in told
    assert "task: loss of the task 'contract_summed' is [2, 3, 9] of float64" in " ".join(told.split())
    assert "task: chance of the task 'contract_unfair' gave 0.0" in " ".join(told.split())
    assert not results.exists()


def test_each_task_of_a_study_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quickstart has 120 trials of eight tasks: two small batches of each."""
    contract.cache_clear()
    drawn, draw = list[SimpleNamespace](), LinearFunctionalTask.draw

    def counted(self: LinearFunctionalTask, stream: Stream, index: int, size: int) -> Batch:
        drawn.append(SimpleNamespace(config=self.config, stream=stream.name, size=size))
        return draw(self, stream, index, size)

    monkeypatch.setattr(LinearFunctionalTask, "draw", counted)
    sweep = load_study("quickstart", workspace=ROOT)
    assert len(sweep.rows) == 120
    tasks = {row.task for row in sweep.rows}
    assert len(drawn) == 2 * len(tasks) == 16
    assert math.prod(each.size for each in drawn) == 3**16


LEVELS: dict[str, tuple[dict[str, Any], str]] = {
    "swapped": ({"near": (0.08, 1.0)}, "gave 'near' 0.08 for the right answers and 1 at chance; more is better"),
    "equal": ({"near": (1.0, 1.0)}, "the first must be above the second"),
    "no number": ({"near": (math.nan, 0.0)}, "gave (nan, 0.0) for 'near'; it must give two finite numbers"),
    "one number": ({"near": 1.0}, "gave 1.0 for 'near'; it must give two finite numbers"),
    "another name": ({"far": (1.0, 0.0)}, "gave ['far']; its names must be in reports, ['near']"),
    "not those of the oracle": (
        {"near": (100.0, 8.0)},
        "gave 'near' 100 for the right answers, and those of its oracle",
    ),
    "a truth": ({"near": (True, 0.1)}, "gave (True, 0.1) for 'near'; it must give two finite numbers"),
    "two numbers in one": ({"near": (torch.ones(2), 0.1)}, "it must give two finite numbers"),
    "right": ({"near": (1.0, 0.1)}, ""),
    "numpy's": ({"near": (np.float32(1), np.float32(0.1))}, ""),
    "torch's": ({"near": (torch.tensor(1.0), torch.tensor(0.1))}, ""),
}


def near(self: Task, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
    return {"near": (squares(outputs, batch) < 0.01).double().mean((-1, -2, -3))}


@pytest.mark.parametrize("what", LEVELS)
def test_levels_that_no_answer_has_are_refused(what: str) -> None:
    levels, words = LEVELS[what]
    told = found(reports=("near",), metrics=near, metric_levels=lambda self: levels)
    assert len(told) == bool(words), told
    assert words in "".join(told)


@pytest.mark.parametrize(
    ("best", "words"),
    [
        (0.0, ""),
        (np.float32(0), ""),
        (torch.tensor(0.0), ""),
        (False, "gave False, and chance 4"),
        (5.0, "gave 5.0, and chance 4; it must give the expected loss of the right answers, from 0 to below chance"),
        (math.nan, "gave nan, and chance 4"),
        (3.0, "gave 3, and the answers of its oracle have the loss 0 on 16 sequences"),
    ],
)
def test_a_best_loss_that_no_answer_has_is_refused(best: Any, words: str) -> None:
    told = found(best_loss=lambda self: best)
    assert len(told) == bool(words), told
    assert words in "".join(told)


def explained(self: Task, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
    """The variance that is explained over the sequences, at the last step: of one sequence it is nan."""
    last = batch.targets[:, -1]
    return {"explained": 1 - squares(outputs, batch)[..., -1, :].sum((-1, -2)) / (last - last.mean(0)).square().sum()}


def correlation(self: Task, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
    one, other = (each[..., -1, 0] - each[..., -1, 0].mean(-1, keepdim=True) for each in (outputs, batch.targets))
    return {"explained": (one * other).sum(-1) / (one.norm(dim=-1) * other.norm(dim=-1))}


@pytest.mark.parametrize("metrics", [explained, correlation])
def test_a_metric_may_be_of_the_batch(metrics: Any) -> None:
    levels = {"metric_levels": lambda self: {"explained": (1.0, 0.0)}, "reports": ("explained",)}
    assert found(metrics=metrics, **levels) == ()


def test_a_task_without_an_oracle_keeps_its_levels() -> None:
    def oracle(self: Task, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    assert not found(reports=("near",), metrics=near, metric_levels=lambda self: {"near": (1.0, 0.1)}, oracle=oracle)
