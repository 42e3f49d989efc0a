"""The axis ``rows``: whole rows of a study, where settings of several sections belong together."""

from __future__ import annotations

from pathlib import Path

import pytest

from config_study import BASE as WHOLE
from config_study import load, problems
from memsweep.config.schema.study import SweepConfig

BASE = WHOLE.replace(", parameterization: direct", "")
GRID = """
grid:
  rows:
    - {model: diagonal_rnn, training: {learning_rate: 0.1}}
    - {model: {name: vanilla_rnn, activation: relu}, training: {learning_rate: 0.2, clip: 1}, task: {rate: 2.0}}
  task.horizon: [50, 20]
"""


def _told(sweep: SweepConfig) -> list[tuple[str, float, float, float, int]]:
    return [(row.model.name, row.training.learning_rate, row.training.clip, row.task.rate, row.task.horizon)
            for row in sweep.rows]  # fmt: skip


def test_a_row_sets_fields_of_several_sections_over_the_base(tmp_path: Path) -> None:
    sweep = load(tmp_path, BASE + GRID)
    rows = [("diagonal_rnn", 0.1, 0.5, 0.5), ("vanilla_rnn", 0.2, 1.0, 2.0)]
    assert _told(sweep) == [(*row, horizon) for row in rows for horizon in (50, 20)]
    assert {row.model.width for row in sweep.rows} == {4}  # the base's
    assert sweep.rows[2].model.activation == "relu"


def test_other_axes_lie_over_the_rows(tmp_path: Path) -> None:
    sweep = load(tmp_path, BASE + GRID, "training.learning_rate=0.3,0.4", "task.horizon=50")
    assert [found[:2] for found in _told(sweep)] == [
        (name, rate) for name in ("diagonal_rnn", "vanilla_rnn") for rate in (0.3, 0.4)
    ]


def test_rows_that_differ_in_a_field_that_becomes_an_axis_are_one(tmp_path: Path) -> None:
    """The printed advice names more widths (``extend STUDY model.width=...``), where rows pair widths with horizons."""
    sizes = [(4, 20), (4, 40), (2, 40), (8, 40)]
    rows = [f"    - {{model: {{width: {width}}}, task: {{horizon: {horizon}}}}}\n" for width, horizon in sizes]
    sweep = load(tmp_path, BASE + "grid:\n  rows:\n" + "".join(rows), "model.width=16,32")
    assert [(row.task.horizon, row.model.width) for row in sweep.rows] == [(20, 16), (20, 32), (40, 16), (40, 32)]
    named = "{name: diagonal_rnn, width: 2}, {name: diagonal_rnn, width: 4}, vanilla_rnn, {name: vanilla_rnn, width: 2}"
    models = f"grid:\n  model: [{named}]\n"
    crossed = load(tmp_path, BASE + models, "model.width=3,5").rows
    assert [(row.model.name, row.model.width) for row in crossed] == [
        (name, width) for name in ("diagonal_rnn", "vanilla_rnn") for width in (3, 5)
    ]


def test_an_axis_of_text_beside_rows_of_its_section_stays_text(tmp_path: Path) -> None:
    axes = "  task.kernel: [exponential, shift]\n  model.parameterization: [exp, direct]\n"
    small, large = "{task: {horizon: 20}, model: {width: 2}}", "{task: {horizon: 40}, model: {width: 3}}"
    rows = f"grid:\n  rows:\n    - {small}\n    - {large}\n"
    sweep = load(tmp_path, BASE.replace("rate: 0.5", "dt: 0.5") + rows + axes, "training.steps=3")
    assert [row.task.kernel for row in sweep.rows] == ["exponential", "exponential", "shift", "shift"] * 2
    assert [row.model.parameterization.name for row in sweep.rows] == ["exp", "direct"] * 4
    assert [row.task.horizon for row in sweep.rows] == [20] * 4 + [40] * 4
    rates = load(
        tmp_path, BASE + rows.replace("width: 2", "parameterization: {name: exp}"), "model.activation=tanh,linear"
    )
    assert [row.model.activation for row in rates.rows] == ["tanh", "linear"] * 2


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.learning_rate=0.1", [("diagonal_rnn", 0.1, 0.5, 0.5)]),  # the rows that agree
        ("training.learning_rate=0.7", [("diagonal_rnn", 0.7, 0.5, 0.5), ("vanilla_rnn", 0.7, 1.0, 2.0)]),
        ("training.clip=3", [("diagonal_rnn", 0.1, 3.0, 0.5), ("vanilla_rnn", 0.2, 3.0, 2.0)]),
        ("model.name=vanilla_rnn", [("vanilla_rnn", 0.2, 1.0, 2.0)]),
        ("model=vanilla_rnn", [("vanilla_rnn", 0.2, 1.0, 2.0)]),
        ("model=lru", [("lru", 0.1, 0.5, 0.5), ("lru", 0.2, 1.0, 2.0)]),  # the rows keep what is not the model's
        ("~grid.rows", [("diagonal_rnn", 0.01, 0.5, 0.5)]),
    ],
)
def test_an_override_wins_over_the_rows(tmp_path: Path, override: str, expected: list[object]) -> None:
    sweep = load(tmp_path, BASE + GRID, override, "task.horizon=50")
    assert [found[:4] for found in _told(sweep)] == expected


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("[]", "must be a list of rows"),
        ("[vanilla_rnn]", 'got "vanilla_rnn"'),
        ("[{modl: vanilla_rnn}]", "each a mapping of sections (task, model,"),
        ("[{training: {lerning_rate: 0.1}}]", "Did you mean 'learning_rate'?"),
        ("[{model: vanilla_rnn}, {model: vanilla_rnn}]", "names a value twice"),
    ],
)
def test_a_wrong_row_is_told(tmp_path: Path, rows: str, words: str) -> None:
    assert any(words in text for text in problems(tmp_path, f"{BASE}grid: {{rows: {rows}}}"))


def test_a_field_of_the_rows_cannot_be_searched_too(tmp_path: Path) -> None:
    search = "search: {training.learning_rate: {log_uniform: [1e-3, 1e-1]}, trials: 4}"
    told = problems(tmp_path, BASE + GRID + search)
    assert any("is set by the axis rows of the grid, too" in text for text in told)
    assert not problems(tmp_path, BASE + GRID + search.replace("learning_rate", "margin_penalty"))


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ("model.width: [2, 3], rows: [{model: {width: 7}}, {model: {width: 9}}]", "grid.model.width: is set by the"),
        ("task: [{kernel: exponential, horizon: 3}, {kernel: shift}], task.horizon: [5, 6]", "set by the axis task"),
        ("model: [{name: vanilla_rnn, width: 2}], rows: [{model: {width: 7}}]", "grid.model: model.width is"),
        ("model: [vanilla_rnn], rows: [{model: {name: ssm}}]", "grid.model: is set by the axis rows"),
    ],
)
def test_no_axis_replaces_a_value_that_rows_or_a_group_make(tmp_path: Path, grid: str, words: str) -> None:
    assert any(words in text for text in problems(tmp_path, f"{BASE}grid: {{{grid}}}"))


def test_rows_of_the_command_line_lose_no_value_to_an_axis_of_the_file(tmp_path: Path) -> None:
    told = problems(tmp_path, BASE + "grid: {model.width: [2, 3]}", "grid.rows=[{model: {width: 7}}]")
    assert any("grid.model.width: is set by the axis rows" in text for text in told)


def test_an_axis_may_repeat_what_rows_say(tmp_path: Path) -> None:
    found = load(tmp_path, BASE + "grid: {model.width: [7], rows: [{model: {width: 7}}, {task: {horizon: 50}}]}").rows
    assert [(row.model.width, row.task.horizon) for row in found] == [(7, 20), (7, 50)]


def test_an_override_may_empty_a_row(tmp_path: Path) -> None:
    grid = "grid: {rows: [{training: {learning_rate: 0.1}}, {model: vanilla_rnn}]}"
    sweep = load(tmp_path, BASE + grid, "training.learning_rate=0.7")
    assert [found[:2] for found in _told(sweep)] == [("diagonal_rnn", 0.7), ("vanilla_rnn", 0.7)]


def test_an_axis_of_names_leaves_the_fields_that_rows_set(tmp_path: Path) -> None:
    grid = "grid: {model: [diagonal_rnn, vanilla_rnn], rows: [{model: {width: 3}}, {model: {width: 5}}]}"
    found = [(row.model.name, row.model.width) for row in load(tmp_path, BASE + grid).rows]
    assert found == [("diagonal_rnn", 3), ("diagonal_rnn", 5), ("vanilla_rnn", 3), ("vanilla_rnn", 5)]


def test_claims_name_the_parts_of_rows(tmp_path: Path) -> None:
    each = ("{{metric: error, direction: less, left: {{{0}: vanilla_rnn}}, right: {{{0}: diagonal_rnn}}}}").format
    claims = f"claims: [{each('model')}, {each('model.name')}]\n"
    found = load(tmp_path, BASE + claims + GRID).claims
    assert found is not None
    assert [comparison.left for comparison in found.compare] == [
        {"model": "vanilla_rnn"},
        {"model.name": "vanilla_rnn"},
    ]
    assert all(comparison.same == ("task.horizon",) for comparison in found.compare)
    twice = GRID.replace("  task.horizon", "    - {model: {name: vanilla_rnn, activation: tanh}}\n  task.horizon")
    (told, _) = problems(tmp_path, BASE + claims + twice)
    assert "several cells of one side differ in" in told
    assert "model.activation" in told


def test_a_chain_runs_along_no_rows(tmp_path: Path) -> None:
    told = problems(tmp_path, f"{BASE}chain: {{along: rows, first: 1.0}}{GRID}")
    assert any("whole rows have no order" in text for text in told)
    told = problems(tmp_path, f"{BASE}grid: {{rows: [{{chain: {{along: model.width, first: 1.0}}}}]}}")
    assert any("must be a list of rows" in text for text in told)
