"""Two readings of the same trained models: no headline ranks a model against itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

import memsweep as ms
from memsweep.outcome import Outcome
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import LossRow, once_each
from memsweep.report.headline.ranking import ranking_sentence
from memsweep.report.naming.conditions import Labels

REFERENCE = "perturbation.reference"
STUDY = """
protocol: tokens
task: {name: parity}
model: {name: residual_stack, width: 4, features: 4, layers: 1, unit: {name: lstm}}
training: {seeds: 4, steps: 2, batch_size: 4, learning_rate: 0.01}
perturbation: {balls: [recurrent], test_size: 8, starts: 0, ascent_steps: 1, stronger_every: 0}
grid:
  task: [{name: parity, horizon: 4}, {name: flip_flop, horizon: 4}]
  perturbation.reference: [target, self]
"""


def rows(trials: dict[tuple[str, str, str], tuple[str, float]]) -> list[LossRow]:
    """Rows of (task, model, reference) -> the name of the training, and its accuracy; four seeds each."""
    found = []
    for place, ((task, model, reference), (training, accuracy)) in enumerate(trials.items()):
        table = pd.DataFrame({"identity": f"{place:016d}{training:>16}", "seed": range(4), "error": 1 - accuracy})
        table = table.assign(outcome=Outcome.DONE, metric="accuracy", test_metric=accuracy, validation_loss=1.0)
        table = table.assign(memoryless_loss=np.nan, zero_loss=1.0)
        condition = {"task": task, "model": model, REFERENCE: reference}
        found.append(LossRow(condition, 4, 8, table, np.arange(4)))
    return found


def said(found: list[LossRow]) -> str:
    labels = Labels([row.condition for row in found])
    return ranking_sentence(cast(Contents, SimpleNamespace(labels=labels, losses=once_each(found))))


def test_one_training_is_one_row_whatever_was_measured_on_it() -> None:
    found = rows(
        {
            ("parity", "gru", "metric"): ("a", 0.9),
            ("parity", "gru", "self"): ("a", 0.9),
            ("parity", "lru", "metric"): ("b", 0.8),
            ("parity", "rnn", "self"): ("c", 0.7),
        }
    )
    assert [tuple(row.condition.values()) for row in once_each(found)] == [
        ("parity", model, None) for model in ("gru", "lru", "rnn")
    ]
    assert said(found).startswith("By accuracy, `gru` is best (90.0 %); behind are `lru` (10.0 points) and `rnn`")


def test_rows_of_other_trainings_or_other_numbers_stay() -> None:
    for other in (("b", 0.9), ("a", 0.8)):
        found = rows({("parity", "gru", "metric"): ("a", 0.9), ("parity", "gru", "self"): other})
        assert [row.condition[REFERENCE] for row in once_each(found)] == ["metric", "self"]


def test_one_model_on_several_tasks_is_best_of_none() -> None:
    found = rows({("parity", "gru", "metric"): ("a", 0.9), ("flip_flop", "gru", "metric"): ("b", 0.8)})
    assert said(found) == "Medians over 4 seeds: accuracy 90.0 % on parity; 80.0 % on flip_flop."


@pytest.mark.more
def test_measurements_of_one_model_are_not_ranked_against_each_other(tmp_path: Path) -> None:
    file = tmp_path / "readings.yaml"
    file.write_text(STUDY)
    results: Any = ms.sweep(str(file), results=tmp_path / "results", inline=True)
    losses, answer = results.losses, " ".join(results.answers)
    assert len(results.trials) == 4
    assert losses["task"].tolist() == ["parity", "flip_flop"]
    assert losses[REFERENCE].isna().all()
    assert answer.startswith("Medians over 4 seeds: accuracy at T ")
    assert "reference" not in answer
    assert "best" not in answer
