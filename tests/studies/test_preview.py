"""The columns of a plan tell its trials apart, and say nothing twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import memsweep as ms
from memsweep.report.analysis.effort import seconds_of
from memsweep.studies.trials import lacks_of
from memsweep.sweep.estimate.estimate import modelled_work
from memsweep.sweep.planning import cost
from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.store.results import Store

STUDY = """
task: {name: parity, horizon: 8}
model: {name: residual_stack}
perturbation: {balls: []}
grid:
  model.unit: [{name: lstm}, {name: delta_net, largest_beta: 1}, {name: delta_net, largest_beta: 2}, {name: attention}]
"""


def test_columns_are_the_fields_of_units_that_differ_and_not_those_that_a_units_name_says(tmp_path: Path) -> None:
    file = tmp_path / "units.yaml"
    file.write_text(STUDY)
    table = ms.plan(file).trials.drop(columns=["identity", "state"])
    assert list(table) == ["model.unit", "model.unit.largest_beta"]  # not chrono: every lstm has the same
    assert len(table.drop_duplicates()) == 4


SEARCH = """
model: {name: residual_stack, features: 4, unit: lru}
perturbation: {balls: []}
training: {steps: 2, validate_every: 1}
grid:
  task: [{name: parity, horizon: 8}, {name: mqar, horizon: 16, pairs: 2, vocabulary: 12, filler: blank}]
  model.parameters: %s
search: {training.learning_rate: {choice: [1e-3, 1e-2]}, algorithm: grid, trials: 2, batch: 2}
"""


def test_a_searched_study_says_the_widths_of_its_budgets(tmp_path: Path) -> None:
    file = tmp_path / "budgets.yaml"
    for budgets, line in {
        "[400]": "residual_stack of lru: width 17 has 397 parameters, width 14 has 400 parameters",
        "[400, 600, 800, 1000]": "residual_stack of lru: widths 14 to 48, 397 to 989 parameters, by budget and task",
    }.items():
        file.write_text(SEARCH % budgets)
        assert line in ms.plan(file).lines()


def test_a_study_of_few_horizons_is_told_to_aim_at_five(tmp_path: Path) -> None:
    asked = {"50,100,200,400": "50,100,200,400,800", "50,100": "50,100,200,400,800", "50": "", "5,10,20,40,80": ""}
    for horizons, wanted in asked.items():
        plan = ms.plan("quickstart", f"task.horizon={horizons}", "model.width=2")
        said = [line for line in plan.lines() if "aim at 5" in line]
        assert [line.rpartition(" ")[2] for line in said] == [f"task.horizon={wanted}"] * bool(wanted)
        if wanted:  # the advice is an override that the study takes, and then there is none
            followed = ms.plan("quickstart", f"task.horizon={wanted}", "model.width=2")
            assert not any("aim at 5" in line for line in followed.lines())


def test_rows_are_told_the_horizons_alone_and_few_widths_are_told_what_a_slope_needs(tmp_path: Path) -> None:
    file, row = tmp_path / "rows.yaml", "{task: {horizon: %d}, model: {width: %d}}"
    rows = ", ".join(row % sizes for sizes in ((5, 2), (10, 2), (10, 3)))
    file.write_text(f"task: {{name: linear_functional}}\nmodel: {{name: diagonal_rnn}}\ngrid: {{rows: [{rows}]}}\n")
    lines = [*ms.plan(file, results=tmp_path).lines()]
    assert [line for line in lines if line.endswith("do: rows with task.horizon=20,40,80")], lines
    assert [line for line in lines if line.startswith("note: 2 widths; a slope in the width")]
    assert not [line for line in ms.plan(file, "grid.rows=[{model: {width: 2}}]").lines() if " widths;" in line]
    file.write_text("task: {name: linear_functional, horizon: 5}\nmodel: {name: diagonal_rnn}\ndecide: {}\n")
    (found,) = (line for line in ms.plan(file, "task.horizon=12,24").lines() if "aim at 5" in line)
    assert found.endswith("do: task.horizon=12,24,48,96,192")  # rows that were found take it


def test_a_plan_names_what_was_added_to_the_stored_one(tmp_path: Path) -> None:
    words = ("quickstart", "task.horizon=5", "training.steps=1", "perturbation.balls=[]")
    results = tmp_path / "results"
    ms.sweep(*words, "model.width=2", results=results, inline=True, progress=False)
    ms.extend(*words, "model.width=2,3", results=results, inline=True, progress=False)
    (line,) = (each for each in ms.plan(*words, "model.width=2", results=results).lines() if "came later" in each)
    assert line.startswith("note: not shown: ")
    assert "(model.width: 3)" in line
    assert f"memsweep resume quickstart --results {results}" in line
    assert not [each for each in ms.plan(*words, "model.width=2,3", results=results).lines() if "came later" in each]
    plan = read_plan(results / "quickstart")
    assert plan is not None
    search = replace(plan, extended=(), search=cast(Any, object()))  # a search that nobody has extended
    assert lacks_of(search, ms.plan(*words).study) == ""


def test_a_plan_counts_by_what_the_studys_own_trials_took(tmp_path: Path) -> None:
    words = {"model": {"name": "diagonal_rnn", "width": 2}, "training": {"seeds": 1, "steps": 2}, "name": "own"}
    study = {"task": {"name": "linear_functional", "kernel": "exponential", "horizon": 4}, **words}
    ms.sweep(study, results=tmp_path, inline=True, progress=False)
    (record,) = Store(tmp_path / "own").records()
    wider = ms.plan({**study, "grid": {"model.width": [2, 4, 8]}}, results=tmp_path)
    made = wider.estimate(0.0)
    assert wider.plan is not None
    one = cost.seconds([next(trial.config for trial in wider.plan.trials if trial.identity in wider.reuse.here)])
    assert made.took == 1
    assert made.work == pytest.approx(modelled_work(wider.waves) * seconds_of(record) / one)
    assert (
        ms.plan({**study, "name": "other", "grid": {"model.width": [2, 4]}}, results=tmp_path).estimate(0.0).took == 0
    )
