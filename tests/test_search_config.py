"""The sections ``search`` and ``confirm`` of a study: what they mean, what overrides make of them, what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_study import BASE, ROOT, load, only, problems
from memsweep import registry
from memsweep.config.axes import flattened
from memsweep.config.canonical import to_dict
from memsweep.config.compose import _build
from memsweep.config.describe import describe
from memsweep.config.domains import domain_to_plain, read_domain
from memsweep.config.schema import SweepConfig, TrialConfig, Turn
from memsweep.config.search import ConfirmConfig, Domain, Search
from memsweep.config.search_space import tried
from memsweep.config.searching import (
    confirm_data_seed,
    confirm_first_seed,
    modes,
    search_from_dict,
    search_to_dict,
)
from memsweep.config.suggested import config_of, fixed_of, fresh, plain_at
from memsweep.errors import ConfigError
from memsweep.search.space import draw_all
from memsweep.sweep.plan import identified, make_plan
from memsweep.sweep.plan_file import read_plan, write_plan

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
  first: [{{training: {{learning_rate: 0.01}}}}]
confirm: {{seeds: 10}}
"""
SMALL = f"{BASE}\nsearch: {{training.learning_rate: {{log_uniform: [1e-4, 1e-1]}}}}\n"
RATE = Domain("log_uniform", 1e-4, 1e-1)


def refusals(text: str) -> list[str]:
    """What is wrong with a study; read without Hydra, which takes most of the time of ``load``."""
    from omegaconf import OmegaConf

    data: Any = OmegaConf.to_container(OmegaConf.create(text))
    found: list[str] = []
    _build({**data, "grid": flattened(data.get("grid"), found), "search": data.get("search")}, "study", found)
    return found


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
    assert search.first == ({"training.learning_rate": 0.01},)
    assert [row.model.width for row in sweep.rows] == [4, 8]
    assert [row.training.learning_rate for row in sweep.rows] == [0.01, 0.01]  # the default stands in a cell
    assert sweep.confirm == ConfirmConfig(seeds=10)


def test_a_field_that_must_be_given_and_is_searched_makes_a_cell(tmp_path: Path) -> None:
    text = "task: linear_functional\nsearch: {model.name: {choice: [lru, diagonal_rnn]}, model.width: {int: [3, 5]}}"
    cell = only(load(tmp_path, text).rows)
    assert (cell.model.name, cell.model.width) == ("lru", 8)


@pytest.mark.parametrize(
    ("overrides", "path", "value"),
    [
        (["search.trials=40"], "settings.trials", 40),
        (["search.scheduler.grace=100"], "settings.scheduler.grace", 100),
        (["search.scheduler=hyperband"], "settings.scheduler.name", "hyperband"),
        (["search.scheduler=none", "search.objective=[error,margin]"], "settings.objective", ("error", "margin")),
        (["search={trials: 7}"], "settings.trials", 7),
        (["search.first=[]"], "first", ()),
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
    assert searched(sweep).first == ()
    assert load(tmp_path, WHOLE, "training.learning_rate=0.02,0.03").grid["training.learning_rate"] == (0.02, 0.03)
    assert "searches nothing" in only(problems(tmp_path, SMALL, "training.learning_rate=0.02"))


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
        ("~search.training.clip", "takes out what the search does not set"),
        ("search.trails=3", "Did you mean 'trials'?"),
        ("confirm.seeds=2,3", "holds for the whole study and cannot be swept"),
    ],
)
def test_overrides_that_are_refused(tmp_path: Path, override: str, fragment: str) -> None:
    assert fragment in only(problems(tmp_path, WHOLE, override))


REFUSED = [
    # the form
    ("search: 3", "must be a mapping of searched fields"),
    ("search: {trials: 3}", "searches nothing"),
    ("search: {training.clip: 3}", "must be one of {uniform: [low, high]}"),
    ("search: {training.clip: {choose: [1, 2]}}", "Did you mean 'choice'"),
    ("search: {training.clip: {uniform: [1, 2], int: [1, 2]}}", "got uniform and int"),
    ("search: {training.clip: {when: {model.width: 4}}}", "got when alone"),
    ("search: {training.clip: {uniform: [1, 2], wen: {model.width: 4}}}", "Did you mean 'when'"),
    ("search: {training.clip: {uniform: [1, 2]}, training: {clip: {uniform: [1, 2]}}}", "is written twice"),
    ("search: {training.clip: {uniform: [1]}}", "two finite numbers"),
    ("search: {training.clip: {uniform: [1, .inf]}}", "two finite numbers"),
    ("search: {training.clip: {uniform: [true, 2]}}", "two finite numbers"),
    ("search: {training.clip: {uniform: [2, 1]}}", "low end below its high end"),
    ("search: {training.clip: {uniform: [-1.7e308, 1.7e308]}}", "wider than the largest number"),
    ("search: {training.clip: {log_uniform: [0, 1]}}", "must begin above 0"),
    ("search: {model.width: {log_int: [0, 8]}}", "must begin above 0, because logarithms do. Or take int"),
    ("search: {model.width: {int: [1, 2.5]}}", "two whole numbers"),
    ("search: {model.width: {choice: 4}}", "must be a list of the values"),
    ("search: {model.width: {choice: []}}", "is empty"),
    ("search: {model.width: {choice: [4, 8, 4]}}", "names a value twice: 4"),
    # the fields
    ("search: {training.lerning_rate: {uniform: [0.1, 1]}}", "Did you mean 'learning_rate'?"),
    ("search: {model.gamma: {choice: [a, b]}}", "the model diagonal_rnn has no field 'gamma'"),
    (
        "search: {learning_rate: {uniform: [0.1, 1]}, training.clip: {uniform: [1, 2]}}",
        "search.learning_rate: a searched field is written with its section: training.learning_rate.",
    ),
    ("search: {model.width: {uniform: [2, 4]}}", "the field takes whole numbers. Take int"),
    ("search: {training.clip: {log_int: [2, 4]}}", "the field takes fractions. Take log_uniform"),
    ("search: {model.activation: {int: [2, 4]}}", "the field takes none. Take {choice: [...]}"),
    ("search: {model.parameterization: {int: [2, 4]}}", "the field takes none"),
    ("search: {training.clip: {uniform: [0, 1]}}", "training.clip: must be above 0.0, got 0.0"),
    ("search: {training.learning_rate: {uniform: [1, 1e5]}}", "must be at most 10_000"),
    ("search: {model.activation: {choice: [tanh, tan]}}", 'got "tan" (did you mean'),
    ("search: {training.seeds: {int: [1, 4]}}", "counts the replicas"),
    ("search: {training.data_seed: {int: [1, 4]}}", "would find the luckiest"),
    ("search: {training.until: {int: [50, 100]}}", "is set by the scheduler"),
    ("search: {training: {choice: [{first_seed: 3}, {clip: 1}]}}", "training.first_seed chooses the replicas"),
    ("search: {training.checkpoint_every: {int: [50, 100]}}", "cannot change a trial's numbers"),
    ("search: {chain.factor: {uniform: [1, 2]}}", "cannot be searched"),
    ("grid: {model.width: [4, 8]}\nsearch: {model.width: {int: [2, 4]}}", "is set by the axis model.width"),
    ("grid: {model: [{width: 4}, {width: 8}]}\nsearch: {model.width: {int: [2, 4]}}", "is set by the axis model "),
    ("grid: {model: [ssm, dense_rnn]}\nsearch: {model.name: {choice: [ssm, dense_rnn]}}", "is set by the axis model "),
    ("grid: {task.rate: [0.1, 0.2]}\nsearch: {task.kernel: {choice: [polynomial]}}", "Take the axis out of the grid"),
    (
        "training: {amplitude_penalty: 0.01}\nsearch: {model.activation: {choice: [linear, tanh]}}",
        "Search it, too: training.amplitude_penalty: {choice: [0.01]}",
    ),
    ("training: {until: 50}\nsearch: {training.clip: {uniform: [1, 2]}}", "are the scheduler's to set"),
    # conditions
    ("search: {training.clip: {uniform: [1, 2], when: 3}}", "must say where the field is searched"),
    ("search: {training.clip: {uniform: [1, 2], when: {model.width: []}}}", "an empty list"),
    ("search: {training.clip: {uniform: [1, 2], when: {model.widht: 4}}}", "Did you mean 'model.width'?"),
    ("search: {training.clip: {uniform: [1, 2], when: {model.width: 5}}}", "is never 5 in this study: it is 4"),
    (
        "search: {model.activation: {choice: [tanh, relu]}, training.clip: {uniform: [1, 2], when: "
        "{model.activation: linear}}}",
        'is never "linear": it is searched, one of "tanh", "relu"',
    ),
    (
        "search: {training.clip: {uniform: [1, 2], when: {model.width: 4}}, model.width: {int: [2, 8], when: "
        "{training.clip: 1}}}",
        "depend on one another in a circle",
    ),
    (
        "grid: {model.width: [4, 8]}\nsearch: {training.clip: {uniform: [1, 2], when: {model.width: 4}}}",
        "nothing is searched",
    ),
    (
        "grid: {model.width: [4, 8]}\nsearch: {scope: study, training.weight_decay: {uniform: [0, 1]}, training.clip: "
        "{uniform: [1, 2], when: {model.width: 4}}}",
        "differs between the cells",
    ),
    # first suggestions
    ("search: {training.clip: {uniform: [1, 2]}, first: 3}", "search.first: must be a list"),
    ("search: {training.clip: {uniform: [1, 2]}, first: [3]}", "search.first[0]: must be a mapping"),
    ("search: {training.clip: {uniform: [1, 2]}, first: [{training.clip: 3}]}", "must be between 1.0 and 2.0"),
    ("search: {training.clip: {uniform: [1, 2]}, first: [{training: {clap: 1}}]}", "is not searched. Did you mean"),
    (
        "search: {training.clip: {uniform: [1, 2]}, trials: 1, first: [{training.clip: 1}, {training.clip: 2}]}",
        "more suggestions (2) than trials (1)",
    ),
    # settings
    ("search: {training.clip: {uniform: [1, 2]}, algoritm: tpe}", "Did you mean 'algorithm'?"),
    ("search: {training.clip: {uniform: [1, 2]}, scheduler: ahsa}", "search.scheduler.name: must be one of"),
    ("search: {training.clip: {uniform: [1, 2]}, objective: eror}", "Did you mean 'error'?"),
    ("search: {training.clip: {uniform: [1, 2]}, objective: [error, error]}", "names one objective twice"),
    ("search: {training.clip: {uniform: [1, 2]}, objective: [error], mode: [min, max]}", "mode has 2 words"),
    (
        "task: markov_source\nmodel: lru\nsearch: {training.clip: {uniform: [1, 2]}, objective: test_bits_per_symbol}",
        "search.mode: is required",
    ),
    (
        "search: {training.clip: {uniform: [1, 2]}, objective: test_accuracy, mode: max}",
        "the task linear_functional does not report test_accuracy. It reports none",
    ),
    (
        "task: {name: markov_source}\nmodel: {name: lru}\n"
        "search: {training.clip: {uniform: [1, 2]}, objective: test_bits_per_symbols, mode: min}",
        "Did you mean 'test_bits_per_symbol'?",
    ),
    (
        "perturbation: {balls: [all]}\nsearch: {training.clip: {uniform: [1, 2]}, objective: radius}",
        "measured in the ball recurrent",
    ),
    ("search: {training.clip: {uniform: [1, 2]}, trials: 2000000}", "more than 1,000,000"),
    ("name: s\nsearch: {training.clip: {uniform: [1, 2]}, warm_start: s}", "another study than this one"),
    ("search: {training.clip: {uniform: [1, 2]}, algorithm: cma_es}", "two fields at least"),
    (
        "search: {training.clip: {uniform: [1, 2]}, model.activation: {choice: [tanh, relu]}, algorithm: cma_es}",
        "numbers alone",
    ),
    (
        "search: {training.clip: {uniform: [1, 2]}, training.weight_decay: {uniform: [0, 1], when: {model.width: 4}}, "
        "algorithm: cma_es}",
        "takes no conditions",
    ),
    (
        "search: {training.clip: {uniform: [1, 2]}, training.weight_decay: {uniform: [0, 1]}, algorithm: cma_es, "
        "objective: [error, margin]}",
        "takes one objective",
    ),
    (
        "search: {training.clip: {uniform: [1, 2]}, objective: [error, margin], scheduler: asha}",
        "with several objectives nobody is behind",
    ),
    # schedulers
    (
        "search: {training.clip: {uniform: [1, 2]}, scheduler: {name: asha, grace: 70}}",
        "must be a multiple of training.validate_every, 50",
    ),
    (
        "grid: {training.steps: [200, 500]}\nsearch: {training.clip: {uniform: [1, 2]}, scheduler: asha}",
        "must be below training.steps, 200",
    ),
    (
        "search: {training.clip: {uniform: [1, 2]}, scheduler: {name: median, interval: 7}}",
        "search.scheduler.interval: must be a multiple",
    ),
    (
        "search: {training.steps: {int: [1000, 2000]}, scheduler: asha}",
        "compares trials at equal steps",
    ),
    (
        "grid: {training.steps: [500, 600]}\nsearch: {scope: study, training.clip: {uniform: [1, 2]}, scheduler: asha}",
        "needs equal training.steps",
    ),
    (
        "resources: {workers: 2}\nsearch: {training.clip: {uniform: [1, 2]}, scheduler: asha}",
        "Set resources.workers to 1",
    ),
    ("search: {model.width: {int: [1, 2]}, scheduler: pbt}", "which this field cannot be"),
    ("search: {training.clip: {choice: [1.0, 2.0]}, scheduler: pbt}", "which takes numbers"),
    ("search: {training.clip: {uniform: [1, 2]}, scheduler: pbt, trials: 3}", "must be at least 4"),
    # chains and confirmation
    (
        "grid: {model.width: [4, 8]}\nchain: {along: model.width, first: 1}\n"
        "search: {training.clip: {uniform: [1, 2]}}",
        "Take the chain out (chain=null)",
    ),
    ("confirm: {seeds: 3}", "the study has no search"),
    ("search: {training.clip: {uniform: [1, 2]}}\nconfirm: {sedes: 3}", "Did you mean 'seeds'?"),
    ("search: {training.clip: {uniform: [1, 2]}, trials: 2}\nconfirm: {top: 3}", "must be at most search.trials, 2"),
    ("search: {training.clip: {uniform: [1, 2]}}\nconfirm: {first_seed: 4}", "seeds 4 to 13 are not fresh"),
    ("search: {training.clip: {uniform: [1, 2]}}\nconfirm: {data_seed: 0}", "confirm.data_seed: 0 is not fresh"),
    (
        "grid: {training.data_seed: [0, 1]}\nsearch: {training.clip: {uniform: [1, 2]}}\nconfirm: {seeds: 3}",
        "1 is not fresh",
    ),
]


@pytest.mark.parametrize(("text", "fragment"), REFUSED)
def test_what_cannot_be_searched_is_refused_once(text: str, fragment: str) -> None:
    found = refusals(text if text.startswith("task") else f"{BASE}\n{text}\n")
    assert len(found) == 1, found
    assert fragment in found[0], found


def test_all_problems_are_told_at_once() -> None:
    found = refusals(
        f"{BASE}\ntraning: {{}}\nsearch: {{training.clip: {{uniform: [2, 1]}}, trials: 0, objective: eror}}"
        "\nconfirm: {seeds: 1}"
    )
    heads = [line.split(": ")[0] for line in found]
    assert heads == ["a study has no section 'traning'. Did you mean 'training'? Sections", *heads[1:]]
    assert heads[1:] == ["search.training.clip.uniform", "search.trials", "search.objective", "confirm.seeds"]
    found = refusals(
        f"{BASE}\nsearch: {{model.width: {{int: [2, 1]}}, training.clip: {{uniform: [0, 1]}}, scheduler: {{name: asha, "
        "grace: 7}, training.weight_decay: {uniform: [-1, 0], when: {model.width: 1}}}\nconfirm: {top: 21}"
    )
    heads = [line.split(": ")[0] for line in found]
    assert heads == ["search.model.width.int", "training.clip", "search.scheduler.grace", "confirm.top"]


LEGAL = [
    "search: {training.clip: {uniform: [1, 2]}, algorithm: cma_es, training.weight_decay: {uniform: [0, 1]}}",
    "search: {training.clip: {uniform: [1, 2]}, objective: [error, radius], algorithm: nsga_ii}",
    "perturbation: {balls: [all]}\nsearch: {training.clip: {uniform: [1, 2]}, objective: radius_all}",
    "search: {training.clip: {log_uniform: [1e-3, 2]}, scheduler: {name: pbt, interval: 100}}",
    "grid: {model.width: [4, 8]}\nsearch: {scope: study, training.clip: {uniform: [1, 2]}, scheduler: median}",
    "search: {model.parameterization: {choice: [exp, {name: best, a: 2.0}]}, model.parameterization.b: "
    "{uniform: [0.5, 1], when: {model.parameterization: best}}}",
    "grid: {model.width: [4, 8]}\nsearch: {training.weight_decay: {uniform: [0, 1]}, training.clip: "
    "{uniform: [1, 2], when: {model.width: 4}}}",
    "search: {training: {choice: [{clip: 1, weight_decay: 0.1}, {clip: 2}]}}",
    "search: {training.merge_redundant: {choice: [true, false]}, model.width: {log_int: [2, 2000]}}",
    "grid: {task: [{kernel: exponential}, {kernel: polynomial}]}\nsearch: {task.rate: {uniform: [0.1, 1]}}",
    "training: {amplitude_penalty: null}\nsearch: {model.activation: {choice: [linear, tanh]}}",
    "task: markov_source\nmodel: lru\n"
    "search: {training.clip: {uniform: [1, 2]}, objective: test_bits_per_symbol, mode: min}",
]


@pytest.mark.parametrize("text", LEGAL)
def test_what_can_be_searched(text: str) -> None:
    assert refusals(text if text.startswith("task") else f"{BASE}\n{text}\n") == []


def test_two_searched_fields_that_refuse_each_other_are_found() -> None:
    text = f"{BASE}\nsearch: {{training.objective: {{choice: [minibatch, population]}}, model.activation: {{choice: "
    assert refusals(text + "[linear, relu]}}") != []
    assert refusals(text + "[linear]}}") == []
    assert 'training.objective="population", model.activation="relu"' in refusals(text + "[linear, relu]}}")[0]


def test_of_a_large_grid_a_part_is_looked_at_and_every_model_of_it() -> None:
    registry.discover(ROOT)
    task, names, widths = registry.get("task", "linear_functional").Config(), ("ssm", "dense_rnn", "lru"), range(1, 901)
    configs = [registry.get("model", name).Config(width=width) for name in names for width in widths]
    cells = [TrialConfig(task=task, model=config) for config in configs]
    found: list[str] = []
    space = {"model.parameterization": Domain("choice", values=("exp", "direct"))}
    made = tried(space, cells, {"model.name": names, "model.width": tuple(widths)}, {}, found)
    assert 1_500 < len(made) < 3_100
    assert "search.model.parameterization: names no field: the model lru has no field" in only(found)


def test_fresh_seeds_come_after_all_of_the_search(whole: SweepConfig) -> None:
    confirm, first = ConfirmConfig(seeds=3), whole.rows[0]
    other = fresh(first, 4, 100, 7)
    assert (other.training.seeds, other.training.first_seed, other.training.data_seed) == (4, 100, 7)
    assert dataclasses.replace(other, training=first.training) == first
    assert confirm_first_seed([first, other], confirm) == 104
    assert confirm_first_seed([first], ConfirmConfig(first_seed=50)) == 50
    assert (confirm_data_seed(first, confirm), confirm_data_seed(other, confirm)) == (1, 8)
    assert confirm_data_seed(first, ConfirmConfig(data_seed=3)) == 3


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
    with pytest.raises(ConfigError, match=r"suggestion training.clip=-1:\n.*training.clip: must be above 0.0, got -1"):
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
    write_plan(tmp_path, make_plan(suggested, identified(suggested), ()), {}, sweep=whole)
    plan = read_plan(tmp_path)
    assert plan is not None
    assert [row["training"]["clip"] for row in plan.rows.values()] == [0.7, 0.7]
    assert list(plan.cells) == [to_dict(row) for row in whole.rows]
    assert plan.sweep() == whole
    path = tmp_path / "plan.json"
    assert json.loads(path.read_text())["schema"] == 3  # an older version would take the rows for a grid's


def test_a_plan_without_a_search_is_as_it_was(tmp_path: Path) -> None:
    sweep = load(tmp_path, BASE)
    write_plan(tmp_path, make_plan(sweep, identified(sweep), ()), {}, sweep=sweep)
    content = json.loads((tmp_path / "plan.json").read_text())
    assert content["schema"] == 2
    assert not {"search", "confirm", "cells"} & content.keys()
    plan = read_plan(tmp_path)
    assert plan is not None
    assert plan.sweep() == sweep


def test_describe_says_what_is_searched(tmp_path: Path) -> None:
    folder = tmp_path / "search_spaces"
    folder.mkdir()
    (folder / "s.yaml").write_text(f"# Best rate.\n{WHOLE}", "utf-8")
    lines = [" ".join(line.split()) for line in describe("s", tmp_path).splitlines()]
    assert lines[0] == "study s"
    assert lines[lines.index("2 cells") + 1 :] == [
        "model.width 4, 8",
        "search by tpe, seed 0: 30 suggestions in each cell, 4 at once",
        "training.learning_rate log_uniform [0.0001, 0.1]",
        "model.activation choice [linear, tanh]",
        "training.weight_decay uniform [0.0, 0.1], when model.activation is tanh",
        "objective min validation_loss",
        "scheduler asha: grace 250 steps, reduction 3",
        "first 1 suggestion of the study's own",
        "confirm the best of each cell on 10 fresh seeds and fresh data",
    ]
    registry.discover(ROOT)
    assert "{log_uniform: [low, high]}" in describe("search", tmp_path).replace("\n", " ")
    assert "fresh replicas of each winner" in describe("confirm", tmp_path)


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


@pytest.mark.slow
@given(some(DOMAINS, 1, 4), some(AXES, 0, 2), st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_what_is_accepted_makes_legal_trials_and_keeps_cells_apart(space: Any, grid: Any, seed: int) -> None:
    registry.discover(ROOT)
    base = {"task": {"name": "linear_functional", "kernel": "exponential"}, "model": {"name": "diagonal_rnn"}}
    found: list[str] = []
    made = _build({**base, "search": space, "grid": grid}, "study", found)
    assert (made is None) is bool(found)
    if made is None:
        return
    random = np.random.default_rng(seed)
    search, cells = made["search"], made["rows"]
    for cell in cells:
        values = draw_all(search.space, fixed_of(cell, search.space), random)
        assert values
        trial = config_of(cell, values)
        for other in cells:
            if other is not cell and fixed_of(other, search.space) == fixed_of(cell, search.space):
                assert config_of(other, values) != trial
