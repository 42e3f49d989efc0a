"""Plain data becomes a checked config, or every mistake in it is told at once."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_study import BASE, load, only, problems, scaled_parameterization
from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.config.core.fields import setting
from memsweep.config.core.problems import join
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig
from memsweep.errors import ConfigError, RegistryError
from paths import ROOT

registry.discover(ROOT)
TRIAL = to_dict(trial_from_dict({"task": "linear_functional", "model": "diagonal_rnn"}))

TEN_MISTAKES = """
task: {name: linear_functional, kernel: polynomal, horizn: 50}
model: {name: diagonal_rn}
training: {steps: many, seeds: 2.0, learning_rate: -1, clip: true}
resources: {cpus: .inf}
grid:
  task.dt: []
  model.width: 4
"""


def test_ten_mistakes_are_ten_lines(tmp_path: Path) -> None:
    expected = [
        ("grid.task.dt", "empty"),
        ("grid.model.width", "must be a list", "got 4"),
        ("task.horizn", "no field 'horizn'", "Did you mean 'horizon'?", "weight_power"),
        ("task.kernel", "must be one of airy, exponential", 'got "polynomal"', "did you mean 'polynomial'?"),
        ("model.name", "'diagonal_rn' is not registered", "Did you mean 'diagonal_rnn'?"),
        ("training.seeds", "whole number", "got 2.0"),
        ("training.steps", "whole number", 'got "many"'),
        ("training.learning_rate", "above 0.0", "got -1"),
        ("training.clip", "must be a number", "got true"),
        ("resources.cpus", "finite", "got .inf"),
    ]
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, TEN_MISTAKES)
    head, *told = str(caught.value).splitlines()
    assert "10 problems" in head
    assert caught.value.exit_code == 2
    assert len(told) == 10
    found = caught.value.problems
    for line, (path, *words) in zip(found, expected, strict=True):
        assert line.startswith(f"{path}: ")
        assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("steps", True, "whole number, got true"),
        ("steps", 100.0, "whole number, got 100.0"),
        ("steps", "100", "without quotes"),
        ("steps", None, "whole number, got null"),
        ("steps", -1, "at least 0, got -1"),
        ("seeds", 10_001, "at most 10_000, got 10001"),
        ("learning_rate", 0, "above 0.0, got 0"),
        ("learning_rate", float("nan"), "finite number, got .nan"),
        ("learning_rate", 10**400, "finite number, got 1000"),
        ("learning_rate", [0.1], "a number, got [0.1]"),
        ("schedule", "cosin", "did you mean 'cosine'?"),
        ("schedule", 3, "text, got 3"),
        ("dtype", False, "text, got false (write it in quotes"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(field: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_from(TrainingConfig, {field: value}, "it")
    (problem,) = caught.value.problems
    assert problem.startswith(f"{field}: must be")
    assert words in problem


def test_a_whole_number_stands_for_a_float_and_becomes_one() -> None:
    config = config_from(TrainingConfig, {"clip": 2}, "it")
    assert isinstance(config.clip, float)
    assert config == TrainingConfig(clip=2.0)


def test_lists_are_checked_item_by_item_and_as_a_whole() -> None:
    with pytest.raises(ConfigError) as caught:
        config_from(PerturbationConfig, {"balls": ["all", "recurent", 3]}, "it")
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["balls[1]", "balls[2]"]
    with pytest.raises(ConfigError, match="balls has a value twice"):
        config_from(PerturbationConfig, {"balls": ["all", "all"]}, "it")
    with pytest.raises(ConfigError, match=r"balls: must be a list"):
        config_from(PerturbationConfig, {"balls": "all"}, "it")


def test_a_nested_section_is_checked_under_its_path() -> None:
    with pytest.raises(ConfigError, match=r"radii: from \(2.0\) must be smaller than to \(1.0\)"):
        config_from(PerturbationConfig, {"radii": {"from": 2, "to": 1}}, "it")
    with pytest.raises(ConfigError, match=r"radii.from_: .* no field 'from_'. Did you mean 'from'\?"):
        config_from(PerturbationConfig, {"radii": {"from_": 2}}, "it")
    assert config_from(PerturbationConfig, {"radii": {"from": 1}}, "it").radii.from_ == 1.0


def test_a_field_that_the_kernel_lacks_is_refused(tmp_path: Path) -> None:
    found = only(problems(tmp_path, BASE, "task.kernel=shift", "task.rate=2.0"))
    assert "the kernel shift has no rate" in found


def test_what_must_be_given_is_named(tmp_path: Path) -> None:
    task, model = problems(tmp_path, "training:\n  steps: 1\nmodel:\n  name: ???\n")
    assert task.startswith("task.name: is required")
    assert "linear_functional" in task
    assert model.startswith("model.name: is required")


def test_unknown_sections_are_named(tmp_path: Path) -> None:
    found = problems(tmp_path, BASE + "\ntraning: {steps: 3}\nsweep: {}")
    assert [("'traning'" in line, "Did you mean 'training'?" in line) for line in found[:1]] == [(True, True)]
    assert "no section 'sweep'" in found[1]


def test_a_part_is_a_name_or_a_mapping_with_its_fields(tmp_path: Path) -> None:
    with scaled_parameterization():
        for text in ("scaled", "{name: scaled}", "{name: scaled, scale: 1}"):
            trial = only(load(tmp_path, BASE, f"model.parameterization={text.replace(' ', '')}").rows)
            assert (trial.model.parameterization.name, trial.model.parameterization.scale) == ("scaled", 1.0)
        found = only(problems(tmp_path, BASE, "model.parameterization={name:scaled,scal:2}"))
        assert "the parameterization scaled has no field 'scal'. Did you mean 'scale'?" in found
        assert "model.parameterization.scale: must be above 0.0, got -1" in only(
            problems(tmp_path, BASE, "model.parameterization={name:scaled,scale:-1}")
        )


def test_the_default_part_gives_the_fields_that_are_left_out() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Holder:
        part: Any = setting(doc="a part", factory=lambda: config(scale=3.0), registered="parameterization")

    with scaled_parameterization():
        config = registry.get("parameterization", "scaled").Config
        assert config_from(Holder, {"part": {"shift": 1}}, "it").part == config(scale=3.0, shift=1.0)
        assert config_from(Holder, {"part": {"name": "scaled", "shift": 1}}, "it").part == config(scale=1.0, shift=1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Strange:
    when: bytes = setting(b"", "no plain value")


def test_a_type_that_no_setting_can_have_is_the_authors_fault() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Listed:
        tags: list[int] = setting(None, "a list")
        many: tuple[object, ...] = setting((), "values")

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Outer:
        inner: Strange = setting(doc="a section", factory=Strange)

    with pytest.raises(RegistryError, match="the field when has the type bytes"):
        config_from(Outer, {}, "it")
    for strange, name in ((Strange, "when"), (Listed, "tags")):
        for fields in ({}, {name: "now"}):  # left out, too: its trials would fail, one by one
            with pytest.raises(RegistryError, match=f"the field {name} has the type"):
                config_from(strange, fields, "it")


def _mappings(data: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(data, dict):
        return []
    return [path, *(inner for key, value in data.items() for inner in _mappings(value, (*path, key)))]


def _leaves(data: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(data, dict):
        return [path]
    return [inner for key, value in data.items() for inner in _leaves(value, (*path, key))]


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


@pytest.mark.more
@given(st.sampled_from(_mappings(TRIAL)), st.text(min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_an_extra_key_is_refused_at_every_depth(path: tuple[str, ...], key: str) -> None:
    data = copy.deepcopy(TRIAL)
    if key in _at(data, path):
        key = f"{key}x"
    _at(data, path)[key] = 1
    with pytest.raises(ConfigError) as caught:
        trial_from_dict(data)
    assert only(caught.value.problems).startswith(join(".".join(path), key) + ": ")


@pytest.mark.parametrize("values", [["\n"], ["a b"], ["a,b"], ["[a"], ["$(ls)"]])
def test_values_that_cannot_stand_between_commas_are_not_advised(values: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        trial_from_dict({**TRIAL, "task": {**TRIAL["task"], "kernel": values}})
    assert "to try several values" not in only(caught.value.problems)


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.more
@given(st.sampled_from([*_leaves(TRIAL), *_mappings(TRIAL)[1:]]), _ANYTHING)
@settings(max_examples=400, deadline=None)
def test_any_value_anywhere_is_taken_or_refused_but_never_breaks(path: tuple[str, ...], value: Any) -> None:
    data = copy.deepcopy(TRIAL)
    _at(data, path[:-1])[path[-1]] = value
    try:
        trial = trial_from_dict(data)
    except ConfigError as error:
        told = error.problems
    else:
        told = ()
        assert trial_from_dict(to_dict(trial)) == trial
    assert all("\n" not in problem for problem in told)


def test_what_workers_cannot_share_out_is_told_at_once(tmp_path: Path) -> None:
    text = """
task: {name: markov_source}
model: {name: vanilla_rnn, layers: 2, dropout: 0.1}
training: {batch_size: 2}
resources: {workers: 4, strategy: data}
grid: {model.width: [2, 3]}
"""
    found = problems(tmp_path, text)
    assert [line.partition(": ")[0] for line in found] == ["training.batch_size", "resources.strategy"]
    assert "at least resources.workers, 4" in found[0]
    assert "dropout" in found[1]
    assert not load(tmp_path, text.replace("data", "replicas")).resources.shards > 1
