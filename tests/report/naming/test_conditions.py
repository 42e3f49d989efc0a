"""Conditions of a study: which fields tell them apart, and which go with width or horizon."""

from __future__ import annotations

from typing import Any

from memsweep.report.naming.conditions import Grouping, Labels, find_grouping, planned_replicas

WIDTHS = {"lru": 12, "lstm": 11, "s6": 52}
"""Of a budget of parameters."""


def config(unit: str, horizon: int, **training: Any) -> dict[str, Any]:
    task = {"name": "linear_functional", "kernel": "exponential", "horizon": horizon}
    model = {"name": "residual_stack", "width": WIDTHS[unit], "unit": {"name": unit}}
    return {"task": task, "model": model, "training": {"seeds": 2, "first_seed": 0, **training}}


def grouped(configs: list[dict[str, Any]]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Columns, coupled fields, and how many conditions there are."""
    known = {f"{place:032x}": one for place, one in enumerate(configs)}
    grouping = find_grouping({name: {"config": one} for name, one in known.items()}, planned_replicas(known))
    return grouping.columns, grouping.coupled, len([*grouping.members()])


def test_units_that_a_budget_gives_widths_of_their_own_are_conditions() -> None:
    configs = [config(unit, horizon) for unit in WIDTHS for horizon in (6, 12)]
    columns, coupled, conditions = grouped(configs)
    assert columns == ("task", "task.kernel", "model", "model.unit")
    assert coupled == ()
    assert conditions == len(WIDTHS)


def test_a_number_that_follows_from_a_size_is_no_condition() -> None:
    configs = [config(unit, horizon, steps=100 * horizon) for unit in WIDTHS for horizon in (6, 12)]
    columns, coupled, conditions = grouped(configs)
    assert "training.steps" not in columns
    assert coupled == ("training.steps",)
    assert conditions == len(WIDTHS)


def test_two_folders_of_data_are_two_conditions() -> None:
    configs = [config("lru", horizon) for horizon in (6, 12, 6, 12)]
    for one, folder in zip(configs, ("a", "a", "b", "b"), strict=True):
        one["task"]["folder"] = folder
    columns, _, conditions = grouped(configs)
    assert "task.folder" in columns
    assert conditions == 2


def test_fields_whose_last_words_are_alike_have_longer_names() -> None:
    own = "training.groups.orthogonal.learning_rate"
    told: dict[str, tuple[str, float | None]] = {
        "rnn": ("1e-4", None),
        "exp_rnn": ("5e-4", 5e-5),
        "nn_rnn": ("2e-4", 2e-5),
    }
    conditions = [
        {"task": "mqar", "model": model, "training.learning_rate": rate, own: group}
        for model, (rate, group) in told.items()
    ]
    assert Labels(conditions).also_differ() == (
        "Conditions also differ in training.learning_rate (1e-4: rnn; 5e-4: exp_rnn; 2e-4: nn_rnn) and "
        "orthogonal.learning_rate (5e-05: exp_rnn; 2e-05: nn_rnn)."
    )
    alone = [{name: value for name, value in each.items() if name != own} for each in conditions]
    assert "differ in learning_rate (" in Labels(alone).also_differ()
    crossed = [
        {"task": "mqar", "model": "rnn", "model.rate": one, "model.unit.rate": two} for one in (1, 2) for two in (3, 4)
    ]
    assert Labels(crossed).machine(crossed[0]) == "model.rate 1 · unit.rate 3"
    fixed = {"task": "mqar", "task.dt": 1.0, "model.dt": 2.0}
    assert Grouping({}, (), (), fixed).throughout() == {"task": "mqar", "task.dt": "1", "model.dt": "2"}


def test_a_group_that_some_conditions_have_is_told() -> None:
    decay = "training.groups.triangle.weight_decay"
    conditions = [{"task": "mqar", "model": "rnn", decay: None}, {"task": "mqar", "model": "nn_rnn", decay: 1e-4}]
    assert Labels(conditions).also_differ() == "Conditions also differ in triangle.weight_decay (0.0001: nn_rnn)."
