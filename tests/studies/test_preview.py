"""The columns of a plan tell its trials apart, and say nothing twice."""

from __future__ import annotations

from pathlib import Path

import memsweep as ms

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
