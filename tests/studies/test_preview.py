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
