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
from memsweep.report.analysis.contents import Contents, analyse
from memsweep.report.analysis.losses import LossRow, once_each
from memsweep.report.headline.answer import answer_of
from memsweep.report.headline.ranking import ranking_sentence
from memsweep.report.naming.conditions import Labels
from memsweep.report.read.study import load_study
from report_study import write_study

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


SIZE = "perturbation.test_size"
Named = dict[tuple[str, str, str], tuple[str, float]]


def rows(trials: Named, seeds: int = 4) -> list[LossRow]:
    """Rows of (task, model, reference) -> the names of the trainings, a letter each, and the accuracy."""
    found = []
    for place, ((task, model, reference), (trainings, accuracy)) in enumerate(trials.items()):
        names = [f"{place:016d}{training:>16}" for training in trainings]
        table = pd.DataFrame({"identity": np.repeat(names, seeds), "seed": range(seeds * len(names))})
        table = table.assign(error=1 - accuracy, outcome=Outcome.DONE, metric="accuracy", test_metric=accuracy)
        table = table.assign(validation_loss=1.0, memoryless_loss=np.nan, zero_loss=1.0)
        condition = {"task": task, "model": model, REFERENCE: reference, SIZE: 100 if reference == "metric" else 50}
        found.append(LossRow(condition, 4, 8, table, np.arange(len(table))))
    return found


def said(found: list[LossRow]) -> str:
    labels = Labels([row.condition for row in found])
    return ranking_sentence(cast(Contents, SimpleNamespace(labels=labels, losses=once_each(found))))


def kept(trials: Named) -> list[tuple[Any, ...]]:
    return [(*row.condition.values(), row.seeds, row.value.middle) for row in once_each(rows(trials))]


def test_one_training_is_one_row_whatever_was_measured_on_it() -> None:
    trials: Named = {
        ("parity", "gru", "metric"): ("a", 0.9),
        ("parity", "gru", "self"): ("a", 0.9),
        ("parity", "lru", "metric"): ("b", 0.8),
        ("parity", "rnn", "self"): ("c", 0.7),
    }
    assert kept(trials) == [
        ("parity", model, None, None, 4, value) for model, value in (("gru", 0.9), ("lru", 0.8), ("rnn", 0.7))
    ]
    assert said(rows(trials)).startswith(
        "By accuracy, `gru` is best (90.0 %); behind are `lru` (10.0 points) and `rnn`"
    )


def test_of_other_test_sets_the_larger_one_stays_and_of_more_seeds_the_more() -> None:
    assert kept({("parity", "gru", "self"): ("a", 0.9), ("parity", "gru", "metric"): ("a", 0.8)}) == [
        ("parity", "gru", None, None, 4, 0.8)
    ]
    assert kept({("parity", "gru", "self"): ("ab", 0.9), ("parity", "gru", "metric"): ("a", 0.8)}) == [
        ("parity", "gru", None, None, 8, 0.9)
    ]


def test_rows_of_other_trainings_stay_as_they_are() -> None:
    for other in ("b", "bc"):  # of the first also where another row shares its training
        trials: Named = {("parity", "gru", "metric"): ("a", 0.9), ("parity", "gru", "self"): (other, 0.9)}
        trials |= {("parity", "lru", "metric"): ("d", 0.9), ("parity", "lru", "self"): ("d", 0.9)}
        assert [row.condition[REFERENCE] for row in once_each(rows(trials))] == ["metric", "self"] * 2


def test_a_model_alone_is_best_of_none() -> None:
    tasks = [f"task_{place}" for place in range(5)]
    alone: Named = {(task, "gru", "metric"): (letter, 0.9) for task, letter in zip(tasks, "abcde", strict=True)}
    assert said(rows(alone)).startswith("Medians over 4 seeds: accuracy 90.0 % on task_0; 90.0 % on task_1; ")
    assert "best" not in said(rows(alone))
    two: Named = {("parity", "gru", "metric"): ("a", 0.9), ("flip_flop", "lru", "metric"): ("b", 0.8)}
    found = rows(two)
    assert said(found) == "Medians over 4 seeds: accuracy 90.0 % on parity (`gru`); 80.0 % on flip_flop (`lru`)."
    found[1].table.loc[3, "outcome"] = Outcome.DIVERGED
    assert said(found).endswith("80.0 % on flip_flop (`lru` (1 of 4 seeds diverged)).")


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


def test_models_that_are_held_against_themselves_hold_no_memory(tmp_path: Path) -> None:
    def by_itself(index: int, tables: dict[str, pd.DataFrame]) -> None:
        tables["curves"] = tables["curves"].assign(reading="self")

    write_study(tmp_path, balls=["recurrent"], memory=False, complete=by_itself)
    headline = answer_of(analyse(load_study(tmp_path))).sentences[0]
    assert "hat models of polynomial memory compute is not held stably under direct" in headline
    assert " memory is" not in headline
