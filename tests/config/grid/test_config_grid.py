"""The rows of a grid: order, groups, dependent fields, and mistakes told once with the values that cause them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_study import BASE, load, only, problems, scaled_parameterization
from memsweep.config.grid.expand import expand
from memsweep.config.schema.study import SweepConfig


def _tasks(sweep: SweepConfig) -> list[tuple[str, float | None, float | None]]:
    return [(row.task.kernel, row.task.rate, row.task.exponent) for row in sweep.rows]


def test_every_combination_is_a_row_and_the_last_axis_is_the_fastest(tmp_path: Path) -> None:
    grid = "grid: {task.horizon: [50, 20], model: {parameterization: [exp, direct], width: [2, 4]}}"
    sweep = load(tmp_path, BASE + grid)
    found = [(row.task.horizon, row.model.parameterization.name, row.model.width) for row in sweep.rows]
    assert found == list(itertools.product([50, 20], ["exp", "direct"], [2, 4]))
    assert sweep.grid == {
        "task.horizon": (50, 20),
        "model.parameterization": ("exp", "direct"),
        "model.width": (2, 4),
    }


def test_a_study_without_a_grid_is_one_row(tmp_path: Path) -> None:
    for grid in ("", "grid: {}", "grid: null"):
        assert only(load(tmp_path, BASE + grid).rows).task.rate == 0.5


def test_a_kernel_brings_its_own_defaults(tmp_path: Path) -> None:
    group = """
grid:
  task: [{kernel: exponential}, {kernel: polynomial}, {kernel: polynomial, exponent: 2.0}, {kernel: shift}]
"""
    expected = [("exponential", 0.5, None), ("polynomial", 0.1, 1.1), ("polynomial", 0.1, 2.0), ("shift", None, None)]
    assert _tasks(load(tmp_path, BASE + group)) == expected  # the base's rate stays with the base's kernel alone
    leaf = "grid: {task.kernel: [exponential, polynomial, shift]}"
    assert _tasks(load(tmp_path, BASE + leaf)) == [expected[0], expected[1], expected[3]]


def test_the_default_choice_counts_as_the_base_choice(tmp_path: Path) -> None:
    base = BASE.replace("kernel: exponential, ", "")  # exponential is the default
    assert _tasks(load(tmp_path, base + "grid: {task.kernel: [exponential, shift]}")) == [
        ("exponential", 0.5, None),
        ("shift", None, None),
    ]


@pytest.mark.parametrize("order", [("task.rate", "task.kernel"), ("task.kernel", "task.rate")])
def test_a_dependent_field_that_is_swept_is_kept(tmp_path: Path, order: tuple[str, str]) -> None:
    values = {"task.rate": "[2.0, 3.0]", "task.kernel": "[exponential, polynomial]"}
    sweep = load(tmp_path, BASE + f"grid: {{{', '.join(f'{path}: {values[path]}' for path in order)}}}")
    assert sorted(_tasks(sweep)) == [
        ("exponential", 2.0, None),
        ("exponential", 3.0, None),
        ("polynomial", 2.0, 1.1),
        ("polynomial", 3.0, 1.1),
    ]


def test_groups_apply_before_the_fields_inside_them(tmp_path: Path) -> None:
    grid = "grid: {task.horizon: [5, 6], task: [{kernel: airy}, {kernel: sine}]}"
    sweep = load(tmp_path, BASE + grid)
    assert [(row.task.horizon, row.task.kernel) for row in sweep.rows] == [
        (5, "airy"),
        (5, "sine"),
        (6, "airy"),
        (6, "sine"),
    ]


def test_a_part_and_its_fields_are_axes(tmp_path: Path) -> None:
    with scaled_parameterization():
        grid = "grid: {model.parameterization.scale: [1.0, 2.0], model.parameterization: [{name: scaled, shift: 3.0}]}"
        sweep = load(tmp_path, BASE + grid)
        found = [(row.model.parameterization.scale, row.model.parameterization.shift) for row in sweep.rows]
        assert found == [(1.0, 3.0), (2.0, 3.0)]
        mixed = "grid: {model.parameterization: [exp, scaled], model.parameterization.scale: [1.0, 2.0]}"
        found = only(problems(tmp_path, BASE + mixed))
        assert found.startswith("grid.model.parameterization.scale: names no field: the parameterization exp has no")
        assert 'with model.parameterization="exp"' in found


def test_a_nested_section_is_an_axis(tmp_path: Path) -> None:
    sweep = load(tmp_path, BASE + "grid: {perturbation.radii: [{count: 5}, {to: 2}], perturbation.balls: [[all]]}")
    radii = [row.perturbation.radii for row in sweep.rows]
    assert [(one.count, one.to) for one in radii] == [(5, 3.0), (30, 2.0)]


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ("{modle.width: [2]}", "grid.modle.width: no such field. Did you mean 'model'?"),
        (
            "{model.widht: [2]}",
            "grid.model.widht: names no field: the model diagonal_rnn has no field 'widht'. Did you",
        ),
        ("{task.horizon.x: [2]}", "grid.task.horizon.x: names no field: task.horizon has no fields below it"),
        ("{training.radii.to: [2]}", "grid.training.radii.to: names no field: training has no field 'radii'"),
        (
            "{resources.cpus: [1, 2]}",
            "grid.resources.cpus: holds for the whole study and cannot be swept. Rules give some trials other ones",
        ),
        ("{model.width: 4}", "grid.model.width: must be a list of the values to try: [...], got 4"),
        ("{model.width: []}", "grid.model.width: is empty"),
        ("{model.width: [2, 4, 2]}", "grid.model.width: names a value twice: 2"),
        ("{task: [{kernel: shift}, {kernel: shift}]}", "grid.task: names a value twice"),
        ("{model.width: [4], model: {width: [2]}}", "grid.model.width: is written twice"),
        ("[2]", "grid: must be a mapping of dotted paths"),
    ],
)
def test_a_wrong_axis_is_told(tmp_path: Path, grid: str, words: str) -> None:
    assert only(problems(tmp_path, BASE + f"grid: {grid}")).startswith(words)


def test_equal_rows_are_told_once(tmp_path: Path) -> None:
    grid = "grid: {task: [{kernel: exponential}, {kernel: exponential, rate: 0.5}], model.width: [2, 4]}"
    found = only(problems(tmp_path, BASE + grid))
    assert found.startswith("grid: 2 trials repeat an earlier trial")
    assert only(problems(tmp_path, BASE + "grid: {task.dt: [1, 1.0]}")).startswith("grid: 1 trials repeat")


def test_a_mistake_in_an_axis_is_told_once_for_all_its_rows(tmp_path: Path) -> None:
    grid = "grid: {model.width: [0, 2, 4], model.dt: [1.0, 2.0], training.steps: [-1, 5], task.horizon: [9, 8]}"
    assert problems(tmp_path, BASE + grid) == [
        "model.width: must be at least 1, got 0 (in the grid).",
        "training.steps: must be at least 0, got -1 (in the grid).",
    ]


def test_many_wrong_values_are_one_line(tmp_path: Path) -> None:
    found = only(problems(tmp_path, BASE, "model.width=range(-9999,0)"))
    assert (
        found == "model.width: must be at least 1, got -9999, -9998, -9997, -9996, -9995, and 9994 more (in the grid)."
    )


def test_a_row_mistake_names_the_values_that_cause_it(tmp_path: Path) -> None:
    grid = "grid: {task: [{kernel: sine}, {kernel: shift, rate: 2.0}], task.dt: [1.0, 0.5], model.width: [1, 2]}"
    found = only(problems(tmp_path, BASE + grid))
    assert "the kernel shift has no rate" in found
    assert found.endswith('(in the grid, with task={"kernel": "shift", "rate": 2.0}).')


def test_a_mistake_of_the_base_is_not_told_again_for_every_row(tmp_path: Path) -> None:
    found = only(problems(tmp_path, BASE + "training: {steps: x}\ngrid: {training.seeds: [1, 2], model.width: [1, 2]}"))
    assert found == 'training.steps: must be a whole number, got "x".'


def test_what_the_base_leaves_out_an_axis_may_give(tmp_path: Path) -> None:
    base = "model: diagonal_rnn\n"
    assert len(load(tmp_path, base + "grid: {task: [linear_functional, {name: linear_functional, dt: 2}]}").rows) == 2
    assert only(problems(tmp_path, base + "grid: {task: [{dt: 2}, linear_functional]}")).startswith(
        "task.name: is required"
    )


def test_too_many_rows_are_refused(tmp_path: Path) -> None:
    count = only(problems(tmp_path, BASE, "model.width=range(0,1001)", "training.seeds=range(1,1001)"))
    assert count.startswith("grid: has 1,001,000 trials (1001 x 1000), more than 1,000,000")


@given(
    st.dictionaries(
        st.sampled_from(
            ["task", "task.kernel", "task.rate", "model.width", "model.parameterization", "training.x", "model"]
        ),
        st.lists(
            st.integers(-1, 3)
            | st.sampled_from(["shift", "exponential", "exp", "nope"])
            | st.dictionaries(st.sampled_from(["kernel", "rate", "width", "name"]), st.sampled_from(["sine", 2, 0.5])),
            min_size=1,
            max_size=3,
        ),
        max_size=3,
    )
)
@settings(max_examples=150, deadline=None)
def test_any_axes_give_rows_or_problems(axes: dict[str, list[object]]) -> None:
    found: list[str] = []
    base = {"task": {"name": "linear_functional", "rate": 0.5}, "model": "diagonal_rnn"}
    rows = expand(base, {path: tuple(values) for path, values in axes.items()}, found)
    if not found:
        expected = 1
        for values in axes.values():
            expected *= len(values)
        assert len(rows) == len(set(rows)) == expected
