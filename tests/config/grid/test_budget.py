"""``model.parameters``: every model gets the largest width that makes no more parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memsweep import registry
from memsweep.config.load.study import load_study
from memsweep.config.schema.study import SweepConfig
from memsweep.errors import ConfigError
from memsweep.models.base import Signature
from paths import ROOT

registry.discover(ROOT)
BUDGET = 3000
TASK = "task: {name: copying_memory}\nperturbation: {balls: []}\ntraining: {seeds: 1, steps: 1}\n"
WITH_WIDTH = [
    name
    for name in registry.names(registry.MODEL)
    if name != "module" and "width" in registry.get(registry.MODEL, name).Config.__dataclass_fields__
]
FROZEN = ("training.groups.recurrent.factor=0", "training.groups.input.factor=0")
UNITS = [name for name in registry.names(registry.UNIT) if name != "module"]


def study(folder: Path, text: str, *overrides: str) -> SweepConfig:
    file = folder / "study.yaml"
    file.write_text(TASK + text)
    return load_study(str(file), overrides, ROOT)


def trained_numbers(row: object) -> int:
    """Of the model that is built, as torch counts them."""
    task = registry.get(registry.TASK, row.task.name)(row.task)
    signature = Signature(task.inputs, task.outputs, task.horizon)
    model = registry.get(registry.MODEL, row.model.name)(row.model, signature, np.random.default_rng(0))
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize(
    "model",
    [
        *(f"{{name: {name}}}" for name in WITH_WIDTH),
        *(f"{{name: residual_stack, unit: {name}}}" for name in UNITS),
        "{name: residual_stack, unit: {name: mamba3, states: 8, head_dim: 4}, features: 8}",  # refuses the usual width
    ],
)
def test_a_model_has_the_largest_width_of_its_budget(tmp_path: Path, model: str) -> None:
    given = FROZEN if "echo_state" in model else ()
    (row,) = study(tmp_path, f"model: {model}\ngrid: {{model.parameters: [{BUDGET}]}}\n", *given).rows
    assert 1 <= trained_numbers(row) <= BUDGET
    for width in range(row.model.width + 1, row.model.width + 64):
        tied = {"features": width} if hasattr(row.model, "features") else {}
        wider = replace(row.model, width=width, **tied)
        if not any(getattr(wider, "problems", tuple)()):
            assert trained_numbers(replace(row, model=wider)) > BUDGET
            return
    raise AssertionError("no wider model is allowed")


def test_features_that_are_given_stay(tmp_path: Path) -> None:
    model = "model: {name: residual_stack, unit: lru, features: 6}\n"
    rows = study(tmp_path, model, "model.parameters=1000,4000").rows
    assert [row.model.features for row in rows] == [6, 6]
    assert rows[0].model.width < rows[1].model.width


@pytest.mark.parametrize(
    ("model", "overrides", "problem"),
    [
        (
            "{name: rnn}",
            ["model.parameters=3"],
            "model.parameters is 3, and the model rnn has 22 at its smallest width, 1",
        ),
        ("{name: rnn}", ["model.parameters=many"], "must be a whole number of at least 1"),
        ("{name: rnn, width: 4}", ["model.parameters=100"], "stands in place of model.width, and that is set, too"),
        ("{name: rnn}", ["model.parameters=900,901"], "repeat an earlier trial"),
    ],
)
def test_a_budget_that_says_nothing_is_refused(tmp_path: Path, model: str, overrides: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        study(tmp_path, f"model: {model}\n", *overrides)
