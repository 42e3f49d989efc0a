"""The sections ``search`` and ``confirm`` of a study: what they mean, what overrides make of them, how they stay."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_study import BASE, load, load_plain, only, problems
from memsweep import registry
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.search import ConfirmConfig, Domain, Search
from memsweep.config.schema.study import SweepConfig
from memsweep.config.schema.training import Turn
from memsweep.config.search.domains import domain_to_plain, read_domain
from memsweep.config.search.sections import (
    modes,
    search_from_dict,
    search_to_dict,
)
from memsweep.config.search.suggestion import config_of, fixed_of, fresh_first_seed, plain_at, with_fresh_seeds
from memsweep.errors import ConfigError
from memsweep.reference.describe import describe
from memsweep.search.suggest.space import draw_all
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.plan_file import read_plan, write_plan
from paths import ROOT

WHOLE = f"""{BASE}
training: {{steps: 500}}
grid: {{model.width: [4, 8]}}
search:
  training.learning_rate: {{log_uniform: [1e-4, 1e-1]}}
  model.activation: {{choice: [linear, tanh]}}
  training: {{weight_decay: {{uniform: [0, 0.1], when: {{model.activation: tanh}}}}}}
  trials: 30
  objective: validation_loss
  scheduler: asha
confirm: {{seeds: 10}}
"""
SMALL = f"{BASE}\nsearch: {{training.learning_rate: {{log_uniform: [1e-4, 1e-1]}}}}\n"
RATE = Domain("log_uniform", 1e-4, 1e-1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SweepConfig:
    return load(tmp_path_factory.mktemp("whole"), WHOLE)


def searched(sweep: SweepConfig) -> Search:
    assert sweep.search is not None
    return sweep.search


def test_the_form_of_a_study(whole: SweepConfig) -> None:
    sweep, search = whole, searched(whole)
    assert search.space == {
        "training.learning_rate": RATE,
        "model.activation": Domain("choice", values=("linear", "tanh")),
        "training.weight_decay": Domain("uniform", 0.0, 0.1, when={"model.activation": ("tanh",)}),
    }
    assert (search.settings.trials, search.settings.scheduler.name, modes(search)) == (30, "asha", ("min",))
    assert [row.model.width for row in sweep.rows] == [4, 8]
    assert [row.training.learning_rate for row in sweep.rows] == [0.01, 0.01]  # the default stands in a cell
    assert sweep.confirm == ConfirmConfig(seeds=10)


@pytest.mark.parametrize(
    ("overrides", "path", "value"),
    [
        (["search.trials=40"], "settings.trials", 40),
        (["search.scheduler.grace=100"], "settings.scheduler.grace", 100),
        (["search.scheduler=hyperband"], "settings.scheduler.name", "hyperband"),
        (["search.scheduler=none", "search.objective=[error,margin]"], "settings.objective", ("error", "margin")),
        (["search={trials: 7}"], "settings.trials", 7),
    ],
)
def test_overrides_of_settings(tmp_path: Path, overrides: list[str], path: str, value: Any) -> None:
    found: Any = searched(load(tmp_path, WHOLE, *overrides))
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value


@pytest.mark.parametrize(
    ("overrides", "changed"),
    [
        ("search.training.learning_rate={log_uniform:[1e-3,1e-1]}", {"training.learning_rate": ("log_uniform", 1e-3)}),
        ("search.training.learning_rate.uniform=[0.01,0.1]", {"training.learning_rate": ("uniform", 0.01)}),
        ("search.training.weight_decay.uniform=[0.01,0.1]", {"training.weight_decay": ("uniform", 0.01)}),
        ("search={training: {clip: {uniform: [0.1, 1]}}}", {"training.clip": ("uniform", 0.1)}),
        ("~search.training.weight_decay", {"training.weight_decay": None}),
        ("training.learning_rate=0.02", {"training.learning_rate": None}),
        ("training.learning_rate=0.02,0.03", {"training.learning_rate": None}),
    ],
)
def test_overrides_of_the_space(whole: SweepConfig, tmp_path: Path, overrides: str, changed: dict[str, Any]) -> None:
    before, after = searched(whole).space, searched(load(tmp_path, WHOLE, overrides)).space
    assert {path: after[path] for path in after if path not in changed} == {
        path: before[path] for path in before if path not in changed
    }
    for path, value in changed.items():
        assert ((after[path].kind, after[path].low) if path in after else None) == value
        assert path not in after or path not in before or after[path].when == before[path].when


def test_a_field_that_is_set_is_searched_no_more(tmp_path: Path) -> None:
    sweep = load(tmp_path, WHOLE, "training.learning_rate=0.02")
    assert {row.training.learning_rate for row in sweep.rows} == {0.02}
    assert load(tmp_path, WHOLE, "training.learning_rate=0.02,0.03").grid["training.learning_rate"] == (0.02, 0.03)
    assert "searches nothing" in only(problems(tmp_path, SMALL, "training.learning_rate=0.02"))


def test_a_wrong_setting_hides_no_wrong_field(tmp_path: Path) -> None:
    told = problems(
        tmp_path,
        SMALL,
        "search.algorithm=bayes",
        "search.training.stepz={int: [1, 9]}",
        "search.training.clip={loguniform: [1, 2]}",
    )
    assert len(told) == 3
    for word in ('got "bayes"', "Did you mean 'steps'?", "[1, 2]} (did you mean 'log_uniform'?)."):
        assert any(word in text for text in told), word


def test_a_search_taken_out_or_put_in(whole: SweepConfig, tmp_path: Path) -> None:
    plain = load(tmp_path, WHOLE, "~search", "~confirm")
    assert (plain.search, plain.confirm) == (None, None)
    assert plain.rows == whole.rows
    assert "no search" in only(problems(tmp_path, WHOLE, "~search"))
    put_in = load(tmp_path, BASE, "search.training.clip={uniform:[0.1,1]}", "confirm.top=3")
    assert searched(put_in).space == {"training.clip": Domain("uniform", 0.1, 1.0)}
    assert put_in.confirm == ConfirmConfig(top=3)


@pytest.mark.parametrize(
    ("override", "fragment"),
    [
        ("search.trials=1,2", "lists values for a search"),
        ("~search.training.clip", "removes a setting that the search does not have"),
        ("search.trails=3", "Did you mean 'trials'?"),
        ("confirm.seeds=2,3", "holds for the whole study and cannot be swept"),
    ],
)
def test_overrides_that_are_refused(tmp_path: Path, override: str, fragment: str) -> None:
    assert fragment in only(problems(tmp_path, WHOLE, override))


def test_fresh_seeds_come_after_all_of_the_search(whole: SweepConfig) -> None:
    first = whole.rows[0]
    other = with_fresh_seeds(first, 4, 100)
    assert (other.training.seeds, other.training.first_seed, other.training.data_seed) == (4, 100, 1)
    assert dataclasses.replace(other, training=first.training) == first
    assert fresh_first_seed([first, other]) == 104


def test_a_suggestion_is_laid_over_a_cell_like_an_entry_of_a_grid(tmp_path: Path) -> None:
    values: dict[str, Any] = {"task.kernel": "polynomial", "model.activation": "tanh", "training.learning_rate": 0.5}
    grid = {path: [value] for path, value in values.items()}
    cell = only(load(tmp_path, BASE + "training: {steps: 500}").rows)
    as_grid = only(load(tmp_path, BASE + f"training: {{steps: 500}}\ngrid: {json.dumps(grid)}").rows)
    assert config_of(cell, values) == as_grid
    assert as_grid.training.amplitude_penalty != cell.training.amplitude_penalty  # it follows from the activation
    assert config_of(cell, {}) == cell
    part = config_of(cell, {"model.parameterization.b": 0.25, "model.parameterization": "best"}).model.parameterization
    assert (part.name, part.a, part.b) == ("best", 1.0, 0.25)
    with pytest.raises(
        ConfigError, match=r"suggestion training.clip=-1:\n.*training.clip: must be at least 0.0, got -1"
    ):
        config_of(cell, {"training.clip": -1})


def test_the_stage_of_a_suggestion_is_in_its_config(whole: SweepConfig) -> None:
    turn = Turn(until=100, learning_rate=0.1, weight_decay=0.0, clip=1.0, amplitude_penalty=0.0, margin_penalty=0.0)
    config = config_of(whole.rows[0], {"training.learning_rate": 0.02}, until=200, turns=[turn])
    assert (config.training.until, config.training.turns) == (200, (turn,))
    assert config_of(config, {"training.clip": 2.0}).training.turns == (turn,)


def test_what_conditions_see_of_a_cell(whole: SweepConfig) -> None:
    space = {"training.clip": Domain("uniform", 1, 2, when={"model.width": (4,), "model.state_size": (2,)})}
    assert fixed_of(whole.rows[0], space) == {"model.width": 4}
    assert plain_at(whole.rows[0], "model.parameterization") == "direct"
    assert plain_at(whole.rows[0], "model.name") == "diagonal_rnn"
    on_best = Domain("uniform", 1, 2, when={"model.parameterization": ("best",)})
    assert on_best.applies({"model.parameterization": {"name": "best", "a": 1.0}})
    assert not on_best.applies({"model.parameterization": "exp"})
    assert not on_best.applies({})
    assert not Domain("choice", values=(1, 2)).contains(True)


numbers = st.floats(1e-9, 1e9, allow_nan=False)
values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
conditions = st.dictionaries(st.sampled_from(["model.width", "task.kernel"]), st.lists(values, min_size=1).map(tuple))


@given(st.sampled_from(["uniform", "log_uniform"]), st.lists(numbers, min_size=2, max_size=2, unique=True), conditions)
@settings(max_examples=30, deadline=None)
def test_an_interval_survives_the_way_through_json(kind: str, ends: list[float], when: dict[str, Any]) -> None:
    survives(Domain(kind, *sorted(ends), when=when))


@given(st.lists(values, min_size=1, max_size=4, unique_by=json.dumps), conditions)
@settings(max_examples=30, deadline=None)
def test_a_choice_survives_the_way_through_json(choices: list[Any], when: dict[str, Any]) -> None:
    survives(Domain("choice", values=tuple(choices), when=when))


def survives(domain: Domain) -> None:
    found: list[str] = []
    again = read_domain("training.clip", json.loads(json.dumps(domain_to_plain(domain))), found)
    assert (again, found) == (domain, [])
    assert again is not None
    assert repr(again) == repr(domain)


def test_a_plan_holds_the_search(tmp_path: Path, whole: SweepConfig) -> None:
    assert search_from_dict(json.loads(json.dumps(search_to_dict(searched(whole))))) == whole.search
    suggested = dataclasses.replace(whole, rows=tuple(config_of(row, {"training.clip": 0.7}) for row in whole.rows))
    write_plan(tmp_path, make_plan(whole, identified(suggested), ()), {})
    plan = read_plan(tmp_path)
    assert plan is not None
    assert [row["training"]["clip"] for row in plan.rows.values()] == [0.7, 0.7]
    assert list(plan.cells) == [to_dict(row) for row in whole.rows]
    assert plan.sweep() == whole


def test_describe_says_what_can_be_set() -> None:
    registry.discover(ROOT)
    (search,), (confirm,) = describe("search", ROOT), describe("confirm", ROOT)
    assert "{log_uniform: [low, high]}" in search["meaning"]
    assert "fresh seeds of each winner" in [field["meaning"] for field in confirm["fields"]]


DOMAINS: dict[str, list[dict[str, Any]]] = {
    "training.clip": [{"uniform": [0.1, 1]}, {"choice": [1, 2.5]}],
    "training": [{"choice": [{"clip": 2}, {"weight_decay": 0.1}]}],
    "training.objective": [{"choice": ["minibatch", "population"]}],
    "training.amplitude_penalty": [{"choice": [0.01, 0.02]}, {"log_uniform": [1e-4, 1]}],
    "training.weight_decay": [{"uniform": [0, 1], "when": {"model.activation": "tanh"}}, {"uniform": [0, 1]}],
    "model": [{"choice": ["lru", "diagonal_rnn"]}, {"choice": [{"name": "lru", "width": 3}, {"name": "ssm"}]}],
    "model.name": [{"choice": ["lru", "dense_rnn", "vanilla_rnn"]}, {"choice": ["dense_rnn", "diagonal_rnn"]}],
    "model.width": [{"int": [1, 4]}, {"log_int": [2, 200]}, {"choice": [3, 9]}],
    "model.activation": [{"choice": ["tanh", "linear"]}, {"choice": ["relu"]}],
    "model.parameterization": [{"choice": ["exp", "best"]}, {"choice": [{"name": "best", "a": 2.0}, "softplus"]}],
    "model.parameterization.a": [{"uniform": [1, 2], "when": {"model.parameterization": "best"}}],
    "task.kernel": [{"choice": ["polynomial", "exponential"]}],
    "task.rate": [{"uniform": [0.1, 1]}],
    "task.exponent": [{"uniform": [1.1, 2], "when": {"task.kernel": "polynomial"}}],
}
AXES: dict[str, list[list[Any]]] = {
    "model": [["lru", "diagonal_rnn"], [{"width": 3}, {"width": 5}]],
    "model.width": [[3, 4]],
    "model.activation": [["tanh", "linear"]],
    "task.kernel": [["polynomial", "exponential"]],
    "task.rate": [[0.1, 0.3]],
    "training.amplitude_penalty": [[0.01, 0.1]],
}


def some(known: dict[str, list[Any]], least: int, most: int) -> st.SearchStrategy[dict[str, Any]]:
    paths = st.lists(st.sampled_from(sorted(known)), min_size=least, max_size=most, unique=True)
    return paths.flatmap(lambda chosen: st.fixed_dictionaries({path: st.sampled_from(known[path]) for path in chosen}))


@pytest.mark.more
@given(some(DOMAINS, 1, 4), some(AXES, 0, 2), st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_what_is_accepted_makes_legal_trials_and_keeps_cells_apart(space: Any, grid: Any, seed: int) -> None:
    registry.discover(ROOT)
    base = {"task": {"name": "linear_functional", "kernel": "exponential"}, "model": {"name": "diagonal_rnn"}}
    try:
        sweep = load_plain({**base, "search": space, "grid": grid})
    except ConfigError:
        return
    random = np.random.default_rng(seed)
    search, cells = sweep.search, sweep.rows
    assert search is not None
    for cell in cells:
        values = draw_all(search.space, fixed_of(cell, search.space), random)
        assert values
        trial = config_of(cell, values)
        for other in cells:
            if other is not cell and fixed_of(other, search.space) == fixed_of(cell, search.space):
                assert config_of(other, values) != trial
