"""Rules of resources: which trials they move to which pack, and what they do to identities."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsweep.config.load.study import load_study
from memsweep.config.schema.study import ResourcesConfig, SweepConfig
from memsweep.errors import ConfigError
from memsweep.studies.preview import notes
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.worker.job import jobs_of
from sweeping import BASE

WIDE = "{field: model.width, above: 4, "


def study(tmp_path: Path, rules: str = "", more: str = "") -> SweepConfig:
    (tmp_path / "search_spaces").mkdir(exist_ok=True)
    file = tmp_path / "search_spaces" / "sized.yaml"
    grid = "grid: {model.width: [2, 4, 8], task.horizon: [8, 16]}"
    file.write_text(f"{BASE}\n{grid}\nresources: {{rules: [{rules}]}}\n{more}")
    return load_study(str(file), [], tmp_path)


def test_trials_of_other_resources_are_in_other_packs(tmp_path: Path) -> None:
    made = study(tmp_path, WIDE + "cpus: 3, node_memory: 2}, {field: task.horizon, values: [16], cpus: 2}")
    plan = make_plan(made, identified(made), frozenset())
    asked = {
        (trial.config.model.width > 4, trial.config.task.horizon): job.resources  # type: ignore[attr-defined]
        for job, pack in zip(jobs_of(plan, tmp_path, "x"), plan.packs, strict=True)
        for trial in pack.trials
    }
    assert asked == {
        (False, 8): ResourcesConfig(),
        (False, 16): ResourcesConfig(cpus=2.0),
        (True, 8): ResourcesConfig(cpus=3.0, node_memory=2.0),
        (True, 16): ResourcesConfig(cpus=2.0, node_memory=2.0),  # the later rule counts
    }
    assert {job.threads for job in jobs_of(plan, tmp_path, "x")} == {1, 2, 3}


def test_a_rule_moves_an_identity_only_where_it_changes_the_device(tmp_path: Path) -> None:
    usual = [trial.identity for trial in identified(study(tmp_path))]
    assert [trial.identity for trial in identified(study(tmp_path, WIDE + "cpus: 3, node_memory: 2}"))] == usual
    moved = identified(study(tmp_path, WIDE + "gpus: 1, accelerator: H100}"))
    assert [trial.identity != name for trial, name in zip(moved, usual, strict=True)] == [
        trial.config.model.width > 4 for trial in moved
    ]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("{field: model.widht, above: 4, cpus: 2}", r"resources\.rules\[0\]\.field: no trial has such a field"),
        ("{field: model.name, above: 4, cpus: 2}", r"resources\.rules\[0\]\.field: is no number"),
        ("{field: model.width, cpus: 2}", "says of no trial that it holds for it"),
        ("{field: model.width, above: 4}", "changes nothing: give cpus, gpus, node_memory or accelerator"),
        ("{field: model.width, above: 6, at_most: 3, cpus: 2}", "holds for no number, got above 6 and at_most 3"),
        ("{field: model.width, above: 6, at_most: 6, cpus: 2}", "holds for no number, got above 6 and at_most 6"),
        (WIDE + "accelerator: H100}", "accelerator is H100 without a GPU"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(tmp_path: Path, rules: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        study(tmp_path, rules)


def test_a_plan_names_the_rules_that_hold_for_no_trial(tmp_path: Path) -> None:
    made = study(tmp_path, WIDE + "cpus: 3}, {field: model.width, above: 600, cpus: 2}")
    assert "resources.rules[1] holds for no trial so far: none has model.width above 600" in notes(made)
    assert not any("rules[0]" in note for note in notes(made))


def test_a_rule_over_a_searched_field_is_refused(tmp_path: Path) -> None:
    search = "search: {training.learning_rate: {log_uniform: [1e-3, 1e-2]}, trials: 2}"
    with pytest.raises(ConfigError, match="is searched: a rule may read fields of the grid"):
        study(tmp_path, "{field: training.learning_rate, above: 0.001, cpus: 2}", search)


def test_a_process_of_its_own_asks_for_what_ray_always_gave() -> None:
    """Memory in a request, unasked, would make packs of a Ray on one machine wait for one another."""
    assert ResourcesConfig().bundle == {"CPU": 1.0}
    asked = ResourcesConfig(gpus=0.5, accelerator="H100", node_memory=1.5, labels=("zone=a",))
    assert asked.bundle == {"CPU": 1.0, "GPU": 0.5, "accelerator_type:H100": 0.001, "memory": 1.5 * 2**30}
    assert asked.selector == {"zone": "a"}
